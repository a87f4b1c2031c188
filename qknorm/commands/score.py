"""`qknorm score`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from qknorm.errors import InputError
from qknorm.screen import Screen

_WORST_SHOWN = 5


def score(
    hypotheses: Annotated[Path, typer.Argument(help="Translations, one a line.")],
    references: Annotated[Path, typer.Argument(help="The reference translations, line by line.")],
    src: Annotated[Path | None, typer.Option(help="The source: also show the worst translations beside it.")] = None,
    tokenized: Annotated[bool, typer.Option("--tokenized", help="The lines are tokenised text.")] = False,
    language: Annotated[str, typer.Option(help="Code of the target language, for (de)tokenising.")] = "en",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Score translations by BLEU, chrF and TER, with the signature of how they were computed."""
    from qknorm.data.textfiles import read_lines
    from qknorm.evaluation.scores import scores, worst
    from qknorm.evaluation.wording import TOO_SHORT
    from qknorm.metrics.table import is_too_short_for_bleu

    ours, theirs = list(read_lines(hypotheses)), list(read_lines(references))
    values = scores(ours, theirs, tokenized, language).content()
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
        print(json.dumps(values | ({"worst": examples} if examples else {}), indent=1, ensure_ascii=False))
        return
    table = Table("score", "", box=None)
    for name, value in values.items():
        table.add_row(name, f"{value:.2f}" if isinstance(value, float) else str(value))
    console = Screen()
    console.print(table)
    if is_too_short_for_bleu(theirs, tokenized):
        console.print(TOO_SHORT)
    for example in examples:
        text = "\n  {source}\n  → {hypothesis}\n  = {reference}".format(**example)
        console.print(f"line {example['line']}, chrF {example['chrf']:.1f}{text}")
