"""`qknorm train`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from qknorm.commands._minutes import checked_minutes
from qknorm.commands._two_files import two_files
from qknorm.errors import InputError
from qknorm.screen import Screen


def train(
    recipe: Annotated[
        Path | None,
        typer.Argument(help="A recipe (YAML), or the folder of a run to resume; or give --src and --tgt."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Argument(help="Settings that replace those of the recipe: key=value, such as seed=3.")
    ] = None,
    src: Annotated[Path | None, typer.Option(help="Your own text, one sentence a line.")] = None,
    tgt: Annotated[Path | None, typer.Option(help="Its translation, line by line.")] = None,
    related: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE TARGET", help="Translations from or into a related language, to borrow from: pt.txt en.txt."
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE TARGET", help="Translations of another kind or quality than your own, to borrow from."
        ),
    ] = None,
    mono_target: Annotated[
        list[Path] | None, typer.Option(help="Text in the language of --tgt alone, to borrow from.")
    ] = None,
    words: Annotated[
        list[Path] | None,
        typer.Option(help="A table of words or terms and their translations (TSV, CSV), to learn them."),
    ] = None,
    both_ways: Annotated[
        bool, typer.Option("--both-ways", help="Learn the opposite direction, too, in the same model.")
    ] = False,
    parent: Annotated[
        Path | None,
        typer.Option("--from", help="A run to go on from, of any languages: its vocabulary and weights."),
    ] = None,
    more: Annotated[
        list[Path] | None,
        typer.Option(
            "--add",
            metavar="FILES",
            help="New sentences for a run: two text files, or a translation memory (TMX, PO …).",
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            callback=checked_minutes,
            help="How long it may take: 60 for --src and --tgt; a run that has ended goes on for this long.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume an interrupted run where it stopped.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
) -> None:
    """Train a translator and score it, or a language model (task: language). Ctrl-C saves; --resume resumes exactly."""
    from qknorm import processes

    changes = [*(settings or []), *(["data.both_ways=true"] if both_ways else [])]
    with processes.together():
        if more:
            _add(recipe, more, changes, minutes)
        else:
            pairs = [list(map(two_files, given or [])) for given in (related, also)]
            borrowed = _Extra(pairs[0], pairs[1], mono_target or [], words or [])
            _train(recipe, changes, src, tgt, borrowed, parent, minutes, resume, runs)


def _add(folder: Path | None, files: list[Path], settings: list[str], minutes: float | None) -> None:
    """Let another run go on from one with more text; the second of two files stands among the settings."""
    from qknorm import processes
    from qknorm.runs.translator_run import TranslatorRun
    from qknorm.training.added import add

    if folder is None or not folder.is_dir():
        raise InputError("--add belongs to the folder of a run: qknorm train runs/mine --add new.en new.gl")
    files += [Path(text) for text in settings if "=" not in text]
    changes = [text for text in settings if "=" in text]
    add(TranslatorRun.open(folder), files, changes, minutes, Screen(quiet=processes.rank() > 0))


class _Extra(NamedTuple):
    """Text that is borrowed from."""

    related: Sequence[tuple[Path, Path]]
    also: Sequence[tuple[Path, Path]]
    in_target: Sequence[Path]
    words: Sequence[Path]


def _train(
    recipe: Path | None,
    settings: list[str],
    src: Path | None,
    tgt: Path | None,
    borrowed: _Extra,
    parent: Path | None,
    minutes: float | None,
    resume: bool,
    runs: Path,
) -> None:
    from qknorm import processes
    from qknorm.data.importers import is_memory
    from qknorm.runs.any_recipe import load_any_recipe
    from qknorm.runs.recipe import AnyRecipe, extra_for_files, make_recipe, settings_for_files
    from qknorm.runs.run import Run, folder_of
    from qknorm.tasks.table import prolong as prolong_any
    from qknorm.tasks.table import train as train_any
    from qknorm.training.planner import DEFAULT_MINUTES

    console = Screen(quiet=processes.rank() > 0)
    planned = settings if minutes is None else [*settings, f"minutes={minutes}"]
    more: float | None = None
    chosen: AnyRecipe
    if src is not None or tgt is not None:
        if src is None or tgt is None:
            raise InputError("--src and --tgt belong together")
        changes = [*([str(recipe)] if recipe else []), *planned]
        content = settings_for_files(src, tgt, parent) | {"minutes": DEFAULT_MINUTES}
        content["data"]["extra"] = extra_for_files(content["data"].get("languages", ("src", "tgt")), *borrowed)
        chosen = make_recipe(content, changes, f"{src} and {tgt}")
        folder = folder_of(chosen.name, runs)
    elif any(borrowed) or parent is not None:
        raise InputError(
            "--related, --also, --mono-target, --words and --from belong to --src and --tgt; "
            "a recipe has data.extra and parent"
        )
    elif recipe is None:
        raise InputError("what is to be trained? Give a recipe, or --src and --tgt")
    elif recipe.is_dir():
        folder, more = recipe, minutes
        chosen = load_any_recipe(Run.open(folder).recipe_file, settings)
    elif is_memory(recipe) and recipe.exists():
        raise InputError(f"{recipe} holds text, not a recipe; {_how_to_import(recipe)}")
    else:
        if minutes is not None:
            _check_plannable(recipe)
        chosen = load_any_recipe(recipe, planned)
        folder = folder_of(chosen.name, runs)
    if more is None:
        train_any(chosen, folder, console, resume)
    else:
        prolong_any(chosen, folder, console, more)


def _check_plannable(recipe: Path) -> None:
    from qknorm.runs.any_recipe import kind_of
    from qknorm.runs.recipe import read_recipe

    kind = kind_of(read_recipe(recipe), str(recipe))
    if "minutes" not in kind.model_fields:
        raise InputError(f"{kind.product} is not planned by --minutes; its recipe says how long it is trained")


def _how_to_import(memory: Path) -> str:
    """The two commands that train on a translation memory."""
    from qknorm.data.importers import languages_in

    source, target = languages_in(memory)
    name = shlex.quote(memory.name.partition(".")[0] or "mine")
    return (
        f"make two files of it with: qknorm data import {shlex.quote(str(memory))} --source {source} "
        f"--target {target} --out {name}, and train with: qknorm train --src {name}.{source} --tgt {name}.{target}"
    )
