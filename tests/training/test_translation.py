"""A translation run as functions; tests/journeys runs the same through the command line."""

from __future__ import annotations

import json
import os
import signal
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
from qknorm.training.trainer import Trainer
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

    def test_languages_have_one_vector_each_and_pieces_of_their_own(self, two_pairs: Content, tmp_path: Path) -> None:
        trained(two_pairs, tmp_path / "run")
        run = TranslatorRun(tmp_path / "run")
        model, parts = run.make_model(), run.parts
        assert [(way.name, way.source_number, way.target_number) for way in model.directions] == [
            ("en-gl", 0, 1),
            ("gl-en", 1, 0),
        ]
        assert model.languages.shape[0] == 2
        pieces = [set(direction.target_pieces) for direction in parts.directions]
        assert pieces[0] - pieces[1]
        assert pieces[1] - pieces[0]

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

    def test_what_one_direction_holds_out_the_other_does_not_learn(self, two_pairs: Content, tmp_path: Path) -> None:
        for language, side in (("gl", "source"), ("en", "target")):
            known = list(read_lines(tmp_path / f"back.{side}"))
            write_lines(tmp_path / f"back.{side}", [*known, *read_lines(tmp_path / f"test.{language}")])
        trained(two_pairs, tmp_path / "run", "max_updates=1")
        dropped = list(read_lines(tmp_path / "run" / "dropped-gl-en.tsv"))
        assert (
            sum("also in dev or test" in line for line in dropped) >= 6
        )  # some were split off for its own dev and test

    def test_it_goes_on_exactly(self, two_pairs: Content, tmp_path: Path) -> None:
        expected = trained(two_pairs, tmp_path / "whole", "bpe_dropout=0.1")
        run = tmp_path / "run"
        trained(two_pairs, run, "bpe_dropout=0.1")
        state = run / "checkpoints" / "step-000016" / "state.json"
        state.write_text(state.read_text()[:-9])
        with pytest.warns(UserWarning, match="step-000016 is damaged"):
            assert trained(two_pairs, run, "bpe_dropout=0.1", resume=True) == expected
        assert same(weights(run, "step-000016"), weights(tmp_path / "whole", "step-000016"))


class TestHalfPrecision:
    def test_bf16_learns_and_goes_on_exactly(self, content: Content, tmp_path: Path) -> None:
        run, settings = tmp_path / "run", ("precision=bf16", "max_updates=40")
        metrics = trained(content, run, *settings)
        losses = [line["train_loss"] for line in metrics]
        assert losses[-1] < 0.95 * losses[0]
        assert losses != [line["train_loss"] for line in trained(content, tmp_path / "full", "max_updates=40")]
        expected = weights(run, "step-000040")
        (run / "checkpoints" / "step-000040" / "state.json").unlink()
        with pytest.warns(UserWarning, match="step-000040 is damaged"):
            assert trained(content, run, *settings, resume=True) == metrics
        assert same(weights(run, "step-000040"), expected)
        assert {tensor.dtype for tensor in expected.values()} == {torch.float32}

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

    def test_an_interrupted_run_averages_the_same(
        self, content: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings = ("average=3", "max_updates=30")
        trained(content, tmp_path / "whole", *settings)
        run, step = tmp_path / "run", Trainer._step

        def step_and_ctrl_c(trainer: Trainer, loss: float, factor: float) -> None:
            if trainer.progress.step == 18:
                os.kill(os.getpid(), signal.SIGINT)  # in the middle of update 19, so it ends with that one
            step(trainer, loss, factor)

        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "_step", step_and_ctrl_c)
            with pytest.raises(KeyboardInterrupt):
                trained(content, run, *settings)
        assert (run / "checkpoints" / "last").read_text() == "step-000020\n"  # the one after it noticed
        trained(content, run, *settings, resume=True)
        ours, theirs = (Checkpoints(folder / "checkpoints").average(AVERAGED) for folder in (run, tmp_path / "whole"))
        assert same(ours, theirs)

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


class TestResume:
    def test_a_text_that_has_changed_is_noticed(self, content: Content, tmp_path: Path) -> None:
        trained(content, tmp_path / "run")
        with (tmp_path / "train.en").open("a") as source, (tmp_path / "train.gl").open("a") as target:
            source.write("One more.\n")
            target.write("Un máis.\n")
        with pytest.raises(InputError, match=r"the text has changed since .*run was begun"):
            trained(content, tmp_path / "run", resume=True)

    def test_a_changed_recipe_is_refused_and_the_key_named(self, content: Content, tmp_path: Path) -> None:
        trained(content, tmp_path / "run")
        with pytest.raises(
            InputError, match=r"was begun with training\.seed=1, not 2; go on with: qknorm train .*run --resume"
        ):
            trained(content, tmp_path / "run", "seed=2", resume=True)
        with pytest.raises(InputError, match="was begun with name=run, not other"):
            trained(content, tmp_path / "run", "name=other", resume=True)
