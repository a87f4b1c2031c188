"""What `qknorm compare` is asked to compare: files of translations and run folders, several seeds under one name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from qknorm.data.textfiles import read_lines
from qknorm.errors import InputError
from qknorm.evaluation.scores import detokenized, tokens_of
from qknorm.runs.run import Run
from qknorm.runs.translator_run import TranslatorRun


@dataclass(frozen=True)
class Systems:
    """The lines of each run of each system, and what they should be."""

    runs: dict[str, list[list[str]]]
    references: list[str]


def read_systems(arguments: Sequence[str], reference: Path | None, tokenized: bool) -> Systems:
    """Read `PATH`, or `NAME=PATH,PATH,…` for several seeds of a system; a path is a run folder or a file.

    The runs of a system must be different ones. The references are those of the run folders, which must agree, unless a
    file of them is given. What belongs to a run on tokenised text is detokenised, as for its own scores, unless BLEU is
    to be computed on the tokens; any other file is taken as it stands.
    """
    paths = _named(arguments)
    for name, runs in paths.items():
        _check_different(name, runs)
    everything = [path for runs in paths.values() for path in runs]
    read = _lines if tokenized else _text
    references = read(reference) if reference else _references(everything, read)
    return Systems({name: [read(_hypotheses(path)) for path in runs] for name, runs in paths.items()}, references)


def lines_of_test(run: Path, name: str, as_tokens: bool) -> list[str]:
    """Lines of a run's test set, as tokens or as text, whichever of them the run was trained on."""
    data = TranslatorRun.open(run).recipe.data
    lines, language = _lines(run / "test" / f"{name}.txt"), data.languages[1]
    if (data.scheme == "words") == as_tokens:
        return lines
    if as_tokens:
        return tokens_of(lines, _lines(Run(run).test_set().references), language)
    return detokenized(lines, language)


def _named(arguments: Sequence[str]) -> dict[str, list[Path]]:
    systems: dict[str, list[Path]] = {}
    endings = [Path(argument).name for argument in arguments]
    for argument, ending in zip(arguments, endings, strict=True):
        name, equals, listed = argument.partition("=")
        if Path(argument).exists() or not equals:
            name, listed = (ending if endings.count(ending) == 1 else argument), argument
        if name in systems:
            raise InputError(f"{name} is there twice; several seeds of a system are written {name}=PATH,PATH")
        systems[name] = [Path(argument)] if Path(argument).exists() else [Path(path) for path in listed.split(",")]
    return systems


def _check_different(name: str, paths: Sequence[Path]) -> None:
    """A run that counts as two seeds would make chance look small."""
    files: dict[Path, Path] = {}
    recipes: dict[str, Path] = {}
    for path in paths:
        if (first := files.setdefault(_hypotheses(path).resolve(), path)) is not path:
            raise InputError(f"{name} has the same run twice, as {first} and as {path}; give every seed once")
        run = TranslatorRun(path)
        if not run.is_begun:
            continue
        recipe = run.recipe
        described = recipe.model_copy(update={"name": ""}).model_dump_json()
        if (first := recipes.setdefault(described, path)) is not path:
            raise InputError(
                f"{first} and {path} of {name} have the same recipe and the same seed, {recipe.training.seed}; give "
                "one of them only, or runs with other seeds"
            )


def _hypotheses(path: Path) -> Path:
    if not path.is_dir():
        return path
    file = Run(path).test_set().hypotheses
    if not file.is_file():
        raise InputError(f"{path} holds no {file.relative_to(path)}; it is written when training has ended")
    return file


def _references(paths: Sequence[Path], read: Callable[[Path], list[str]]) -> list[str]:
    """The references of the run folders, all the same."""
    files = [file for path in paths if (file := Run(path).test_set().references).is_file()]
    if not files:
        raise InputError(f"{paths[0]} holds no references; give a file of them, line by line")
    references = read(files[0])
    for file in files[1:]:
        if read(file) != references:
            raise InputError(f"{files[0]} and {file} differ: systems are compared on the same test set")
    return references


def _lines(file: Path) -> list[str]:
    return list(read_lines(file))


def _text(file: Path) -> list[str]:
    """The lines of a file; as text, if it is of the test set of a run."""
    run = TranslatorRun(file.absolute().parent.parent)
    if run.is_begun and file.absolute() in (run.test_set().hypotheses, run.test_set().references):
        return lines_of_test(run.folder, file.stem, as_tokens=False)
    return _lines(file)
