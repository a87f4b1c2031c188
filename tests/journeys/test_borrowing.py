"""Text that is borrowed: related languages, other kinds of text, and text in one language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from qknorm import Translator
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.decoding import synthesis
from qknorm.runs.recipe import Recipe
from qknorm.runs.translator_run import TranslatorRun
from qknorm.training import planner, translation
from qknorm.training.backwards import with_back_translations
from tests.journeys.conftest import Command
from tests.journeys.test_planning import TINY

OWN = ("--src", "train.en", "--tgt", "train.gl")


@pytest.fixture(autouse=True)
def _ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "MOST_PASSES", 2)


@pytest.fixture
def related(workplace: Path) -> tuple[str, str]:
    """The same phrases with other endings, as a language that nobody speaks."""
    lines = [f"{line} {number}" for number, line in enumerate(read_lines(workplace / "train.en"))]
    write_lines(workplace / "xx.txt", [line.replace("e ", "a ") for line in lines])
    write_lines(workplace / "more.gl", [line.upper() for line in lines])
    return "xx.txt", "more.gl"


def test_a_related_text_is_learned_beside_ones_own(command: Command, workplace: Path, related: tuple[str, str]) -> None:
    done = command("train", *OWN, "--related", *related, "--also", *related, "--minutes", "1", *TINY)
    assert done.code == 0, done.errors
    lines = len(list(read_lines(workplace / "more.gl")))
    assert f"borrowed, xx-gl: {lines:,} of {lines:,} pairs of xx.txt" in done.out
    run = workplace / "runs" / "train"
    extra = yaml.safe_load((run / "recipe.yaml").read_text())["data"]["extra"]
    assert [text["kind"] for text in extra] == ["related", "parallel"]
    assert [text["languages"] for text in extra] == [["xx", "gl"], ["en", "gl"]]
    assert sorted(path.name for path in run.glob("dropped*")) == [
        *("dropped-extra-1.tsv", "dropped-extra-2.tsv", "dropped.tsv"),
    ]
    translator = Translator.load(run)
    assert (translator.source, translator.target) == ("en", "gl")
    assert [direction.name for direction in translator.directions] == ["en-gl", "xx-gl"]
    assert (run / "test" / "scores.json").exists()
    assert command("train", "runs/train", "--resume").code == 0
    assert command("report", "runs", "-o", "report.html").code == 0


def test_several_related_texts_and_lists_of_words_are_learned_at_once(
    command: Command, workplace: Path, related: tuple[str, str]
) -> None:
    """A word may have two translations, and a name is its own; a table is taken apart in the folder of the run."""
    write_lines(workplace / "words.csv", ["gl,en", "pan,bread", "bolecho,bread", "Galicia,Galicia", "casa,"])
    lines = list(read_lines(workplace / "xx.txt"))
    write_lines(workplace / "yy_zz.txt", [line.swapcase() for line in lines])
    second = ("--related=yy_zz.txt", related[1], "--related", "yy_zz.txt", related[1], "--words", "words.csv")
    asked = ("train", *OWN, "--related", *related, *second, "--minutes", "1", *TINY)
    done = command(*asked)
    assert done.code == 0, done.errors
    run = workplace / "runs" / "train"
    names = [direction.name for direction in Translator.load(run).directions]
    assert names == ["en-gl", "xx-gl", "related2-gl", "related3-gl", "en+words-gl"]
    assert "borrowed, en+words-gl: 3 of 4 pairs" in done.out
    assert list(read_lines(run / "words" / "4.source")) == ["bread", "bread", "Galicia", ""]
    assert list(read_lines(run / "words" / "4.target")) == ["pan", "bolecho", "Galicia", "casa"]
    assert "4.target has hardly a word" not in done.out, "new words are what a list is for"
    assert command(*asked, "--resume").code == 0


def test_text_in_one_language_is_translated_back_and_what_was_done_is_found_again(
    command: Command, workplace: Path, related: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis, "_reason_to_drop", lambda *_: None)

    def interrupted(recipe: Recipe, *rest: Any) -> Recipe:
        finished = with_back_translations(recipe, *rest)
        if finished is not recipe:
            raise KeyboardInterrupt
        return finished

    write_lines(workplace / "mono.gl", [f"{line} tamén" for line in read_lines(workplace / "train.gl")])
    asked = (
        "train",
        *OWN,
        "--mono-target",
        "mono.gl",
        "--related",
        *related,
        "--minutes",
        "1",
        *TINY,
        "max_ratio=null",
    )
    with monkeypatch.context() as patch:
        patch.setattr(translation, "with_back_translations", interrupted)
        assert command(*asked).code == 130
    run = workplace / "runs" / "train"
    backwards = Translator.load(run / "backwards")
    assert (backwards.source, backwards.target) == ("gl", "en")
    held_out = {line for name in ("dev", "test") for line in read_lines(run / "backwards" / "text" / f"{name}.source")}
    assert held_out.isdisjoint(read_lines(run / "backwards" / "text" / "train.source"))
    made = list(read_lines(run / "synthetic" / "1.source"))
    assert set(read_lines(run / "synthetic" / "1.target")) <= set(read_lines(workplace / "mono.gl"))

    done = command(*asked)
    assert done.code == 0, done.errors
    assert "a model of the opposite direction" not in done.out
    assert list(read_lines(run / "synthetic" / "1.source")) == made
    assert [direction.name for direction in Translator.load(run).directions] == ["en-gl", "xx-gl", "en+back-gl"]
    assert set(read_lines(run / "test" / "references.txt")) <= held_out
    settled = command(*asked, "--resume")
    assert settled.code == 0, settled.errors
    assert json.loads((run / "test" / "scores.json").read_text())["lines"] > 0


def test_both_ways_are_trained_translated_and_added_to(
    command: Command, workplace: Path, related: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside text in one language, which the separate model of the opposite direction translates back."""
    monkeypatch.setattr(synthesis, "_reason_to_drop", lambda *_: None)
    write_lines(workplace / "mono.gl", [f"{line} tamén" for line in read_lines(workplace / "train.gl")])
    borrowed = ("--related", *related, "--mono-target", "mono.gl")
    done = command("train", *OWN, "--both-ways", *borrowed, "--minutes", "1", *TINY, "max_ratio=null")
    assert done.code == 0, done.errors
    assert "600 pairs read: " in done.out
    assert " to learn from, both ways; " in done.out
    run = workplace / "runs" / "train"
    assert "qknorm translate runs/train --pair en-gl FILE" in done.out
    directions = [direction.name for direction in Translator.load(run, "gl-en").directions]
    assert directions == ["en-gl", "gl-en", "xx-gl", "en+back-gl", "gl-xx"]
    for pair in ("en-gl", "gl-en"):
        assert (run / "test" / pair / "scores.json").exists()
        assert command("translate", str(run), str(run / "test" / pair / "source.txt"), "--pair", pair).code == 0
    assert command("report", "runs", "-o", "report.html").code == 0
    more = command("train", "runs/train", "--add", "mono.gl", "train.gl", "--minutes", "0.05")
    assert more.code == 0, more.errors
    assert TranslatorRun(run.with_name("train-2")).recipe.data.both_ways


