"""Text in the target language alone becomes pairs: a model of the opposite direction translates it back.

RUN/backwards/  that model, a run of its own, and in text/ what it learned: one's own pairs without dev and test
RUN/synthetic/  1.source  1.target  1-dropped.tsv: of the first text in one language, and so on; the source comes last
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from qknorm import processes
from qknorm.data.conventions import Convention
from qknorm.data.prepared import Prepared
from qknorm.data.splits import SPLITS
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.decoding.synthesis import KEPT, Synthetic, synthesize, write
from qknorm.decoding.translator import Translator
from qknorm.errors import InputError
from qknorm.runs.recipe import BorrowedRecipe, Recipe, checked, laid_over_plan, merged
from qknorm.runs.translator_run import TranslatorRun
from qknorm.screen import Screen, duration
from qknorm.training import planner
from qknorm.training.doubts import is_in_other_language, is_in_unknown_language
from qknorm.training.sets import prepared_text

_FEWEST_WORDS, _MOST_WORDS = 3, 80  # of a sentence that is worth translating back
_FOLDER, _TEXT, _SYNTHETIC = "backwards", "text", "synthetic"

Train = Callable[[Recipe, Path, Screen, bool], None]


def with_back_translations(recipe: Recipe, folder: Path, console: Screen, train: Train) -> Recipe:
    """The recipe with each text in one language translated back, and the minutes that are left.

    What an interrupted call has done is found again. `train` trains the model of the opposite direction.
    """
    alone = [extra for extra in recipe.data.extra if extra.source is None]
    if not alone:
        return recipe
    if recipe.minutes is None or recipe.data.pairs:
        raise InputError(
            f"{alone[0].target} is text in one language, which a plan for one language pair translates back: give it "
            "minutes and no data.pairs, or its back-translation as source"
        )
    minutes = planner.minutes_backwards(recipe.minutes)
    run = TranslatorRun(folder / _FOLDER)
    began = time.monotonic()
    if not run.tests():
        console.print(f"First a model of the opposite direction, to translate text back: {duration(minutes * 60)}.")
        backwards = processes.from_first(lambda: _backwards(recipe, minutes, run.folder, console))
        try:
            train(backwards, run.folder, console, run.is_begun)
        except KeyboardInterrupt:
            console.print("Or give the same command again: what is done is found, and the rest is done.")
            raise
    made = processes.from_first(lambda: _translated_back(recipe, run, console))
    spent = max((time.monotonic() - began) / 60, minutes)
    return recipe.model_copy(
        update={"data": recipe.data.model_copy(update={"extra": made}), "minutes": max(recipe.minutes - spent, 1.0)}
    )


def _backwards(recipe: Recipe, minutes: float, folder: Path, console: Screen) -> Recipe:
    """The recipe of the opposite direction: the same sets, the other way round."""
    given = recipe.model_dump(exclude_unset=True, exclude={"minutes"})
    parallel = [extra for extra in recipe.data.extra if extra.source is not None]
    known = recipe.data.model_copy(update={"extra": tuple(parallel), "both_ways": False})
    plan = laid_over_plan(planner.START, merged(given, {"data": known.model_dump()}), "the planned recipe")
    prepared = prepared_text(plan.data, None if "merges" in given["data"] else planner.merges_for)
    for extra in recipe.data.extra:
        if extra.source is None:
            _check(Path(extra.target), prepared, console)
    source, target = recipe.data.languages
    files = _written(prepared, folder / _TEXT)
    turned = {**files, "languages": (target, source), "extra": [_turned(extra).model_dump() for extra in parallel]}
    data = given["data"] | turned | {"both_ways": False}
    content = {**given, "name": _FOLDER, "minutes": minutes, "data": data, "parent": None}
    return checked(Recipe, content, "the recipe of the opposite direction")


def _written(prepared: Prepared, folder: Path) -> dict[str, object]:
    """One's own sets as files; as keys of a recipe, turned round."""
    folder.mkdir(parents=True, exist_ok=True)
    (direction,) = prepared.directions
    files: dict[str, tuple[str, str]] = {}
    for name, pairs in zip(SPLITS, (direction.train, direction.dev, direction.test), strict=True):
        source, target = (folder / f"{name}.{side}" for side in ("source", "target"))
        write_lines(source, pairs.targets)
        write_lines(target, pairs.sources)
        files[name] = str(source), str(target)
    return {"source": files["train"][0], "target": files["train"][1], "dev": files["dev"], "test": files["test"]}


