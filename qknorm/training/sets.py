"""The sentences of a run: what is learned, and the dev and test sets that are held out of it."""

from __future__ import annotations

import contextlib
import hashlib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qknorm.cache import cache_folder
from qknorm.data import corpora
from qknorm.data.cleaning import Rules, normalized
from qknorm.data.importers import Pair, read_aligned
from qknorm.data.prepared import DROPPED, TOKENIZER, ParallelFiles, Prepared, prepare
from qknorm.data.splits import Files, Origin, split_off
from qknorm.errors import InputError
from qknorm.runs.contents import DirectionParts, ModelParts
from qknorm.runs.recipe import DataRecipe, DirectionRecipe, Recipe

_NUMBERS = "train.lines"  # in the folder of splits: which lines of somebody's own text are learned from


@dataclass(frozen=True)
class Sets:
    """The sentences of a language pair: where the training text lies, and what is held out of it."""

    languages: tuple[str, str]
    train: ParallelFiles
    dev: list[Pair]
    test: list[Pair]

    @property
    def name(self) -> str:
        return "-".join(self.languages)


def read_sets(recipe: DataRecipe, folder: Path) -> list[Sets]:
    """Those of every language pair; what is missing of dev and test is split off and kept in `folder`."""
    rules = _rules(recipe)
    return [_sets_of(direction, _folder_of(direction, recipe, folder), rules) for direction in recipe.directions]


def forget_splits(recipe: DataRecipe, folder: Path) -> None:
    """Remove what an earlier attempt split off and kept in `folder`; what else lies there stays.

    A text that the recipe reads is never taken for such a split: an InputError names it.
    """
    directions = [(direction, _folder_of(direction, recipe, folder)) for direction in recipe.directions]
    splits = [path for direction, own in directions for path in _split_files(direction, own)]
    given = (files for direction in recipe.directions for files in _given(direction).values())
    own_texts = {path.resolve() for files in given for path in files}
    for path in splits:
        if path.resolve() in own_texts:
            raise InputError(f"{path} would be overwritten by the run {folder.parent}; choose another name=NAME")
    for path in splits:
        path.unlink(missing_ok=True)
    for emptied in (*(own for _, own in directions), folder):
        with contextlib.suppress(OSError):
            emptied.rmdir()


def prepare_sets(sets: Sequence[Sets], recipe: DataRecipe) -> Prepared:
    """Clean, learn the vocabulary and encode; or find what was prepared before."""
    files = [_with_held_out_of_reverse(direction, sets) for direction in sets]
    return prepare(files, recipe.merges, recipe.scheme, _rules(recipe), cache_folder())


def _rules(recipe: DataRecipe) -> Rules:
    return Rules(
        max_ratio=recipe.max_ratio,
        duplicates=not recipe.keep_duplicates,
        copies=not recipe.keep_copies,
        tidy=recipe.tidy,
    )


def _sets_of(direction: DirectionRecipe, folder: Path, rules: Rules) -> Sets:
    """The named corpus, or one's own files; what is missing of dev and test is split off and kept in the folder."""
    origin = None
    if direction.corpus is not None:
        corpus = corpora.get(direction.corpus)
        train, dev, test = (corpus.files(split) for split in corpora.SPLITS)
    else:
        paths = _given(direction)
        if splits := _splits(direction, folder):
            origin = _split(paths, splits, folder, rules)
        train, dev, test = ((paths | splits)[split] for split in corpora.SPLITS)
    held_out = [_without_blanks(files, rules) for files in (dev, test)]
    return Sets(direction.languages, ParallelFiles(*train, (dev, test), origin), *held_out)


