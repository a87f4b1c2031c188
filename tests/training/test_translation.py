"""A translation run as functions; tests/journeys runs the same through the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from qknorm import Translator
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.errors import InputError
from qknorm.metrics.metric import Metric
from qknorm.metrics.table import METRICS
from qknorm.runs.checkpoint import Checkpoints
from qknorm.runs.recipe import make_recipe
from qknorm.runs.translator_run import TranslatorRun
from qknorm.screen import Screen
from qknorm.training.translation import meaning_of, train

Content = dict[str, Any]


def trained(content: Content, folder: Path, *settings: str, resume: bool = False) -> list[dict[str, Any]]:
    """The metrics of a run, but for times."""
    train(make_recipe(content, settings, "test"), folder, Screen(quiet=True), resume)
    return [
        {key: value for key, value in json.loads(line).items() if "second" not in key}
        for line in read_lines(folder / "metrics.jsonl")
    ]


def weights(folder: Path, checkpoint: str) -> dict[str, torch.Tensor]:
    return load_file(folder / "checkpoints" / checkpoint / "model.safetensors")


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(ours[name], theirs[name]) for name in ours | theirs)


@pytest.fixture
def two_pairs(content: Content, tmp_path: Path) -> Content:
    """en → gl, and gl → en with other sentences, fewer of them."""
    forth = {key: content["data"].pop(key) for key in ("source", "target", "dev", "test", "languages")}
    for language, side in (("gl", "source"), ("en", "target")):
        write_lines(tmp_path / f"back.{side}", list(read_lines(tmp_path / f"train.{language}"))[:60])
    back = {"source": str(tmp_path / "back.source"), "target": str(tmp_path / "back.target"), "languages": ["gl", "en"]}
    content["data"]["pairs"] = [forth, back]
    return content


class TestSeveralPairs:
    def test_one_model_learns_and_is_scored_on_each(self, two_pairs: Content, tmp_path: Path) -> None:
        """Its languages have one vector each, and pieces of their own."""
        run = tmp_path / "run"
        last = trained(two_pairs, run)[-1]
        assert last["dev_bleu"] == pytest.approx((last["dev_bleu en-gl"] + last["dev_bleu gl-en"]) / 2)
        assert last["dev_chrf"] == pytest.approx((last["dev_chrf en-gl"] + last["dev_chrf gl-en"]) / 2)
        lines = {
            name: json.loads((run / "test" / name / "scores.json").read_text())["lines"] for name in ("en-gl", "gl-en")
        }
        assert lines == {"en-gl": 8, "gl-en": 6}  # a tenth was split off the second
        assert not (run / "test" / "scores.json").exists()
        assert {path.name for path in run.glob("dropped*")} == {"dropped-en-gl.tsv", "dropped-gl-en.tsv"}

        model = TranslatorRun(run).make_model()
        numbers = {way.name: (way.source_number, way.target_number) for way in model.directions}
        assert numbers == {"en-gl": (0, 1), "gl-en": (1, 0)}
        assert model.languages.shape[0] == 2
        first, second = (set(direction.target_pieces) for direction in TranslatorRun(run).parts.directions)
        assert first - second
        assert second - first

    def test_a_translator_must_be_told_which(self, two_pairs: Content, tmp_path: Path) -> None:
        trained(two_pairs, tmp_path / "run")
        sentence = next(read_lines(tmp_path / "test.en"))
        (expected, *_) = read_lines(tmp_path / "run" / "test" / "en-gl" / "hypotheses.txt")
        translator = Translator.load(tmp_path / "run", "gl-en")
        assert [direction.name for direction in translator.directions] == ["en-gl", "gl-en"]
        other = translator.with_direction("en-gl")
        assert (other.source, other.target, translator.target) == ("en", "gl", "en")
        assert other.model is translator.model
        assert other.translate([sentence]) == [expected]
        with pytest.raises(InputError, match=r"several language pairs; choose a pair: en-gl, gl-en"):
            Translator.load(tmp_path / "run")
        with pytest.raises(InputError, match="does not translate en-pt"):
            Translator.load(tmp_path / "run", "en-pt")

    def test_it_goes_on_exactly_with_its_own_text_alone(self, two_pairs: Content, tmp_path: Path) -> None:
        run, settings = tmp_path / "run", "bpe_dropout=0.1"
        expected, learned = trained(two_pairs, run, settings), weights(run, "step-000016")
        (run / "checkpoints" / "step-000016" / "state.json").write_text("{")
        with pytest.warns(UserWarning, match="step-000016 is damaged"):
            assert trained(two_pairs, run, settings, resume=True) == expected
        assert same(weights(run, "step-000016"), learned)
        for side in ("source", "target"):
            write_lines(tmp_path / f"back.{side}", [*read_lines(tmp_path / f"back.{side}"), "One more."])
        with pytest.raises(InputError, match=r"the text has changed since .*run was begun"):
            trained(two_pairs, run, settings, resume=True)


def test_both_ways_are_learned_by_one_model_beside_what_is_borrowed(content: Content, tmp_path: Path) -> None:
    """All but text that was translated back is learned from in the opposite direction, too; it goes on exactly."""
    run, given = tmp_path / "run", content["data"]
    sides = {"source": given["source"], "target": given["target"]}
    related = {"kind": "related", **sides, "languages": ["pt", "gl"], "weight": 3}
    given["extra"] = [{"kind": "target", **sides, "languages": ["en", "gl"]}, related]
    expected = trained(content, run, "both_ways=true")
    assert expected[-1]["dev_bleu"] == pytest.approx(
        (expected[-1]["dev_bleu en-gl"] + expected[-1]["dev_bleu gl-en"]) / 2
    )
    forth, back = (
        tuple(list(read_lines(run / "test" / name / file)) for file in ("source.txt", "references.txt"))
        for name in ("en-gl", "gl-en")
    )
    assert forth == back[::-1]
    ways = [(part.source, part.target, part.is_borrowed) for part in TranslatorRun(run).parts.directions]
    assert ways[:2] == [("en", "gl", False), ("gl", "en", False)]
    assert ways[2:] == [("en+back", "gl", True), ("pt", "gl", True), ("gl", "pt", True)]
    assert [text.weight for text in TranslatorRun(run).recipe.data.borrowed] == [1, 3, 3]
    assert [len(list(run.glob(f"dropped-{name}.tsv"))) for name in ("en-gl", "gl-en", "extra-*")] == [1, 0, 2]

    learned = weights(run, "step-000016")
    (run / "checkpoints" / "step-000016" / "state.json").write_text("{")
    with pytest.warns(UserWarning, match="step-000016 is damaged"):
        assert trained(content, run, "both_ways=true", resume=True) == expected
    assert same(weights(run, "step-000016"), learned)


def test_a_run_that_borrows_goes_on_exactly_and_ends_with_its_own_text(content: Content, tmp_path: Path) -> None:
    run, given = tmp_path / "run", content["data"]
    other = {"kind": "related", "source": given["source"], "target": given["target"], "languages": ["pt", "gl"]}
    given["extra"] = [{**other, "weight": 3}]
    learned = [
        trained(content, folder, f"own={own}")[-1]["dev_loss"] for folder, own in ((run, 8), (tmp_path / "0", 0))
    ]
    assert learned[0] != learned[1]
    expected = weights(run, "step-000016")
    (run / "checkpoints" / "step-000016" / "state.json").write_text("{")
    with pytest.warns(UserWarning, match="step-000016 is damaged"):
        trained(content, run, "own=8", resume=True)
    assert same(weights(run, "step-000016"), expected)


class TestHalfPrecision:
    def test_bf16_learns_and_keeps_float32(self, content: Content, tmp_path: Path) -> None:
        losses = [line["train_loss"] for line in trained(content, tmp_path / "run", "precision=bf16", "max_updates=40")]
        assert losses[-1] < 0.95 * losses[0]
        assert losses != [line["train_loss"] for line in trained(content, tmp_path / "full", "max_updates=40")]
        kept = weights(tmp_path / "run", "step-000040").values()
        assert {tensor.dtype for tensor in kept} == {torch.float32}

    @pytest.mark.skipif(torch.cuda.is_available(), reason="this is about machines without a GPU")
    def test_fp16_is_refused_on_a_cpu(self, content: Content, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="fp16 needs a GPU; on a CPU choose bf16 or float32"):
            trained(content, tmp_path / "run", "precision=fp16")


@dataclass(frozen=True, kw_only=True)
class Given(Metric):
    """Scores that are given."""

    values: Iterator[float]

    def score(self, *_: object) -> float:
        return next(self.values)


AVERAGED = (16, 24, 30)  # of validations after 8, 16, 24 and 30


class TestWhatIsTested:
    def test_the_mean_of_the_last_checkpoints(self, content: Content, tmp_path: Path) -> None:
        run = tmp_path / "run"
        trained(content, run, "average=3", "max_updates=30")
        parts = [weights(run, f"step-{step:06d}") for step in AVERAGED]
        for name, tensor in Checkpoints(run / "checkpoints").average(AVERAGED).items():
            torch.testing.assert_close(tensor, sum(part[name] for part in parts) / 3)
        best = (run / "checkpoints" / "best").read_text().strip()  # whichever scores better
        assert same(dict(Translator.load(run).model.state_dict()), weights(run, best))

    @pytest.mark.parametrize(("metric", "best"), [("bleu", "step-000024"), ("chrf", "step-000016")])
    def test_chrf_can_be_the_score(
        self, content: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metric: str, best: str
    ) -> None:
        """With scores that are given: those of models this small are often 0."""
        given = {"bleu": [1.0, 2.0, 3.0], "chrf": [1.0, 3.0, 2.0]}
        for name, values in given.items():
            with_test_set = chain(values, repeat(0.0))
            monkeypatch.setitem(METRICS, name, Given(name, values=with_test_set))
        trained(content, tmp_path / "run", f"metric={metric}", "max_updates=24")
        assert (tmp_path / "run" / "checkpoints" / "best").read_text() == f"{best}\n"


@pytest.mark.parametrize(
    ("bleu", "references", "expected"),
    [
        (41.0, ["The shop is closed."] * 100, "can be used as they are"),
        (0.0, ["The shop is closed."] * 100, "Hardly of use yet"),
        (41.0, ["The shop is closed."] * 10, "So few lines"),
        (41.0, ["今天的天气很好。"] * 100, "can be used as they are"),
        (41.0, ["今日は天気がとても良いです。"] * 100, "read some translations to judge"),
        (0.0, ["house", "bread"], "too short for BLEU"),
    ],
)
def test_what_a_score_promises(bleu: float, references: list[str], expected: str) -> None:
    """Nothing where BLEU says nothing or counts characters, of which a few in a row are soon right."""
    assert expected in meaning_of(bleu, references, tokenized=False)
