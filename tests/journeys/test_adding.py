"""More sentences for a run that has ended, and runs that go on from others."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from qknorm import Translator
from qknorm.data.phrasebook import pairs
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.training import planner
from tests.journeys.conftest import Command


@pytest.fixture
def run(tmp_path: Path, trained_run: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trained run of phrases beside its text, and more phrases with a word that it has never seen."""
    for path in trained_run.parents[1].glob("*.[01]"):
        shutil.copy(path, tmp_path)
    shutil.copytree(trained_run, tmp_path / "runs" / "phrases")
    more = [(f"{source} tomorrow", f"{target} mañá") for source, target in pairs(400)]
    write_lines(tmp_path / "new.en", [source for source, _ in more])
    write_lines(tmp_path / "new.gl", [target for _, target in more])
    (tmp_path / "new.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in more))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(planner, "SHAPES", (planner.Shape(64, 128, 1, 2, 4),))
    return tmp_path / "runs" / "phrases"


def digest(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_learns_more_and_the_old_one_stays_as_it_was(
    command: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "MOST_PASSES", 0.7)
    before = digest(run)
    done = command("train", "runs/phrases", "--add", "new.en", "new.gl", "--minutes", "9")
    assert done.code == 0, done.errors
    assert digest(run) == before
    new = run.with_name("phrases-2")
    recipe = yaml.safe_load((new / "recipe.yaml").read_text())
    assert recipe["parent"].endswith("runs/phrases")
    assert [(extra["kind"], extra["languages"]) for extra in recipe["data"]["extra"]] == [("parallel", ["src", "tgt"])]
    assert (new / "tokenizer.json").read_bytes() == (run / "tokenizer.json").read_bytes()
    assert [len(list(read_lines(new / "added" / f"{name}.source"))) for name in ("train", "dev")] == [360, 40]
    rows = {line.split("  ")[0].strip(): line.split()[-5:] for line in done.out.splitlines() if " sentences  " in line}
    lines, bleu_before, bleu_after, *_ = rows["new sentences"]
    assert lines == "40"
    assert float(bleu_after) > float(bleu_before)
    assert json.loads((new / "test" / "scores.json").read_text())["lines"] == 100
    assert "has learned from" not in done.out
    again = command("train", "runs/phrases-2", "--add", "new.tsv", "--minutes", "0.05")
    assert again.code == 0, again.errors
    assert (run.with_name("phrases-3") / "test" / "scores.json").exists()


def test_a_child_begins_with_the_weights_of_its_parent(command: Command, run: Path) -> None:
    """Languages by their codes, and a new one as the one in whose place it is."""
    done = command(
        *("train", "--src", "train.0", "--tgt", "train.1", "--from", "runs/phrases", "--minutes", "0.1", "name=child"),
        *("languages=[xx,tgt]", "max_updates=1", "peak=1e-9"),
    )
    assert done.code == 0, done.errors
    assert re.search(r"runs/phrases has learned from \d+ of \d+ sentences of the test set", done.out)
    parent, child = (Translator.load(run.with_name(name)).model.state_dict() for name in ("phrases", "child"))
    assert parent.keys() == child.keys()
    for name, weight in parent.items():
        torch.testing.assert_close(child[name], weight, atol=1e-5, rtol=1e-4)


def test_a_child_may_be_larger_and_write_what_its_parent_could_not(command: Command, run: Path) -> None:
    """It knows what the parent said, with pieces for a script that this had not."""
    known = list(read_lines(run.parents[1] / "train.1"))[:300]
    write_lines(run.parents[1] / "new.ru", [f"дом {line}" for line in known])
    sources = list(read_lines(run.parents[1] / "train.0"))[:300]
    write_lines(run.parents[1] / "old.en", sources)
    asked = ("--src", "old.en", "--tgt", "new.ru", "--from", "runs/phrases", "languages=[src,tgt]", "name=child")
    size = ("dim=80", "decoder_layers=3", "max_updates=1", "peak=1e-9", "length_penalty=0.6")
    done = command("train", *asked, *size, "--minutes", "0.1")
    assert done.code == 0, done.errors
    parent, child = (Translator.load(run.with_name(name)) for name in ("phrases", "child"))
    config = child.model.config
    assert (config.dim, config.heads, config.decoder_layers, config.position_dim) == (80, 5, 3, 64)
    said = zip(child.translate(sources[:20]), parent.translate(sources[:20]), strict=True)
    assert sum(ours == theirs for ours, theirs in said) > 15  # a new piece may be said in place of another
    vocabulary = json.loads((run.with_name("child") / "tokenizer.json").read_text())["model"]["vocab"]
    pieces = child.model.embedding.weight
    letters = pieces[[vocabulary["<0xD0>"], vocabulary["<0xB4>"]]].mean(0)
    torch.testing.assert_close(pieces[vocabulary["д"]], letters, atol=1e-5, rtol=1e-4)
    sayable, before = (
        set(translator.model.target_vocabulary(translator.model.directions[0]).tolist())
        for translator in (child, parent)
    )
    assert vocabulary["▁дом"] in sayable
    assert sayable > before
    assert command("train", "runs/child", "--resume").code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("runs/phrases", "--add", "new.en", "none.gl"), "none.gl"),
        (("runs/phrases", "--add", "new.en", "new.gl", "new.tsv"), "two text files, or one translation memory"),
        (("runs/phrases", "--add", "new.en"), "the format cannot be told by its name"),
        (("new.en", "--add", "new.gl"), "--add belongs to the folder of a run"),
        (("runs/phrases", "--add", "empty.0", "empty.1"), "no pair of sentences to learn from"),
        (("--src", "new.en", "--tgt", "new.gl", "--from", "new.en"), "is not a run folder"),
        (
            ("--src", "new.en", "--tgt", "new.gl", "--from", "runs/phrases", "dim=32"),
            "dim=64, and cannot go on with dim=32",
        ),
        (("--src", "new.en", "--tgt", "new.gl", "--from", "runs/phrases", "dim=72"), "dim a multiple of 16"),
        (("--src", "new.en", "--tgt", "new.gl", "--from", "runs/phrases", "norm=rms"), "has norm=layer"),
        (("--src", "new.en", "--tgt", "new.gl", "--from", "runs/phrases", "keep=true"), "has keep=False"),
        (("--src", "new.en", "--tgt", "new.gl", "--from", "runs/phrases", "scheme=words"), "bring it to the same form"),
        (("recipe.yaml", "--from", "runs/phrases"), "belong to --src and --tgt"),
    ],
)
def test_what_cannot_be_added_is_said_in_one_sentence(
    command: Command, run: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    for side in (0, 1):
        write_lines(run.parents[1] / f"empty.{side}", ["", ""])
    done = command("train", *arguments)
    assert done.code == 2
    assert sentence in done.errors
    assert len(done.errors.strip().splitlines()) == 1
    assert [path.name for path in run.parent.iterdir() if (path / "recipe.yaml").exists()] == ["phrases"]
