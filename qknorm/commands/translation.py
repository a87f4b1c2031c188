"""`qknorm train`, `qknorm score`, `qknorm compare`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from qknorm.errors import InputError
from qknorm.screen import Screen

Method = Literal["bootstrap", "randomization"]

_WORST_SHOWN = 5


def train(
    recipe: Annotated[
        Path | None,
        typer.Argument(help="A recipe (YAML), or the folder of a run that is to go on; or --src and --tgt."),
    ] = None,
    settings: Annotated[list[str] | None, typer.Argument(help="Changes to it: key=value, such as seed=3.")] = None,
    src: Annotated[Path | None, typer.Option(help="Your own text, one sentence a line.")] = None,
    tgt: Annotated[Path | None, typer.Option(help="Its translation, line by line.")] = None,
    minutes: Annotated[
        float | None,
        typer.Option(help="How long it may take: 60 for --src and --tgt; a run that has ended goes on for this long."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where an interrupted run stands.")] = False,
    runs: Annotated[Path, typer.Option(help="Folder of all runs.")] = Path("runs"),
) -> None:
    """Train a translator and score it, or a language model (task: language). Ctrl-C saves; --resume goes on exactly."""
    from qknorm import processes

    with processes.together():
        _train(recipe, settings or [], src, tgt, minutes, resume, runs)


def _train(
    recipe: Path | None,
    settings: list[str],
    src: Path | None,
    tgt: Path | None,
    minutes: float | None,
    resume: bool,
    runs: Path,
) -> None:
    from qknorm import processes
    from qknorm.runs.language_recipe import AnyRecipe, load_any_recipe
    from qknorm.runs.recipe import make_recipe, settings_for_files
    from qknorm.runs.run import Run
    from qknorm.training.planned import prolong
    from qknorm.training.planner import DEFAULT_MINUTES
    from qknorm.training.start import train as train_any

    console = Screen(quiet=processes.rank() > 0)
    if minutes is not None and not minutes > 0:
        raise InputError(f"--minutes must be more than 0, not {minutes:g}")
    if minutes is not None:
        settings = [*settings, f"minutes={minutes}"]
    chosen: AnyRecipe
    if src is not None or tgt is not None:
        if src is None or tgt is None:
            raise InputError("--src and --tgt belong together")
        changes = [*([str(recipe)] if recipe else []), *settings]
        content = settings_for_files(src, tgt) | {"minutes": DEFAULT_MINUTES}
        chosen = make_recipe(content, changes, f"{src} and {tgt}")
        folder = runs / chosen.name
    elif recipe is None:
        raise InputError("what is to be trained? Give a recipe, or --src and --tgt")
    elif recipe.is_dir():
        folder = Run.open(recipe).folder
        if minutes is not None:
            prolong(folder, minutes, console)
            settings, resume = settings[:-1], True
        chosen = load_any_recipe(folder / "recipe.yaml", settings)
    else:
        chosen = load_any_recipe(recipe, settings)
        folder = runs / chosen.name
    train_any(chosen, folder, console, resume)


def score(
    hypotheses: Annotated[Path, typer.Argument(help="Translations, one a line.")],
    references: Annotated[Path, typer.Argument(help="What they should be, line by line.")],
    src: Annotated[Path | None, typer.Option(help="The source: also show the worst translations beside it.")] = None,
    tokenized: Annotated[bool, typer.Option("--tokenized", help="The lines are tokenised text.")] = False,
    language: Annotated[str, typer.Option(help="Code of the target language, for (de)tokenising.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """BLEU, chrF and TER of translations, with the signature of how they were computed."""
    from qknorm.data.textfiles import read_lines
    from qknorm.evaluation.scores import scores, worst

    ours, theirs = list(read_lines(hypotheses)), list(read_lines(references))
    found = scores(ours, theirs, tokenized, language)
    examples: list[dict[str, Any]] = []
    if src is not None:
        sources = list(read_lines(src))
        if len(sources) != len(ours):
            raise InputError(f"{src} has {len(sources):,} lines but there are {len(ours):,} translations")
        examples = [
            {"line": row + 1, "chrf": chrf, "source": sources[row], "hypothesis": ours[row], "reference": theirs[row]}
            for row, chrf in worst(ours, theirs, _WORST_SHOWN)
        ]
    if as_json:
        print(json.dumps(found | ({"worst": examples} if examples else {}), indent=1, ensure_ascii=False))
        return
    table = Table("score", "", box=None)
    for name, value in found.items():
        table.add_row(name, f"{value:.2f}" if isinstance(value, float) else str(value))
    console = Screen()
    console.print(table)
    for example in examples:
        shown = "\n  {source}\n  → {hypothesis}\n  = {reference}".format(**example)
        console.print(f"line {example['line']}, chrF {example['chrf']:.1f}{shown}")


def compare(
    systems: Annotated[
        list[str],
        typer.Argument(
            help="Run folders or files of translations; several seeds of a system as NAME=PATH,PATH. "
            "The first is the baseline."
        ),
    ],
    ref: Annotated[Path | None, typer.Option(help="References; without it, those of the run folders.")] = None,
    tokenized: Annotated[bool, typer.Option("--tokenized", help="BLEU of the tokens as they stand.")] = False,
    method: Annotated[Method, typer.Option(help="How p-values are computed.")] = "bootstrap",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Whether systems differ in BLEU by more than chance."""
    from qknorm.evaluation.significance import compare as compare_systems
    from qknorm.evaluation.systems import read_systems

    given = read_systems(systems, ref, tokenized)
    found = compare_systems(given.runs, given.references, tokenized, method)
    if as_json:
        print(json.dumps([asdict(row) for row in found], indent=1))
        return
    table = Table("system", "BLEU", "95 %", "seeds", "difference", "95 %", "p", box=None)
    for row in found:
        bleu = f"{row.bleu:.2f}" + ("" if row.bleu_sd is None else f" ± {row.bleu_sd:.2f}")
        against = ("", "", "baseline")
        if row.p_value is not None:
            interval = f"{row.difference_low:+.2f} – {row.difference_high:+.2f}"
            against = (f"{row.difference:+.2f}", interval, f"{row.p_value:.4f}")
        table.add_row(row.name, bleu, f"{row.low:.2f} – {row.high:.2f}", str(row.seeds), *against)
    Screen().print(table)
