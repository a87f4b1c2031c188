"""The report: what is collected, how it is compared and drawn, and that no text of others can become code."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from qknorm.errors import InputError
from qknorm.experiments.report import write_report
from qknorm.experiments.report.attention import readable
from qknorm.experiments.report.charts import Line, line_chart, tick_labels, ticks
from qknorm.experiments.report.collect import TranslatorRun, collect
from qknorm.experiments.report.contests import contests_of, systems_of
from qknorm.experiments.report.examples import marked
from qknorm.experiments.sweep import grid as sweeps
from qknorm.runs.recipe import DataRecipe, PairRecipe, load_recipe, save_recipe
from qknorm.screen import Screen
from tests.experiments.test_sweep import TINY
from tests.reports import HOSTILE_LINE, HOSTILE_NAME, two_systems

LANGUAGE = """
task: language
name: letters
data: {file: text}
model: {layers: 2, heads: 1, dim: 8, context: 8}
"""


class Page(HTMLParser):
    """What a browser would make of a page: its tags, its visible text, and the text of its scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = self.data = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = str(dict(attrs).get("type", tag)) if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = "" if tag in ("script", "style") else self._inside

    def handle_data(self, data: str) -> None:
        if self._inside == "application/json":
            self.data += data
        elif not self._inside:
            self.text += data


