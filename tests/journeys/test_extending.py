"""What CONTRIBUTING.md says of the cost of change: each thing is added here from outside of the package, and used."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

from qknorm.attention.module import parameter_groups
from qknorm.attention.norms import KINDS, Heads, Norms
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.decoding.beam import Hypothesis
from qknorm.decoding.decoders import DECODERS, Beam
from qknorm.decoding.sentence import Sentence
from qknorm.experiments.experiment import Experiment
from qknorm.experiments.formats import Table
from qknorm.experiments.page import Answer
from qknorm.experiments.results import RunResult
from qknorm.experiments.views.table import VIEWS, View
from qknorm.formats.document import Document
from qknorm.formats.table import FORMATS
from qknorm.metrics.metric import Metric
from qknorm.metrics.table import METRICS
from qknorm.optimisation.optimisers import OPTIMISERS, OptimiserSettings
from qknorm.runs.any_recipe import RECIPES
from qknorm.tasks.table import TASKS, add
from tests.journeys.conftest import Command
from tests.tasks.lines import LineDescription

RECIPE = """
task: language
name: mine
data: {file: text, folds: 2, fold: 0}
model: {layers: 1, heads: 2, dim: 16, context: 16}
training: {batch: 4, iterations: 2, warmup: 1, validate_every: 2, validation_windows: 2}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    write_lines(tmp_path / "text", ["the quick brown fox jumps over the lazy dog"] * 20)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return "mine.yaml"


@dataclass(frozen=True)
class GainKind:
    """RMSNorm of queries alone, times a constant."""

    gain: float = 1.0

    def make(self, heads: Heads) -> Norms:
        return Norms(nn.RMSNorm(heads.dim), nn.Identity(), nn.Identity(), self.gain * heads.dim**-0.5)


def test_a_norm_is_a_class_and_its_line(recipe: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, "gain", GainKind)
    done = command("train", recipe, "qk_norm={kind: gain, gain: 2}")
    assert done.code == 0, done.errors
    assert "kind: gain\n    gain: 2\n" in Path("runs/mine/recipe.yaml").read_text()
    assert command("generate", "runs/mine", "--prompt", "the ", "--tokens", "3").code == 0

    done = command("sweep", recipe, "qk_norm=[lp, gain, {kind: gain, gain: 2}]", "name=kinds", "--jobs", "1")
    assert done.code == 0, done.errors
    with Path("runs/kinds/results.csv").open() as file:
        assert [row["qk_norm"] for row in csv.DictReader(file)] == ["lp", "gain", "gain-gain-2"]
    done = command("train", recipe, "qk_norm={kind: gain, gian: 2}", "name=other")
    assert (done.code, "gian cannot be set for qk_norm='gain': it has gain" in done.errors) == (2, True)


def test_an_optimiser_is_a_function_and_its_line(
    recipe: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sgd(model: nn.Module, settings: OptimiserSettings) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameter_groups(model, settings.weight_decay), lr=0.0, momentum=0.9)

    monkeypatch.setitem(OPTIMISERS, "sgd", sgd)
    done = command("train", recipe, "optimizer=sgd")
    assert done.code == 0, done.errors
    assert "optimizer: sgd" in Path("runs/mine/recipe.yaml").read_text()


@dataclass(frozen=True)
class Exact(Metric):
    """The share of lines that are right to the letter."""

    def score(self, hypotheses: Sequence[str], references: Sequence[str], tokenized: bool = False) -> float:
        cut = str.split if tokenized else list
        right = [cut(line) == cut(reference) for line, reference in zip(hypotheses, references, strict=True)]
        return 100 * sum(right) / len(right)


@pytest.mark.usefixtures("workplace")
def test_a_metric_is_a_class_and_its_line(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "exact", Exact("exact lines"))
    done = command(
        "sweep", "recipe.yaml", "metric=exact", "peak=[0.001,0.003]", "max_updates=2", "validate_every=1", "--jobs", "1"
    )
    assert done.code == 0, done.errors
    (results,) = Path("runs").glob("*/results.csv")
    with results.open() as file:
        assert [row["exact"] for row in csv.DictReader(file)] == ["0.0", "0.0"]
    first, _ = results.parent.glob("**/metrics.jsonl")
    assert json.loads(first.read_text().splitlines()[-1])["dev_exact"] == 0.0
    assert json.loads(command("score", "test.gl", "test.gl", "--json").out)["exact"] == 100.0


