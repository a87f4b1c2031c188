"""The text of a run, as its recipe has it prepared, and what a model of it is made of."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from qknorm.cache import cache_folder
from qknorm.counting.suspects import suspects
from qknorm.data import corpora
from qknorm.data.cleaning import Rules
from qknorm.data.prepared import DROPPED, TOKENIZER, Merges, ParallelFiles, Prepared, PreparedDirection, prepare
from qknorm.data.splits import SPLITS
from qknorm.errors import InputError
from qknorm.runs.contents import DirectionParts, ModelParts
from qknorm.runs.recipe import BorrowedRecipe, DataRecipe, DirectionRecipe, Recipe
from qknorm.runs.translator_run import TranslatorRun


def prepared_text(
    recipe: DataRecipe,
    merges: Merges | None = None,
    earlier: Path | None = None,
    vocabulary: Path | None = None,
) -> Prepared:
    """The text of a recipe, with other merges than it has if they are given.

    earlier: the folder where a run of an earlier version keeps the sets that were split off its text.
    vocabulary: the file of one that is taken in place of learning it.
    """
    files = [_files_of(direction) for direction in recipe.one_way]
    if earlier is not None:
        files = [_as_split_earlier(pair, earlier / pair.name if len(files) > 1 else earlier) for pair in files]
    files += [_borrowed(extra) for extra in recipe.extra]
    rules = Rules(
        max_ratio=recipe.max_ratio,
        duplicates=not recipe.keep_duplicates,
        copies=not recipe.keep_copies,
        apart=recipe.apart or recipe.both_ways,
        max_suspicion=recipe.max_suspicion,
    )
    prepared = prepare(
        *(files, merges or recipe.merges, recipe.scheme, rules, cache_folder(), recipe.pipeline, vocabulary),
        judge=suspects,
    )
    return _with_opposites(prepared, recipe) if recipe.both_ways else prepared


def _with_opposites(prepared: Prepared, recipe: DataRecipe) -> Prepared:
    """Each text in the opposite direction, too, in the order of the recipe's `directions` and `borrowed`."""
    own = [text.turned(text.files.languages[::-1]) for text in prepared.directions]
    read = zip(recipe.extra, prepared.borrowed, strict=True)
    borrowed = [text.turned(extra.turned().codes) for extra, text in read if extra.has_opposite]
    directions = [*prepared.directions, *own]
    return replace(prepared, directions=directions, borrowed=[*prepared.borrowed, *borrowed])


def _files_of(direction: DirectionRecipe) -> ParallelFiles:
    """The named corpus, or one's own files."""
    if direction.corpus is not None:
        corpus = corpora.get(direction.corpus)
        return ParallelFiles(*corpus.files("train"), corpus.files("dev"), corpus.files("test"), direction.languages)
    assert direction.source is not None
    assert direction.target is not None
    dev, test = (None if two is None else (Path(two[0]), Path(two[1])) for two in (direction.dev, direction.test))
    return ParallelFiles(Path(direction.source), Path(direction.target), dev, test, direction.languages)


def _borrowed(extra: BorrowedRecipe) -> ParallelFiles:
    if extra.source is None:
        raise InputError(
            f"{extra.target} is text in one language, which `qknorm train` with minutes translates back; give its "
            "back-translation as source"
        )
    return ParallelFiles(
        *(Path(extra.source), Path(extra.target)),
        languages=extra.codes,
        is_borrowed=True,
        is_word_list=extra.kind == "words",
    )


def _as_split_earlier(files: ParallelFiles, folder: Path) -> ParallelFiles:
    """The same with the sets that an earlier version has split off them into a folder, if it has."""
    split_off = {name: (folder / f"{name}.source", folder / f"{name}.target") for name in SPLITS}
    train, dev, test = (split_off | files.given).values()
    if not all(path.exists() for two in (train, dev, test) for path in two):
        return files
    noted = tuple(path for path in (folder / "train.lines", folder / DROPPED) if path.exists())
    return ParallelFiles(*train, dev, test, files.languages, noted)


def parts_of(recipe: Recipe, prepared: Prepared) -> ModelParts:
    """What a model of this text is made of besides its weights."""
    model, vocabulary = recipe.model, vocabulary_digest(prepared)
    length = max(prepared.length(model.scale_percentile), 2.0)
    scale_init = model.qk_norm.first_scale(length, model.dim // model.heads)
    said = _said_by_parent(recipe)
    directions = [_direction_parts(text, recipe, prepared, said) for text in prepared.texts]
    return ModelParts(scale_init=scale_init, vocabulary=vocabulary, corpus=prepared.key, directions=directions)


def vocabulary_digest(prepared: Prepared) -> str:
    """Which vocabulary a text was prepared with."""
    return hashlib.sha256((prepared.folder / TOKENIZER).read_bytes()).hexdigest()


def _said_by_parent(recipe: Recipe) -> dict[str, set[int]]:
    """By their codes, what a parent says in its languages: a child does not forget how."""
    said: dict[str, set[int]] = defaultdict(set)
    if recipe.parent is not None:
        for direction in TranslatorRun.open(Path(recipe.parent)).parts.directions:
            said[direction.target].update(direction.target_pieces)
    return said


def _direction_parts(
    direction: PreparedDirection, recipe: Recipe, prepared: Prepared, said: Mapping[str, set[int]]
) -> DirectionParts:
    """The target vocabulary of a direction has the pieces of its target language, in whichever direction they occur."""
    source, target = direction.files.languages
    alike = [row for row, other in enumerate(prepared.texts) if other.files.languages[1] == target]
    pieces = prepared.target_pieces(recipe.data.bpe_dropout > 0, alike).nonzero().flatten().tolist()
    return DirectionParts(
        source=source,
        target=target,
        target_pieces=sorted({*pieces, *said.get(target, ())}),
        is_borrowed=direction.files.is_borrowed,
    )
