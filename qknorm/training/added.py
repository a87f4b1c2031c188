"""More sentences for a run that has ended: another run goes on from it, with the old text replayed beside the new.

RUN-2/added/  train.source  train.target  dev.source  dev.target: the new pairs, some of them to see what they brought
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from qknorm import processes
from qknorm.data.importers import Pair, read_aligned, read_memory
from qknorm.data.textfiles import read_lines, write_lines
from qknorm.decoding.translator import Translator
from qknorm.errors import InputError
from qknorm.metrics.table import METRICS
from qknorm.runs.recipe import BorrowedRecipe, make_recipe
from qknorm.runs.run import folder_of
from qknorm.runs.translator_run import TranslatorRun
from qknorm.runs.writer import only_writer
from qknorm.screen import Screen
from qknorm.training import planner
from qknorm.training.sets import prepared_text
from qknorm.training.translation import train

_HELD_OUT_EVERY, _MOST_HELD_OUT = 10, 200  # pairs of the new text, to see what they brought
_FEWEST_TO_HOLD_OUT = 50  # pairs below which all are learned from


def add(
    run: TranslatorRun, files: Sequence[Path], settings: Sequence[str], minutes: float | None, console: Screen
) -> None:
    """Train another run beside this one, which goes on from it with more text."""
    recipe = run.recipe
    if recipe.data.pairs:
        raise InputError(f"{run.folder} translates several language pairs; more text can be added to a run of one only")
    if not run.tests():
        raise InputError(f"{run.folder} has not ended yet, so nothing can be added to it; let it end first")
    pairs = read_added(files, recipe.data.languages)
    share = len(pairs) / run.corpus.pairs[0].kept
    if minutes is None:
        minutes = planner.minutes_to_add(run.metrics()[-1].seconds / 60, share)
    name = _free_name(run.folder.resolve())
    content = {
        "name": name,
        "parent": str(run.folder),
        "minutes": minutes,
        "data": recipe.data.model_dump(),
        "model": recipe.model.model_dump(include={"dim", "feed_forward", "encoder_layers", "decoder_layers"}),
        "training": {"seed": recipe.training.seed},
        "decoding": recipe.decoding.model_dump(),
    }
    given = make_recipe(content, settings, f"what goes on from {run.folder}")
    folder = folder_of(given.name, run.folder.parent if run.folder.name else run.folder.resolve().parent)
    texts = {name: folder / "added" / name for name in ("train", "dev")}
    source, target = _sides(texts["train"])
    extra = BorrowedRecipe(
        kind="parallel",
        source=str(source),
        target=str(target),
        languages=recipe.data.languages,
        weight=planner.weight_of_added(share),
    )
    with only_writer(folder) if processes.rank() == 0 else contextlib.nullcontext():
        processes.from_first(lambda: _write(pairs, texts))
        data = given.data.model_copy(update={"extra": (*given.data.extra, extra)})
        train(given.model_copy(update={"data": data}), folder, console, resume=False)
    if processes.rank() == 0:
        _compare(run, TranslatorRun(folder), texts["dev"], console)


def _free_name(folder: Path) -> str:
    """Of the next folder beside it: mine-2, mine-3 and so on."""
    stem, _, number = folder.name.rpartition("-")
    stem, first = (stem, int(number) + 1) if stem and number.isdigit() else (folder.name, 2)
    names = (f"{stem}-{count}" for count in itertools.count(first))
    return next(name for name in names if not folder.with_name(name).exists())


def read_added(files: Sequence[Path], languages: tuple[str, str]) -> list[Pair]:
    """The pairs of two text files, or of a translation memory."""
    if len(files) > 2:
        raise InputError("--add takes two text files, or one translation memory")
    pairs = list(read_aligned(*files) if len(files) == 2 else read_memory(files[0], *languages))
    if not any(pair.source.strip() and pair.target.strip() for pair in pairs):
        raise InputError(f"{files[0]} holds no pair of sentences to learn from")
    return pairs


def _write(pairs: Sequence[Pair], texts: dict[str, Path]) -> None:
    """The new pairs as files, some of them to see what they brought."""
    whole = [pair for pair in dict.fromkeys(pairs) if pair.source.strip() and pair.target.strip()]
    every = max(_HELD_OUT_EVERY, len(whole) // _MOST_HELD_OUT) if len(whole) >= _FEWEST_TO_HOLD_OUT else len(whole) + 1
    held_out = whole[every - 1 :: every]
    texts["train"].parent.mkdir(parents=True, exist_ok=True)
    for text, chosen in ((texts["train"], [pair for pair in whole if pair not in held_out]), (texts["dev"], held_out)):
        for path, lines in zip(_sides(text), zip(*chosen, strict=True) if chosen else ((), ()), strict=True):
            write_lines(path, lines)


def _sides(text: Path) -> tuple[Path, Path]:
    return text.with_suffix(".source"), text.with_suffix(".target")


def _compare(before: TranslatorRun, after: TranslatorRun, new: Path, console: Screen) -> None:
    """What both make of the dev set of old, and of new sentences that nobody learned from."""
    recipe = after.recipe
    old, *_ = prepared_text(recipe.data, vocabulary=after.taken_vocabulary).directions
    sets = {"old sentences": (old.dev.sources, old.dev.targets)}
    source, target = _sides(new)
    if source.stat().st_size:
        sets["new sentences"] = list(read_lines(source)), list(read_lines(target))
    table = Table(
        "dev", "lines", *(f"{name} {when}" for name in ("BLEU", "chrF") for when in ("before", "after")), box=None
    )
    translators = [Translator.load(run.folder, old.files.name).greedy() for run in (before, after)]
    for name, (sources, references) in sets.items():
        made = [translator.translate(sources) for translator in translators]
        scores = [
            METRICS[metric].score(lines, references, recipe.data.scheme == "words")
            for metric in ("bleu", "chrf")
            for lines in made
        ]
        table.add_row(name, f"{len(sources):,}", *(f"{score:.1f}" for score in scores))
    console.print(table)
    console.print(f"{before.folder} is as it was; {after.folder} has learned the new sentences.")