class Settings(Document):
    """Lines such as `title = The house`, of which the values are translated."""

    def __init__(self, path: Path | None) -> None:
        assert path is not None
        self.rows = [line.split(" = ") for line in read_lines(path)]

    @property
    def segments(self) -> Iterator[str]:
        return (value for _, value in self.rows)

    def written(self, translations: Iterable[str]) -> Iterator[bytes]:
        for (key, _), translation in zip(self.rows, translations, strict=True):
            yield f"{key} = {translation}\n".encode()


def test_a_document_format_is_a_class_and_its_line(
    command: Command, trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(FORMATS, "settings", Settings)
    content = "title = The house is red.\nempty = \nbutton = I eat.\n"
    Path("app.settings").write_text(content)
    Path("APP.settings.gz").write_bytes(gzip.compress(content.encode()))
    texts = command("translate", str(trained_run), stdin=b"The house is red.\n\nI eat.\n").out.split("\n")
    for name in ("app.settings", "APP.settings.gz"):
        done = command("translate", str(trained_run), name)
        assert done.out == f"title = {texts[0]}\nempty = \nbutton = {texts[2]}\n", done.errors
    assert command("translate", str(trained_run), "app.settings", "--n-best", "1").out.count("\t") == 6


class Echo(Beam):
    """Says what it has read."""

    def decode(self, _model: object, sentences: Sequence[Sentence], _direction: object) -> list[list[Hypothesis]]:
        return [[Hypothesis([*sentence.pieces], 0.0, [])] for sentence in sentences]


def test_a_decoder_is_a_class_and_its_line(
    command: Command, trained_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DECODERS, "echo", Echo)
    done = command("translate", str(trained_run), "--decoder", "echo", stdin=b"The house is red.\n\n")
    assert done.out == "The house is red.\n\n", done.errors


def times(_experiment: Experiment, results: Sequence[RunResult]) -> Answer:
    rows = [[result.name, f"{result.measured['seconds']:.1f}"] for result in results if result.is_done]
    return Answer(sentences=[f"{len(rows)} runs."], tables=[Table("", "", ["", "seconds"], rows)])


def test_a_view_is_a_function_and_its_line(recipe: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VIEWS, "times", View(times))
    Path(recipe).write_text(f"{RECIPE}shows: times\n")
    done = command("sweep", recipe, "p=[2, 3]", "--jobs", "1")
    assert done.code == 0, done.errors
    assert "2 runs." in done.out
    assert "| p-3 | " in Path("runs/mine/summary.md").read_text()


def test_a_task_is_its_recipe_and_its_description(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes every way that the others go: trained, resumed, swept and reported."""
    for known in (RECIPES, TASKS):
        monkeypatch.setitem(known, "line", None)  # it goes with the test
    add(LineDescription())
    Path("line.yaml").write_text("{task: line, name: mine, data: {noise: 0.0}, training: {updates: 8}}\n")
    done = command("train", "line.yaml")
    assert (done.code, "dev_bleu 2.00" in done.out) == (0, True), done.errors
    assert command("train", "runs/mine", "--resume").code == 0
    done = command("train", "runs/mine", "--minutes", "1")
    assert (done.code, "holds a line, which cannot be prolonged" in done.errors) == (2, True)
    done = command("generate", "runs/mine", "--prompt", "x")
    assert "runs/mine holds a line, not a language model" in done.errors

    done = command("sweep", "line.yaml", "updates=[4, 8]", "name=lines", "--jobs", "1")
    assert done.code == 0, done.errors
    with Path("runs/lines/results.csv").open() as file:
        assert [(row["updates"], row["best"]) for row in csv.DictReader(file)] == [("4", "1.0"), ("8", "2.0")]
    assert command("report", "runs", "-o", "report.html").code == 0
    assert "dev_bleu" in Path("report.html").read_text()
