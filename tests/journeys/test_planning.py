"""Two files and some minutes: the plan, what the run folder says of it, and a run that goes on."""

from __future__ import annotations

import json
import re
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from qknorm.data.textfiles import read_lines, write_lines
from qknorm.evaluation import wording
from qknorm.runs.writer import only_writer
from qknorm.training import planned, planner
from qknorm.training.trainer import Trainer
from tests.journeys.conftest import Command

TINY = ("dim=16", "feed_forward=32", "encoder_layers=1", "decoder_layers=1", "heads=2", "beam_size=1", "extra_length=5")


PLANNED = ("train", "--src", "train.en", "--tgt", "train.gl", "--minutes", "1", *TINY)


@pytest.fixture(autouse=True)
def _ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is read at most twice."""
    monkeypatch.setattr(planner, "MOST_PASSES", 2)


def recipe_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((folder / "recipe.yaml").read_text())
    return content


def steps(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in read_lines(folder / "metrics.jsonl")]


def test_two_files_become_a_translator_by_a_plan_in_plain_numbers(command: Command, workplace: Path) -> None:
    """What the plan wrote down is all there is to it: without its minutes, the same recipe gives the same run."""
    done = command(*PLANNED)
    assert done.code == 0, done.errors
    assert re.search(r"The plan: 1 \+ 1 layers, dim 16, .*passes through the text; about [\d.]+ \w+, until", done.out)
    assert "The text is small for the time" in done.out
    run = workplace / "runs" / "train"
    recipe = recipe_of(run)
    assert recipe["minutes"] is None
    assert recipe["data"]["languages"] == ["en", "gl"]
    assert recipe["data"]["merges"] == planner.merges_for(0)
    assert recipe["model"]["embedding_init"] == "counted"
    assert steps(run)[-1] == recipe["training"]["max_updates"]
    assert (run / "test" / "scores.json").exists()
    assert recipe["training"]["metric"] == "bleu"
    assert "chrF;" not in done.out

    (workplace / "written.yaml").write_text((run / "recipe.yaml").read_text().replace("name: train", "name: again"))
    assert command("train", "written.yaml").code == 0
    last = (run / "checkpoints" / "last").read_text().strip()
    ours, theirs = (
        load_file(folder / "checkpoints" / last / "model.safetensors") for folder in (run, run.with_name("again"))
    )
    assert all(ours[name].equal(theirs[name]) for name in ours)


def test_the_best_checkpoint_of_a_glossary_is_chosen_by_chrf(command: Command, workplace: Path) -> None:
    """One word has no sequences of four, so BLEU would be 0 for the best of them."""
    for language, vowels in (("en", "aeiou"), ("gl", "ouaei")):
        words = ["".join(syllables) for syllables in product(*(("b" + vowel, "d" + vowel) for vowel in vowels * 2))]
        write_lines(workplace / f"words.{language}", words[:300])
    glossary = ("--src", "words.en", "--tgt", "words.gl", "--minutes", "1", *TINY)
    done = command("train", *glossary)
    assert done.code == 0, done.errors
    assert "too short for BLEU, so the best checkpoint is chosen by chrF; metric=bleu changes that." in done.out
    assert recipe_of(workplace / "runs" / "words")["training"]["metric"] == "chrf"
    assert re.search(rf"test: BLEU .*\n  {re.escape(wording.TOO_SHORT)}\n", done.out)
    own = command("train", *glossary, "metric=bleu", "name=own")
    assert own.code == 0, own.errors
    assert "chosen by chrF" not in own.out
    assert recipe_of(workplace / "runs" / "own")["training"]["metric"] == "bleu"


def test_several_pairs_are_counted_and_taught_with_pieces_that_are_dropped(command: Command, workplace: Path) -> None:
    """Vectors and alignments come from all pairs together, and know the pieces of words that BPE-dropout cuts."""
    pairs = [
        {"source": "train.en", "target": "train.gl", "languages": ["en", "gl"]},
        {"source": "train.gl", "target": "train.en", "languages": ["gl", "en"]},
    ]
    content = {"name": "both", "minutes": 1, "data": {"pairs": pairs, "bpe_dropout": 0.1}}
    (workplace / "both.yaml").write_text(yaml.safe_dump(content))
    done = command("train", "both.yaml", *TINY)
    assert done.code == 0, done.errors
    run = workplace / "runs" / "both"
    recipe = recipe_of(run)
    assert recipe["model"]["embedding_init"] == "counted"
    assert recipe["training"]["taught"] > 0
    source = (workplace / "train.gl").read_text().splitlines()[0]
    (workplace / "one.gl").write_text(f"{source}\n")
    told = command("translate", "runs/both", "one.gl", "--pair", "gl-en", "--json", "--alignment")
    assert told.code == 0, told.errors
    links = json.loads(told.out)["alignment"]
    words = len(source.split())
    assert all(0 <= link[0] < words for link in links)


def test_compiling_kernels_is_not_charged_to_the_minutes(
    command: Command, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock begins after them; a text for which a minute is not enough is trained on for a few updates."""
    order: list[str] = []

    def monotonic() -> float:
        order.append("clock")
        return 0.0 if order.count("clock") == 1 else 63.0

    monkeypatch.setattr(planned, "load_kernels", lambda: order.append("kernels"))
    monkeypatch.setattr(planned, "time", SimpleNamespace(monotonic=monotonic))
    done = command(*PLANNED)
    assert done.code == 0, done.errors
    assert order[:2] == ["kernels", "clock"]
    assert "Making the text ready and measuring took 1.1 of 1 minutes: hardly any time is left" in done.out
    assert "about -" not in done.out
    assert steps(workplace / "runs" / "train")


