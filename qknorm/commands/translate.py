"""`qknorm translate`: lines in, lines out."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

from qknorm.commands._outputs import refuse_to_replace
from qknorm.errors import InputError
from qknorm.screen import Screen

if TYPE_CHECKING:
    from qknorm.decoding.translator import Explanation, Translation, Translator
    from qknorm.formats.document import Document

    Results = Iterable[list[Translation]]


Precision = Literal["float32", "int8"]


def translate(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="The folder of a trained run, or of several that translate together; after them a text file, one "
            "sentence a line, or nothing: then standard input is read."
        ),
    ],
    pair: Annotated[str | None, typer.Option(help="Which language pair, such as en-gl, if there are several.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file, which appears when all is done.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --output write over a file.")] = False,
    n_best: Annotated[
        int | None,
        typer.Option(min=1, help="Print this many translations of a line: its number, a score and the text, by tabs."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line, with scores.")] = False,
    pieces: Annotated[bool, typer.Option("--pieces", help="With --json: pieces and their log-probabilities.")] = False,
    attention: Annotated[
        bool, typer.Option("--attention", help="With --json: all attention weights of the best translation.")
    ] = False,
    alignment: Annotated[
        bool, typer.Option("--alignment", help="With --json: which word comes from which, of the best translation.")
    ] = False,
    glossary: Annotated[
        Path | None,
        typer.Option(help="Terms and the translations that they must have: a TSV or CSV with two columns."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REGEX", help="What is to be kept as it is, beside placeholders and tags; may be repeated."
        ),
    ] = None,
    beam_size: Annotated[int | None, typer.Option(min=1, help="Hypotheses per sentence; 1 is greedy and fast.")] = None,
    length_penalty: Annotated[float | None, typer.Option(help="A larger penalty prefers longer translations.")] = None,
    min_length: Annotated[int, typer.Option(min=0, help="A translation has at least this many pieces.")] = 0,
    max_length: Annotated[int | None, typer.Option(min=1, help="A translation has at most this many pieces.")] = None,
    decoder: Annotated[
        str,
        typer.Option(help="The decoding method: beam (with --beam-size 1: greedy), or sampling at random."),
    ] = "beam",
    temperature: Annotated[
        float | None,
        typer.Option(help="The temperature of sampling: below 1 draws likelier translations, above 1 odder ones."),
    ] = None,
    top_k: Annotated[int | None, typer.Option(min=1, help="Sample from this many of the likeliest pieces.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="The seed of --decoder sampling: another one gives other translations.")
    ] = None,
    precision: Annotated[
        Precision, typer.Option(help="Of a CPU's matrix products in a beam search: float32, or int8, which is faster.")
    ] = "float32",
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Lines read before they are translated; 1 answers each line at once.")
    ] = None,
) -> None:
    """Translate lines. N lines in are N lines out, blank ones included."""
    from qknorm.data.glossary import read_glossary
    from qknorm.data.textfiles import replacing
    from qknorm.decoding.decoders import make_decoder
    from qknorm.decoding.translator import LINES_AT_ONCE, Translator
    from qknorm.formats.table import open_document

    if (pieces or attention or alignment) and not as_json:
        raise InputError("--pieces, --attention and --alignment belong to --json")
    if max_length is not None and min_length > max_length:
        raise InputError(f"--min-length {min_length} is more than --max-length {max_length}")
    if length_penalty is not None and not abs(length_penalty) <= 100:
        raise InputError(f"--length-penalty must be a number from -100 to 100, not {length_penalty:g}")
    if temperature == math.inf:
        raise InputError("--temperature must be a finite number, not inf")
    if precision != "float32" and decoder != "beam":
        raise InputError(f"--precision {precision} goes with --decoder beam alone")
    refuse_to_replace([output] if output else [], force)
    runs, file = _runs_and_file(runs)
    document = open_document(file)

    translator = Translator.ensemble(*runs, pair=pair, precision=precision)
    if keep or glossary:
        terms = read_glossary(glossary, translator.source, translator.target) if glossary else None
        translator = translator.keeping(keep or (), terms)
    settings = replace(translator.settings, min_length=min_length, max_length=max_length)
    options = {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "temperature": temperature,
        "top_k": top_k,
        "seed": seed,
    }
    given = {name: value for name, value in options.items() if value is not None}
    translator = translator.with_decoder(make_decoder(decoder, settings, n_best or 1, **given))
    if batch_size is None:
        batch_size = 1 if file is None and sys.stdin.isatty() else LINES_AT_ONCE
    if as_json:
        written: Callable[[Results], Iterator[bytes]] = _InJson(translator, pieces, attention, alignment)
    elif n_best is not None:
        written = _in_columns
    else:
        written = partial(_of_document, document)
    with replacing(output) if output else nullcontext(sys.stdout.buffer) as out, _watched(file, output) as progress:
        total = sum(1 for _ in open_document(file).segments) if file and not progress.disable else None
        results = translator.translations(document.segments, n_best or 1, batch_size)
        for text in written(_told(progress.track(results, total))):
            out.write(text)
            if output is None:
                out.flush()


def _runs_and_file(paths: list[Path]) -> tuple[list[Path], Path | None]:
    """The last is a file, unless it is the only one or a run is in it."""
    from qknorm.runs.run import Run

    *runs, last = paths
    return (runs, last) if runs and not Run(last).is_begun else (paths, None)


def _told(results: Results) -> Iterator[list[Translation]]:
    """Say on standard error what there is to note about a line."""
    for number, translations in enumerate(results, start=1):
        for note in translations[0].notes:
            print(f"qknorm: line {number}: {note}", file=sys.stderr)
        yield translations


def _of_document(document: Document, results: Results) -> Iterator[bytes]:
    return document.written(best.text for best, *_ in results)


def _in_columns(results: Results) -> Iterator[bytes]:
    for number, translations in enumerate(results, start=1):
        for translation in translations:
            yield f"{number}\t{translation.score:.4f}\t{translation.text}\n".encode()


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:.1f} lines/s")


def _watched(file: Path | None, output: Path | None) -> Progress:
    """A bar on standard error for somebody who waits for a file; nothing where it would stand between translations."""
    waiting = file is not None and sys.stderr.isatty() and (output is not None or not sys.stdout.isatty())
    columns = (BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
    return Progress(*columns, console=Screen(stderr=True), disable=not waiting)


@dataclass(frozen=True)
class _InJson:
    """An object a line, with what was asked for."""

    translator: Translator
    pieces: bool
    attention: bool
    alignment: bool

    def __call__(self, results: Results) -> Iterator[bytes]:
        for number, (best, *others) in enumerate(results, start=1):
            content: dict[str, Any] = {"line": number, "source": best.source}
            content["translations"] = [self._translation(translation) for translation in (best, *others)]
            if best.notes:
                content["notes"] = best.notes
            if self.attention:
                content["attention"] = [_weights(self.translator.explain_part(part)) for part in best.parts]
            if self.alignment:
                content["alignment"] = self.translator.alignment(best)
            yield json.dumps(content, ensure_ascii=False).encode() + b"\n"

    def _translation(self, translation: Translation) -> dict[str, Any]:
        content: dict[str, Any] = {"text": translation.text, "score": round(translation.score, 6)}
        if (confidence := self.translator.confidence(translation)) is not None:
            content["confidence"] = round(confidence, 4)
        if not self.pieces:
            return content
        spelled, scores = self.translator.spelled, self.translator.piece_scores
        return content | {
            "pieces": [piece for part in translation.parts for piece in spelled(part.target.pieces)],
            "piece_scores": [round(score, 6) for part in translation.parts for score in scores(part)],
        }


def _weights(explanation: Explanation) -> dict[str, Any]:
    maps = explanation.attention._asdict()
    return {
        "source_pieces": explanation.source_pieces,
        "target_pieces": explanation.target_pieces,
        **{name: weights.double().round(decimals=4).tolist() for name, weights in maps.items()},
    }