@pytest.fixture(scope="module")
def both(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_systems(trained_run, tmp_path_factory.mktemp("both"))


@pytest.fixture(scope="module")
def html(both: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("out") / "report.html"
    write_report(both, out)
    return out.read_text(encoding="utf-8")


@pytest.fixture
def bare_run(trained_run: Path, tmp_path: Path) -> Path:
    """A run as it is before its first validation."""
    folder = tmp_path / "bare"
    folder.mkdir()
    for name in ("recipe.yaml", "corpus.json", "dropped.tsv", "pairs.json", "tokenizer.json"):
        shutil.copyfile(trained_run / name, folder / name)
    return folder


def test_the_page_loads_nothing_and_is_small(html: str) -> None:
    page = Page(html)
    addresses = [value for _, attributes in page.tags for key, value in attributes.items() if key in ("src", "href")]
    assert addresses
    assert all(str(address).startswith(("#", "data:")) for address in addresses)
    assert not {"link", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    assert "url(" not in html
    assert "@import" not in html
    policy = next(str(attributes["content"]) for _, attributes in page.tags if "http-equiv" in attributes)
    assert policy.startswith("default-src 'none'")
    assert len(html) < 3e6


def test_html_in_names_and_texts_is_shown_as_it_is(html: str) -> None:
    page = Page(html)
    assert HOSTILE_NAME in page.text
    assert HOSTILE_LINE in page.text
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 2  # the viewer and its data
    assert "img" not in tags
    systems = json.loads(page.data)
    assert [system["name"] for system in systems] == [HOSTILE_NAME, "good"]
    assert HOSTILE_LINE in [sentence["text"] for sentence in systems[0]["sentences"]]


def test_everything_about_two_systems_is_there(html: str) -> None:
    text = Page(html).text
    for heading in ("Scores", "Learning", "Examples", "Attention", "Sharpness g", "Corpus", "Settings"):
        assert f"\n{heading}\n" in text.replace("  ", "")
    assert "the others are compared with it" in text
    assert "good does better" in text
    assert "training.budget" in text
    assert "the same pair stands earlier in the text" in text


def test_every_attention_weight_is_in_the_page(html: str) -> None:
    for system in json.loads(Page(html).data):
        for sentence in system["sentences"]:
            sizes = {"source": len(sentence["source"]), "target": len(sentence["target"])}
            assert len(sentence["read"]) == sizes["target"]
            for kind, (queries, keys) in {
                "encoder": ("source", "source"), "decoder": ("target", "target"), "cross": ("target", "source"),
            }.items():  # fmt: skip
                found = sentence["maps"][kind]
                layers, heads = (1 if kind == "encoder" else 2), 4
                assert found["shape"] == [layers, heads, sizes[queries], sizes[keys]]
                assert len(found["weights"]) == math.ceil(math.prod(found["shape"]) / 3) * 4
                assert len(found["entropy"]) == layers
                assert all(0 <= value <= math.log2(sizes[keys]) + 0.01 for layer in found["entropy"] for value in layer)


def test_the_same_runs_give_the_same_file(both: Path, html: str, tmp_path: Path) -> None:
    write_report(both, tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == html


def test_a_run_under_way_is_shown_with_what_it_has(bare_run: Path, tmp_path: Path) -> None:
    write_report(bare_run, tmp_path / "report.html")
    assert "bare has not been tested: what is shown is its state before its first validation" in (
        tmp_path / "report.html"
    ).read_text(encoding="utf-8")
    line = '{"step": 5, "seconds": 1, "train_loss": 3, "dev_bleu": 2.5, "dev_loss": NaN}'
    (bare_run / "metrics.jsonl").write_text(line + "\n" + line[:20])
    write_report(bare_run, tmp_path / "report.html")
    assert "its state after update 5 (dev BLEU 2.5)" in (tmp_path / "report.html").read_text(encoding="utf-8")


@pytest.fixture
def run(trained_run: Path) -> TranslatorRun:
    (found,) = collect(trained_run).translators
    return found


def varied(run: TranslatorRun, name: str, seed: int = 1, **model: Any) -> TranslatorRun:
    training, shape = run.recipe.training.model_copy(update={"seed": seed}), run.recipe.model.model_copy(update=model)
    return replace(
        run, name=name, recipe=run.recipe.model_copy(update={"name": name, "training": training, "model": shape})
    )


def test_seeds_become_one_system(run: TranslatorRun) -> None:
    runs = [varied(run, f"{name}-seed-{seed}", seed, p=p) for name, p in (("a", 2.0), ("b", 3.0)) for seed in (1, 2)]
    systems = systems_of(runs)
    assert [(system.name, len(system.runs)) for system in systems] == [("a", 2), ("b", 2)]
    (contest,) = contests_of(systems)
    assert [entry.compared.seeds for entry in contest.entries] == [2, 2]


def test_where_a_system_has_one_seed_the_first_of_each_are_compared(run: TranslatorRun) -> None:
    systems = systems_of([varied(run, "a1", 1), varied(run, "a2", 2), varied(run, "b", 1, p=3.0)])
    assert [system.name for system in systems] == ["a", "b"]
    (contest,) = contests_of(systems)
    assert contest.first_seeds_only
    assert [entry.compared.seeds for entry in contest.entries] == [1, 1]


def test_plain_attention_comes_first(run: TranslatorRun) -> None:
    assert [system.name for system in systems_of([varied(run, "a"), varied(run, "b", attention="dot")])] == ["b", "a"]


def test_among_three_systems_p_values_are_corrected(run: TranslatorRun) -> None:
    (test,) = run.tests
    worse = replace(test, hypotheses=[line.rpartition(" ")[0] for line in test.hypotheses])
    others = [replace(varied(run, name, p=p), tests=[worse]) for name, p in (("b", 3.0), ("c", 4.0))]
    p_values = []
    for rivals in (others[:1], others):
        (contest,) = contests_of(systems_of([run, *rivals]))
        p_values.append(contest.entries[1].compared.p_value or 1.0)
    assert p_values[1] == pytest.approx(min(1.0, 2 * p_values[0]))


def test_different_test_sets_are_not_compared(run: TranslatorRun) -> None:
    (test,) = run.tests
    other = replace(
        varied(run, "b", p=3.0), tests=[replace(test, references=[*test.references[:-1], "something else"])]
    )
    contests = contests_of(systems_of([run, other]))
    assert [[entry.system.name for entry in contest.entries] for contest in contests] == [["phrases"], ["b"]]
    assert contests[0].entries[0].compared.p_value is None


def test_runs_are_found_three_levels_deep(bare_run: Path, tmp_path: Path) -> None:
    for place in ("x/run", "y/z/run", "heads-16", "heads-4", ".hidden", "a/b/c/too-deep"):
        shutil.copytree(bare_run, tmp_path / "all" / place)
    expected = ["heads-4", "heads-16", "x/run", "y/z/run"]
    assert [found.name for found in collect(tmp_path / "all").translators] == expected
    (tmp_path / "all" / "sweep.json").write_text('{"task": "translation"}')
    assert [found.name for found in collect(tmp_path / "all").translators] == expected


def test_several_language_pairs_have_a_table_each(bare_run: Path, trained_run: Path, tmp_path: Path) -> None:
    recipe = load_recipe(bare_run / "recipe.yaml")
    pairs = tuple(PairRecipe(source="x", target="y", languages=languages) for languages in (("a", "b"), ("b", "a")))
    data = DataRecipe(pairs=pairs, merges=recipe.data.merges)
    save_recipe(recipe.model_copy(update={"data": data}), bare_run / "recipe.yaml")
    about = json.loads((bare_run / "corpus.json").read_text())
    about["pairs"] = [{"read": 9, "kept": 7, "dropped": {"duplicate": 2}}] * 2
    (bare_run / "corpus.json").write_text(json.dumps(about))
    for code in ("a-b", "b-a"):
        shutil.copytree(trained_run / "test", bare_run / "test" / code)
        (bare_run / f"dropped-{code}.tsv").write_text(f"line\treason\tsource\ttarget\n1\tduplicate\tfrom {code}\tx\n")
    write_report(bare_run, tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    for shown in ("a → b, 100 sentences", "b → a, 100 sentences", "from a-b", "from b-a", "Not shown: bare: "):
        assert shown in text


def test_pieces_are_shown_as_one_reads_them() -> None:
    assert readable(["▁The", "▁h", "ouse", "▁", "</s>"], "raw") == [
        ("The", "word"), ("h", "word"), ("ouse", "inside"), ("␣", "word"), ("(end)", "special"),
    ]  # fmt: skip
    assert readable(["The</w>", "h", "ouse</w>", "</s>"], "words") == [
        ("The", "word"), ("h", "word"), ("ouse", "inside"), ("(end)", "special"),
    ]  # fmt: skip


def test_words_that_differ_are_marked() -> None:
    words = marked("der Hund läuft schnell.", "der Hund rennt schnell.", "ein Hund läuft schnell")
    assert "".join(word.text for word in words) == "der Hund läuft schnell."
    assert [word.text for word in words if word.not_in_reference] == ["läuft"]
    assert [word.text for word in words if word.only_here] == ["der", "."]
    assert [word.text for word in marked("狗跑", "猫跑", None) if word.not_in_reference] == ["狗"]


@pytest.mark.parametrize(("low", "high"), [(0, 1), (15.4, 30.5), (-3e-5, 2e-5), (9.7651, 9.7672), (7, 7), (0, 123456)])
def test_ticks_are_few_and_hold_the_numbers(low: float, high: float) -> None:
    found = ticks(low, high)
    assert 3 <= len(found) <= 8
    assert found[0] <= low <= high <= found[-1] + 1e-12
    labels = tick_labels(found)
    assert len(set(labels)) == len(labels)
    assert [float(label.replace(",", "")) for label in labels] == pytest.approx(found)


def test_a_chart_leaves_out_what_is_no_number() -> None:
    chart = line_chart([Line("<x>", [(1, 2.0), (2, math.nan), (3, 1.0)], 0)], "update", "loss", "Loss")
    assert chart is not None
    assert "nan" not in chart.svg
    assert 'aria-label="Loss. &lt;x&gt;: loss falls from 2 to 1."' in chart.svg
    assert chart.rows == [["1", "2"], ["3", "1"]]
    assert line_chart([Line("x", [(1, math.inf)], 0)], "update", "loss", "Loss") is None


def test_a_run_without_a_validation_does_not_keep_others_from_being_drawn() -> None:
    chart = line_chart([Line("begun", [], 0), Line("ended", [(1, 2.0)], 1)], "update", "loss", "Loss")
    assert chart is not None
    assert chart.legend == [("ended", 1)]


def test_a_language_model(tmp_path: Path) -> None:
    folder = tmp_path / "letters"
    folder.mkdir()
    (folder / "recipe.yaml").write_text(LANGUAGE)
    (folder / "corpus.json").write_text(json.dumps({"characters": 1000, "lines": 10, "sha256": "0"}))
    layer = {"entropy": [0.5], "saturated": [0.25], "largest_logit": [3.0], "bound": [12.0]}
    lines = [
        {"step": step, "seconds": 1, "train_loss": loss, "val_loss": loss, "attention": [layer, layer],
         "scales": {"blocks.0.attention": 12.0, "blocks.1.attention": [11.0, 12.0]}}
        for step, loss in ((10, 3.0), (20, math.log(8)))
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_report(folder, tmp_path / "report.html")
    text = Page((tmp_path / "report.html").read_text(encoding="utf-8")).text
    assert "as if it had to choose among 8.0 equally likely ones" in text
    for title in ("Validation loss", "g of each layer", "How spread out attention is", "How much of the range is used"):
        assert title in text


def test_a_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("a line of some text\n" * 30)
    Path("tiny.yaml").write_text(TINY)
    planned = sweeps.plan(Path("tiny.yaml"))
    folder = tmp_path / "runs" / planned.name
    sweeps.run(planned, folder, Screen(quiet=True), "local", 1, None)
    write_report(tmp_path / "runs", tmp_path / "report.html")
    page = Page((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert "6 of 6 runs are done" in page.text
    assert "no difference could be significant" in page.text
    pictures = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(pictures) == 5
    assert all(picture["alt"] and str(picture["src"]).startswith("data:image/svg+xml") for picture in pictures)
    (folder / "p-2_fold-00" / "metrics.jsonl").write_text("oops\n")
    with pytest.raises(InputError, match="tiny holds a run that is damaged"):
        write_report(folder, tmp_path / "report.html")


def _become_a_file(run: Path) -> None:
    shutil.rmtree(run)
    run.touch()


def _write(name: str, text: str) -> Callable[[Path], object]:
    return lambda run: (run / name).write_text(text)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_write("metrics.jsonl", "oops\n"), "metrics.jsonl, line 1, is damaged"),
        (_write("metrics.jsonl", '{"step": "x", "seconds": 1, "train_loss": 1}\n'), "line 1, is damaged: step: "),
        (_write("metrics.jsonl", "[]\n"), "metrics.jsonl, line 1, is damaged"),
        (_write("recipe.yaml", "data: ["), "recipe.yaml is not a YAML file"),
        (_write("recipe.yaml", "{data: {corpus: x}, nam: x}"), "there is no key nam"),
        (_write("corpus.json", "{}"), "corpus.json is damaged: pieces: "),
        (_write("corpus.json", '{"pieces": 1, "pairs": []}'), "corpus.json is of another recipe"),
        (_write("dropped.tsv", "line\nonly one column\n"), "dropped.tsv, line 2, is damaged"),
        (_write("sweep.json", "{"), "sweep.json is damaged"),
        (lambda run: (run / "corpus.json").unlink(), "there is no run in"),
        (_become_a_file, "is a file; a report is made of"),
        (shutil.rmtree, "does not exist"),
        (lambda run: (run.parent / "report.html").mkdir(), "report.html is a folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # the same in every worker
)
def test_wrong_input_is_named(bare_run: Path, tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(bare_run)
    with pytest.raises(InputError, match=message):
        write_report(bare_run, tmp_path / "report.html")
    assert not (tmp_path / "report.html").is_file()


def test_a_test_set_with_a_missing_line_is_named(trained_run: Path, tmp_path: Path) -> None:
    shutil.copytree(trained_run, tmp_path / "run")
    (tmp_path / "run" / "test" / "hypotheses.txt").write_text("one\n")
    with pytest.raises(InputError, match="differ in length"):
        write_report(tmp_path / "run", tmp_path / "report.html")