def _check(file: Path, prepared: Prepared, console: Screen) -> None:
    """An InputError about a text that would be no use, before any time is spent; or a doubt."""
    train, code = prepared.directions[0].train, prepared.directions[0].files.languages[1]
    lines = _worth_translating(file, Convention.of(train.targets), code)
    if is_in_other_language(lines, train.targets, train.sources):
        raise InputError(f"{file} is in the language that is translated from; text in the other one is wanted")
    if is_in_unknown_language(lines, train.targets):
        console.print(f"warning: {file} has hardly a word of your text in {code}: is it in that language?")


def _turned(extra: BorrowedRecipe) -> BorrowedRecipe:
    return extra.turned().model_copy(update={"tag": ""})


def _translated_back(recipe: Recipe, run: TranslatorRun, console: Screen) -> tuple[BorrowedRecipe, ...]:
    """All that is borrowed, with sources. The minutes for translating are shared among the texts."""
    assert recipe.minutes is not None
    folder = run.folder.parent / _SYNTHETIC
    folder.mkdir(exist_ok=True)
    alone = [extra for extra in recipe.data.extra if extra.source is None]
    seconds = planner.seconds_to_translate_back(recipe.minutes) / len(alone)
    translator: Translator | None = None
    made: list[BorrowedRecipe] = []
    for extra in recipe.data.extra:
        if extra.source is None:
            number = 1 + alone.index(extra)
            source, target = folder / f"{number}.source", folder / f"{number}.target"
            if not source.exists():
                translator = translator or Translator.load(run.folder, precision="int8").greedy()
                _translate_back(Path(extra.target), source, target, translator, seconds, console)
            if not source.stat().st_size:
                continue
            extra = extra.model_copy(update={"source": str(source), "target": str(target)})
        made.append(extra)
    return tuple(made)


def _translate_back(
    file: Path, source: Path, target: Path, translator: Translator, seconds: float, console: Screen
) -> None:
    """As many sentences as there is time for, drawn at random; and what nobody should learn from, with its reason."""
    usual = Convention.of(read_lines(target.parents[1] / _FOLDER / _TEXT / "train.source"))
    lines = _worth_translating(file, usual, translator.source)
    columns = (TextColumn("translating back"), BarColumn(), TimeRemainingColumn())
    hidden = not console.is_terminal or console.quiet
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        made = progress.track(_within(seconds, translator, lines), len(lines))
        counts = write(made, lines=target, translations=source, dropped=source.with_name(f"{source.stem}-dropped.tsv"))
    console.print(f"{counts[KEPT]:,} of {len(lines):,} sentences of {file} were translated back: {source}")
    if not counts[KEPT]:
        console.print("warning: the model of the opposite direction is too weak for it: nothing of it is learned from")


def _within(seconds: float, translator: Translator, lines: Collection[str]) -> Iterator[Synthetic]:
    began = time.monotonic()
    for made in synthesize(translator, lines):
        yield made
        if time.monotonic() - began > seconds:
            return


def _worth_translating(file: Path, usual: Convention, language: str) -> list[str]:
    """Different sentences of a usual length, written as one's own, in an order by chance that is always the same."""
    written = usual.of_others(read_lines(file), Convention.of(read_lines(file)), language)
    lines = dict.fromkeys(" ".join(line.split()) for line in written)
    chosen = [line for line in lines if _FEWEST_WORDS <= len(line.split()) <= _MOST_WORDS]
    if not chosen:
        raise InputError(f"{file} has no sentence of {_FEWEST_WORDS} to {_MOST_WORDS} words to translate back")
    random.Random(str(len(chosen))).shuffle(chosen)
    return chosen
