from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from qknorm.errors import InputError
from qknorm.experiments.recipe import PAIRS, load_table
from tests.experiments.plans import OWN, planned


def test_the_published_gain_is_0_928_on_average() -> None:
    """As the paper says in its text: a check of what was copied from its tables."""
    baseline, full = (row.published for row in load_table("henry-table2").rows)
    assert isinstance(baseline, dict)
    assert isinstance(full, dict)
    gains = [full[pair] - baseline[pair] for pair in PAIRS]
    assert sum(gains) / len(gains) == pytest.approx(0.928, abs=5e-4)
    assert set(load_table("henry-table1").data) == set(PAIRS)


class TestOwnTables:
    def test_a_row_is_like_another_but_for_its_changes(self, tmp_path: Path) -> None:
        rows = [
            {"name": "slow", "like": "baseline", "changes": {"model": {"heads": 2}}},
            {"name": "slower", "like": "slow", "changes": {"training": {"warmup": 9}}},
        ]
        (tmp_path / "own.yaml").write_text(yaml.safe_dump({"title": "x", "rows": rows}))
        *_, slower = load_table(str(tmp_path / "own.yaml")).rows
        assert slower.changes == {"model": {"qk_norm": "none", "norm": "scale", "heads": 2}, "training": {"warmup": 9}}
        assert slower.title == "slower"

    def test_rows_are_added_to_a_table_of_the_package(self, tmp_path: Path) -> None:
        (tmp_path / "row.yaml").write_text("{name: p3, changes: {model: {p: 3}}}")
        (tmp_path / "rows.yaml").write_text("[{name: p4, like: p3}, {name: p5}]")
        table = load_table("henry-table2", [tmp_path / "row.yaml", tmp_path / "rows.yaml"])
        assert [row.name for row in table.rows] == ["baseline", "qknorm", "p3", "p4", "p5"]
        assert table.rows[3].changes == {"model": {"p": 3}}

    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            ("question:", "qestion:", "own.yaml: there is no key qestion; the nearest is question"),
            ("label:", "labl:", "own.yaml, row 2: there is no key labl; the nearest is label"),
            ("name: p3", "name: qknorm", "own.yaml: two rows have the name qknorm; each needs its own"),
            ("p = 3 & more", "QKNorm + LayerNorm", "own.yaml: two rows have the label QKNorm"),
            ("published: 20", "published: about 20", "row 2: published.all: Input should be a valid number"),
            ("published: 20", "published: .nan", "row 2: published.all: Input should be a finite number (given: nan)"),
            ("published: 20", "published: {gl-en: x}", "published.gl-en: Input should be a valid number"),
            ("{model: {p: 3}}", "{model: {q: 3}}", "own.yaml, row p3: there is no key model.q"),
            ("{model: {p: 3}}", "{modle: {p: 3}}", "row 2: changes must hold keys of data, model, training, decoding"),
            ("{model: {p: 3}}", "{data: {corpus: x}}", "row 2: changes must leave data.corpus alone"),
            ("{model: {p: 3}}", "{training: {seed: 7}}", "row 2: changes must leave training.seed alone"),
            ("like: qknorm", "like: qk", "row 1: like must be one of qknorm, baseline, not qk"),
            ("name: p3", "name: a/b", "row 2: name must be that of a folder, such as without-g, not 'a/b'"),
            ("rates: [0.002", "rates: [-0.002", "own.yaml: rates.smoke.0: Input should be greater than 0"),
            ("rates: [0.002, 0.004]", "rates: {tiny: [1]}", "own.yaml: rates.tiny.[key]: Input should be 'smoke', 's"),
            ("rates: [0.002, 0.004]", "rates: [0.002, 2e-3]", "own.yaml: rates must differ from each other"),
            (
                "question:",
                "paper: foo\nquestion:",
                "own.yaml: paper must be one of henry-2020, lopez-rubio-2026, not 'foo'",
            ),
            (
                "question:",
                "data: {en-v: {L: 72}}\nquestion:",
                "data must be of the table's pairs, of which it names none",
            ),
            ("question:", "pairs: [en-vi]\ndata: {en-v: {L: 72}}\nquestion:", "pairs, en-vi, not of en-v"),
            ("title: Which norm?", "pairs: [xx-yy]", "own.yaml: title is missing"),
            ("question:", "pairs: [xx-yy]\nquestion:", "own.yaml: pairs must be some of en-vi"),
            ("question:", "reference: p4\nquestion:", "own.yaml: reference must be the name of a row of every size"),
            ("rows:", "row:", "own.yaml is not a table"),
            ("rows:", "rows: [", "own.yaml is not a YAML file"),
        ],
    )
    def test_what_is_wrong_is_named(self, own: str, talks: str, old: str, new: str, message: str) -> None:
        Path(own).write_text(OWN.replace(old, new))
        with pytest.raises(InputError, match=re.escape(message)) as error:
            planned(own, "smoke", talks)
        assert "\n" not in str(error.value)

    def test_without_pairs_the_paper_s_size_needs_a_corpus(self, own: str) -> None:
        with pytest.raises(InputError, match=r"own\.yaml names no pairs of the paper; choose a corpus with --corpus"):
            planned(own, "paper", None)