def _split(given: dict[str, Files], splits: dict[str, Files], folder: Path, rules: Rules) -> Origin | None:
    """Split off what is missing, unless it was before: None if an earlier version did, which noted nothing of it."""
    origin = Origin(*given["train"], folder / _NUMBERS, folder / DROPPED)
    if all(path.exists() for two in splits.values() for path in two):
        return origin if origin.numbers.exists() else None
    held_out = (pair for name, files in given.items() if name != "train" for pair in read_aligned(*files))
    split_off(origin, splits, rules, held_out)
    return origin


def _without_blanks(files: Files, rules: Rules) -> list[Pair]:
    """The pairs to score by; an InputError if there are none."""
    pairs = [normalized(pair, rules) for pair in read_aligned(*files)]
    whole = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
    if not whole:
        raise InputError(f"{files[0]} and {files[1]} hold no pair of sentences to score a translator by")
    if len(whole) < len(pairs):
        left_out = len(pairs) - len(whole)
        warnings.warn(f"{left_out} of {len(pairs)} pairs of {files[0]} have a blank side: left out", stacklevel=2)
    return whole


def _with_held_out_of_reverse(direction: Sets, sets: Sequence[Sets]) -> ParallelFiles:
    """Where a pair is learned in both directions, what one holds out must not be learned by the other."""
    reverse = [
        (target, source)
        for other in sets
        if other.languages == direction.languages[::-1]
        for source, target in other.train.held_out
    ]
    return replace(direction.train, held_out=(*direction.train.held_out, *reverse))


def _folder_of(direction: DirectionRecipe, recipe: DataRecipe, folder: Path) -> Path:
    """Where the splits of a language pair are: in a folder of its own if there are several pairs."""
    return folder / "-".join(direction.languages) if len(recipe.directions) > 1 else folder


def _given(direction: DirectionRecipe) -> dict[str, Files]:
    """The files that somebody gave, by what they are for."""
    texts = {"train": (direction.source, direction.target), "dev": direction.dev, "test": direction.test}
    return {name: (Path(two[0]), Path(two[1])) for name, two in texts.items() if two and two[0] and two[1]}


def _splits(direction: DirectionRecipe, folder: Path) -> dict[str, Files]:
    """The files that are split off somebody's own: the rest to learn from, and what is missing of dev and test."""
    missing = [name for name in ("dev", "test") if getattr(direction, name) is None]
    if direction.corpus is not None or not missing:
        return {}
    return {name: (folder / f"{name}.source", folder / f"{name}.target") for name in ("train", *missing)}


def _split_files(direction: DirectionRecipe, folder: Path) -> list[Path]:
    """All files that splitting leaves in the folder."""
    splits = _splits(direction, folder)
    return [*(path for two in splits.values() for path in two), folder / _NUMBERS, folder / DROPPED] if splits else []


def parts_of(recipe: Recipe, sets: Sequence[Sets], prepared: Prepared) -> ModelParts:
    """What a model of this text is made of besides its weights."""
    model = recipe.model
    length = max(prepared.length(model.scale_percentile), 2.0)
    scale_init = model.qk_norm.first_scale(length, model.dim // model.heads)
    directions = [_direction_parts(direction, sets, recipe, prepared) for direction in sets]
    return ModelParts(
        scale_init=scale_init,
        vocabulary=vocabulary_digest(prepared),
        corpus=prepared.folder.name,
        directions=directions,
    )


def vocabulary_digest(prepared: Prepared) -> str:
    """Which vocabulary a text was prepared with."""
    return hashlib.sha256((prepared.folder / TOKENIZER).read_bytes()).hexdigest()


def _direction_parts(direction: Sets, sets: Sequence[Sets], recipe: Recipe, prepared: Prepared) -> DirectionParts:
    """The target vocabulary of a direction has the pieces of its target language, in whichever direction they occur."""
    alike = [number for number, other in enumerate(sets) if other.languages[1] == direction.languages[1]]
    pieces = prepared.target_pieces(recipe.data.bpe_dropout > 0, alike)
    source, target = direction.languages
    return DirectionParts(source=source, target=target, target_pieces=pieces.nonzero().flatten().tolist())