@pytest.mark.usefixtures("workplace")
def test_files_that_are_swapped_are_told_of(command: Command, related: tuple[str, str]) -> None:
    done = command("train", *OWN, "--also", "train.gl", "train.en", "--related", *related, "--minutes", "1", *TINY)
    assert done.code == 0, done.errors
    assert "warning: train.gl has mostly words of gl: are the borrowed files swapped?" in done.out
    assert "warning: xx.txt" not in done.out


def test_what_a_weak_model_translates_back_is_not_learned_from(
    command: Command, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis, "_reason_to_drop", lambda *_: "repeats itself")
    done = command("train", *OWN, "--mono-target", "train.gl", "--minutes", "1", *TINY)
    assert done.code == 0, done.errors
    assert "too weak for it: nothing of it is learned from" in done.out
    assert [direction.name for direction in Translator.load(workplace / "runs" / "train").directions] == ["en-gl"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("recipe.yaml", "--mono-target", "train.gl"), "belong to --src and --tgt; a recipe has data.extra"),
        (("recipe.yaml", "--words", "train.gl"), "belong to --src and --tgt; a recipe has data.extra"),
        ((*OWN, "--words", "empty.txt"), "empty.txt holds no term"),
        ((*OWN, "--related", "none.txt", "train.gl"), "none.txt"),
        ((*OWN, "--related", "short.txt", "train.gl"), "short.txt"),
        (
            (*OWN, "--related", "train.gl", "other.xx"),
            ": gl and xx, neither of which is on this side of your own pairs",
        ),
        ((*OWN, "--mono-target", "short.txt"), "no sentence of 3 to 80 words to translate back"),
        ((*OWN, "--mono-target", "train.en"), "train.en is in the language that is translated from"),
        ((*OWN, "extra=[{kind: target, target: train.gl, languages: [en, gl]}]", "minutes=null"), "give it minutes"),
        ((*OWN, "extra=[{kind: cousin, target: train.gl, languages: [en, gl]}]"), "kind"),
    ],
)
def test_what_cannot_be_borrowed_is_said_in_one_sentence(
    command: Command, workplace: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    write_lines(workplace / "short.txt", ["one"])
    write_lines(workplace / "empty.txt", [])
    done = command("train", *arguments, *TINY)
    assert done.code == 2
    assert sentence in done.errors
    assert len(done.errors.strip().splitlines()) == 1
    assert not list((workplace / "runs").rglob("recipe.yaml"))


@pytest.mark.usefixtures("workplace")
def test_one_file_where_two_belong_together_is_refused(command: Command) -> None:
    done = command("train", *OWN, "--also", "train.en", "train.gl", "--related", "train.en")
    assert done.code == 2
    assert done.errors == "qknorm: --related and --also take two files each, such as --related pt.txt en.txt\n"


def test_what_is_made_stands_side_by_side_and_the_rest_has_its_reason(command: Command, trained_run: Path) -> None:
    done = command("synthesize", str(trained_run), str(trained_run / "test" / "source.txt"), "-o", "made")
    assert done.code == 0, done.errors
    lines, made = (list(read_lines(Path(f"made.{code}"))) for code in ("src", "tgt"))
    dropped = [row.split("\t") for row in read_lines(Path("made.dropped.tsv"))][1:]
    sources = list(read_lines(trained_run / "test" / "source.txt"))
    assert len(lines) == len(made) == json.loads(Path("made.json").read_text())["lines"]["kept"]
    assert lines == [line for number, line in enumerate(sources, 1) if str(number) not in {row[0] for row in dropped}]
    again = command("synthesize", str(trained_run), str(trained_run / "test" / "source.txt"), "-o", "made")
    assert (again.code, len(again.errors.splitlines())) == (2, 1)
