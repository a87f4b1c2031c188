"""`qknorm synthesize`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from qknorm.commands._outputs import refuse_to_replace
from qknorm.errors import InputError
from qknorm.screen import Screen


def synthesize(
    run: Annotated[Path, typer.Argument(help="The folder of a trained run: a teacher, or of the opposite direction.")],
    file: Annotated[Path, typer.Argument(help="Text in the language that it reads, one sentence a line.")],
    out: Annotated[Path, typer.Option("--output", "-o", help="Write OUT.en and OUT.gl, by the run's languages.")],
    pair: Annotated[str | None, typer.Option(help="Which language pair, such as en-gl, if there are several.")] = None,
    beam_size: Annotated[int, typer.Option(min=1, help="Hypotheses per sentence; 1 is greedy and fast.")] = 1,
    force: Annotated[bool, typer.Option("--force", help="Write over files that are there already.")] = False,
) -> None:
    """Translate text to learn from it: both sides as files. Implausible translations are left out, with the reason."""
    from dataclasses import replace

    from qknorm.data.textfiles import read_lines, replacing
    from qknorm.decoding import synthesis
    from qknorm.decoding.decoders import make_decoder
    from qknorm.decoding.translator import Translator

    if not out.name:
        raise InputError(f"{out} is a folder; give the beginning of the files' names, such as more")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    translator = Translator.load(run, pair)
    lines, translations, dropped, about = (
        out.with_name(f"{out.name}{ending}")
        for ending in (f".{translator.source}", f".{translator.target}", ".dropped.tsv", ".json")
    )
    refuse_to_replace([lines, translations], force)
    settings = replace(translator.settings, beam_size=beam_size)
    translator = translator.with_decoder(make_decoder("beam", settings, 1, beam_size=beam_size))
    console = Screen()
    counts = synthesis.write(synthesis.synthesize(translator, read_lines(file)), lines, translations, dropped)
    came_from = {
        "run": str(run),
        "pair": translator.direction.name,
        "file": str(file),
        "sha256": digest,
        "beam_size": beam_size,
        "lines": dict(counts),
    }
    with replacing(about) as text:
        text.write(json.dumps(came_from, indent=1, ensure_ascii=False).encode())
    table = Table("", "lines", box=None)
    for reason, count in counts.most_common():
        table.add_row(reason if reason == synthesis.KEPT else f"dropped: {reason}", f"{count:,}")
    console.print(table)
    console.print(f"{lines}, {translations}; what was dropped: {dropped}; where it came from: {about}")