def test_what_a_recipe_says_itself_is_not_planned(command: Command, workplace: Path) -> None:
    (workplace / "recipe.yaml").write_text((workplace / "recipe.yaml").read_text() + "minutes: 1\n")
    done = command("train", "recipe.yaml", "max_updates=24")
    assert done.code == 0, done.errors
    training = recipe_of(workplace / "runs" / "small")["training"]
    assert {key: training[key] for key in ("schedule", "budget", "max_updates", "validate_every", "decay")} == {
        "schedule": "cosine", "budget": 256, "max_updates": 24, "validate_every": 8, "decay": None,
    }  # fmt: skip
    assert training["average"] == planner.START["training"]["average"]
    assert command("train", "recipe.yaml", "max_updates=24", "--resume").code == 0
    changed = command("train", "recipe.yaml", "max_updates=24", "budget=300", "--resume")
    assert changed.code == 2
    assert "was begun with training.budget=256, not 300" in changed.errors


def test_a_run_that_has_ended_goes_on(command: Command, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a new plan; resumed, it is what it was."""
    tried = command(*PLANNED, "max_updates=16")
    assert tried.code == 0, tried.errors
    assert "qknorm train runs/train --minutes 60   let it learn on" in tried.out
    run = workplace / "runs" / "train"
    before, first = recipe_of(run), steps(run)
    monkeypatch.setattr(planner, "MOST_PASSES", 6)
    monkeypatch.setattr(planner, "SHAPES", (planner.Shape(16, 32, 1, 1, 2),))
    done = command("train", "runs/train", "--minutes", "1")
    assert done.code == 0, done.errors
    after = recipe_of(run)
    begun, total = before["training"]["max_updates"] - before["training"]["decay"], after["training"]["max_updates"]
    assert f"after the {begun:,} before the learning rate fell, {total:,} in all instead of 16" in done.out
    assert "It grows" not in done.out
    assert f"going on after update {begun}" in done.out
    assert "let it learn on" not in done.out  # by heart
    assert [step for step in steps(run) if step <= begun] == [step for step in first if step <= begun]
    assert steps(run)[-1] == total > 16
    assert len(steps(run)) < 15
    assert after["training"]["validate_every"] > before["training"]["validate_every"]
    changed = ("max_updates", "decay", "validate_every")
    assert before["training"] | {key: after["training"][key] for key in changed} == after["training"]
    assert command("train", "runs/train", "--resume").code == 0


def test_a_run_that_goes_on_grows_to_the_size_of_a_new_plan(
    command: Command, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins where the smaller one was, and what is kept of that translates as it did."""
    assert command(*PLANNED, "max_updates=16").code == 0
    run = workplace / "runs" / "train"
    before, folder = recipe_of(run), run / "checkpoints"
    write_lines(workplace / "lines.en", list(read_lines(workplace / "train.en"))[:20])
    said = command("translate", "runs/train", "lines.en").out
    monkeypatch.setattr(planner, "SHAPES", (planner.Shape(24, 48, 2, 2, 4),))
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train", interrupted)
        assert command("train", "runs/train", "--minutes", "1").code == 130
    stable = folder / (folder / "stable").read_text().strip()
    assert load_file(stable / "model.safetensors")["languages"].shape == (2, 24)
    assert load_file(folder / "before" / "model.safetensors")["languages"].shape == (2, 16)
    assert command("translate", "runs/train", "lines.en").out == said
    after = recipe_of(run)
    assert after["model"] | before["model"] == before["model"] | {"position_dim": None}
    grown = {"dim": 24, "feed_forward": 48, "encoder_layers": 2, "decoder_layers": 2, "heads": 3, "position_dim": 16}
    assert {key: after["model"][key] for key in grown} == grown
    assert after["training"]["peak"] == planner.peak_for(24) < before["training"]["peak"]
    assert after["training"]["budget"] == planner.budget_for(24, "muon")
    done = command("train", "runs/train", "--resume")
    assert done.code == 0, done.errors
    assert steps(run)[-1] == after["training"]["max_updates"]


def interrupted(_: Trainer) -> None:
    raise KeyboardInterrupt


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a run, but for the one that says who writes."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".writer")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_run_that_may_not_go_on_stays_as_it_was(command: Command, workplace: Path) -> None:
    """With too little time it would end with fewer updates than it has; one that has not ended would lose the last."""
    assert command(*PLANNED, "max_updates=16", "dev=[dev.en, dev.gl]", "test=[test.en, test.gl]").code == 0
    run = workplace / "runs" / "train"
    recipe, begun, before = run / "recipe.yaml", 16 - recipe_of(run)["training"]["decay"], contents(run)

    def refused(*settings: str) -> str:
        done = command("train", "runs/train", "--minutes", *settings)
        assert (done.code, contents(run) == before) == (2, True)
        return done.errors

    too_few = refused("0.0001")
    assert f"0.0001 minutes are too few: runs/train would go on from update {begun:,}," in too_few
    assert "and 16 updates, as many as it had, take about " in too_few
    assert "was begun with training.seed=1, not 2" in refused("1", "seed=2")
    with only_writer(run):
        assert "runs/train is being written by process" in refused("1")
    text = recipe.read_text()
    recipe.write_text(text.replace("max_updates: 16", "max_updates: 400"))  # as if it had gone on
    done = command("train", "runs/train", "--minutes", "1")
    assert "has not ended yet, so it cannot be prolonged; go on with: qknorm train runs/train --resume" in done.errors
    recipe.write_text(text)
    for language in ("en", "gl"):
        write_lines(workplace / f"train.{language}", [*read_lines(workplace / f"train.{language}"), "One more."])
    assert "the text has changed since runs/train was begun" in refused("1")


def test_a_run_without_a_stable_phase_cannot_be_prolonged(command: Command, small_run: Path) -> None:
    before = contents(small_run)
    done = command("train", "runs/small", "--minutes", "1")
    assert (done.code, "cannot be prolonged" in done.errors) == (2, True)
    assert contents(small_run) == before


@pytest.mark.usefixtures("workplace")
def test_no_time_is_an_error(command: Command) -> None:
    for minutes in ("0", "-3", "nan", "inf"):
        done = command("train", "--src", "train.en", "--tgt", "train.gl", f"--minutes={minutes}")
        assert (done.code, "--minutes must be more than 0" in done.errors) == (2, True)
    assert not Path("runs").exists()


def test_tokenised_text_is_recognised(command: Command, workplace: Path) -> None:
    for language in ("en", "gl"):
        lines = [re.sub(r"([.,!?])", r" \1", line) for line in read_lines(workplace / f"train.{language}")]
        write_lines(workplace / f"tokens.{language}", lines)
    files = ("--src", "tokens.en", "--tgt", "tokens.gl")
    assert command("train", *files, "--minutes", "1", "max_updates=1", *TINY).code == 0
    assert recipe_of(workplace / "runs" / "tokens")["data"]["scheme"] == "words"
