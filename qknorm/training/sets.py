"""The sentences of a run: what is learned, and the dev and test sets that are held out of it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qknorm.attention.scale import henry_scale
from qknorm.cache import cache_folder
from qknorm.data import corpora
from qknorm.data.cleaning import Rules
from qknorm.data.importers import Pair, read_aligned
from qknorm.data.prepared import PairFiles, Prepared, prepare
from qknorm.data.textfiles import write_lines
from qknorm.errors import InputError
from qknorm.runs.recipe import DataRecipe, PairRecipe, Recipe
from qknorm.runs.run import ModelParts, PairParts

_SPLIT_OFF = 500  # pairs for dev, and as many for test, but at most a tenth of the corpus each

_Files = tuple[Path, Path]


@dataclass(frozen=True)
class Sets:
    """The sentences of a language pair: where the training text lies, and what is held out of it."""

    languages: tuple[str, str]
    train: PairFiles
    dev: list[Pair]
    test: list[Pair]

    @property
    def name(self) -> str:
        return "-".join(self.languages)


def read_sets(recipe: DataRecipe, folder: Path) -> list[Sets]:
    """Those of every language pair; what is missing of dev and test is split off and kept in `folder`."""
    pairs = recipe.all_pairs
    return [_sets_of(pair, folder / "-".join(pair.languages) if len(pairs) > 1 else folder) for pair in pairs]


def prepare_sets(sets: Sequence[Sets], recipe: DataRecipe) -> Prepared:
    """Clean, learn the vocabulary and encode; or find what was prepared before."""
    files = [_with_held_out_of_reverse(one, sets) for one in sets]
    return prepare(files, recipe.merges, recipe.scheme, Rules(), cache_folder())


def _sets_of(pair: PairRecipe, folder: Path) -> Sets:
    """The named corpus, or one's own files; what is missing of dev and test is split off and kept in the folder."""
    if pair.corpus is not None:
        corpus = corpora.get(pair.corpus)
        train, dev, test = (corpus.files(split) for split in corpora.SPLITS)
    else:
        assert pair.source is not None
        assert pair.target is not None
        given = {"dev": pair.dev, "test": pair.test}
        missing = [name for name, files in given.items() if files is None]
        found = {name: (Path(files[0]), Path(files[1])) for name, files in given.items() if files is not None}
        found |= _split_off((Path(pair.source), Path(pair.target)), missing, folder)
        train, dev, test = (found[split] for split in corpora.SPLITS)
    held_out = [
        [pair for pair in read_aligned(*two) if pair.source.strip() and pair.target.strip()] for two in (dev, test)
    ]
    return Sets(pair.languages, PairFiles(*train, held_out=(dev, test)), *held_out)


def _with_held_out_of_reverse(one: Sets, sets: Sequence[Sets]) -> PairFiles:
    """Where a pair is learned in both directions, what one holds out must not be learned by the other."""
    reverse = [
        (target, source)
        for other in sets
        if other.languages == one.languages[::-1]
        for source, target in other.train.held_out
    ]
    return replace(one.train, held_out=(*one.train.held_out, *reverse))


def _split_off(files: _Files, missing: Sequence[str], folder: Path) -> dict[str, _Files]:
    """Every n-th pair to dev, the one after it to test, the rest to train: the same whenever it is done."""
    if not missing:
        return {"train": files}
    splits = {name: (folder / f"{name}.source", folder / f"{name}.target") for name in ("train", *missing)}
    if not all(path.exists() for two in splits.values() for path in two):
        pairs = list(read_aligned(*files))
        if len(pairs) < 30:
            raise InputError(f"{files[0]} has {len(pairs)} lines; at least 30 are needed to learn and to test")
        every = max(10, len(pairs) // _SPLIT_OFF)
        places = {place: name for place, name in enumerate(("dev", "test")) if name in missing}
        for name, two in splits.items():
            chosen = [pair for row, pair in enumerate(pairs) if places.get(row % every, "train") == name]
            for side, path in enumerate(two):
                write_lines(path, (pair[side] for pair in chosen))
    return splits


def parts_of(recipe: Recipe, sets: Sequence[Sets], prepared: Prepared) -> ModelParts:
    """What a model of this text is made of besides its weights."""
    start = recipe.model.scale_init
    if start == "henry":
        scale_init: float | None = henry_scale(max(prepared.length(recipe.model.scale_percentile), 2.0))
    else:
        scale_init = None if start == "comparable" else start
    vocabulary = hashlib.sha256((prepared.folder / "tokenizer.json").read_bytes()).hexdigest()
    pairs = [_pair_parts(one, sets, recipe, prepared) for one in sets]
    return ModelParts(scale_init, vocabulary, prepared.folder.name, pairs)


def _pair_parts(one: Sets, sets: Sequence[Sets], recipe: Recipe, prepared: Prepared) -> PairParts:
    """What a pair may say is what its target language says, in whichever pair."""
    alike = [number for number, other in enumerate(sets) if other.languages[1] == one.languages[1]]
    said = prepared.target_pieces(recipe.data.bpe_dropout > 0, alike)
    return PairParts(*one.languages, said.nonzero().flatten().tolist())
