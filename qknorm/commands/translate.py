"""`qknorm translate`: lines in, lines out."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import tee
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.text import Text

from qknorm.errors import InputError
from qknorm.screen import Screen

if TYPE_CHECKING:
    from qknorm.decoding.translator import Explanation, Translation, Translator


def translate(
    run: Annotated[Path, typer.Argument(help="The folder of a trained run.")],
    file: Annotated[
        Path | None, typer.Argument(help="A text file, one sentence a line; without it, standard input is read.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Which language pair, such as en-gl, if there are several.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file, which appears when all is done.")
    ] = None,
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
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Lines read before they are translated; 1 answers each line at once.")
    ] = None,
) -> None:
    """Translate lines. N lines in are N lines out, blank ones included."""
    from qknorm.data.textfiles import decoded_lines, read_lines
    from qknorm.decoding.decoders import make_decoder
    from qknorm.decoding.translator import LINES_AT_ONCE, Translator

    if (pieces or attention or alignment) and not as_json:
        raise InputError("--pieces, --attention and --alignment belong to --json")
    if max_length is not None and min_length > max_length:
        raise InputError(f"--min-length {min_length} is more than --max-length {max_length}")
    if length_penalty is not None and not abs(length_penalty) <= 100:
        raise InputError(f"--length-penalty must be a number from -100 to 100, not {length_penalty:g}")
    if temperature == math.inf:
        raise InputError("--temperature must be a finite number, not inf")

    translator = Translator.load(run, pair)
    settings = replace(translator.settings, min_length=min_length, max_length=max_length)
    options = {
        "beam_size": beam_size,
        "length_penalty": length_penalty,
        "temperature": temperature,
        "top_k": top_k,
        "seed": seed,
    }
    chosen = make_decoder(decoder, settings, n_best or 1, **_given(options))
    translator = translator.with_decoder(chosen)
    if batch_size is None:
        batch_size = 1 if file is None and sys.stdin.isatty() else LINES_AT_ONCE
    lines, sources = tee(read_lines(file) if file else decoded_lines(sys.stdin.buffer, "standard input"))
    results = translator.translations(lines, n_best or 1, batch_size)
    with _writer(output) as out, _watched(file, output) as progress:
        total = sum(1 for _ in read_lines(file)) if file and not progress.disable else None
        numbered = enumerate(progress.track(zip(sources, results, strict=True), total), start=1)
        for number, (source, translations) in numbered:
            if as_json:
                text = _as_json(number, source, translations, translator, pieces, attention, alignment)
            elif n_best is None:
                text = translations[0].text
            else:
                text = "\n".join(f"{number}\t{best.score:.4f}\t{best.text}" for best in translations)
            for note in translations[0].notes:
                print(f"qknorm: line {number}: {note}", file=sys.stderr)
            out.write(text.encode() + b"\n")
            if output is None:
                out.flush()


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def _writer(output: Path | None) -> Iterator[IO[bytes]]:
    from qknorm.data.textfiles import replacing

    if output is None:
        yield sys.stdout.buffer
    else:
        with replacing(output) as file:
            yield file


class _Speed(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.speed or 0:.1f} lines/s")


def _watched(file: Path | None, output: Path | None) -> Progress:
    """A bar on standard error for somebody who waits for a file; nothing where it would stand between translations."""
    waiting = file is not None and sys.stderr.isatty() and (output is not None or not sys.stdout.isatty())
    columns = (BarColumn(), MofNCompleteColumn(), _Speed(), TimeRemainingColumn())
    return Progress(*columns, console=Screen(stderr=True), disable=not waiting)


def _as_json(
    number: int,
    source: str,
    translations: list[Translation],
    translator: Translator,
    pieces: bool,
    attention: bool,
    alignment: bool,
) -> str:
    content: dict[str, Any] = {"line": number, "source": source}
    content["translations"] = [
        {"text": best.text, "score": round(best.score, 6)} | (_pieces(best, translator) if pieces else {})
        for best in translations
    ]
    if attention:
        content["attention"] = [_weights(translator.explain_part(part)) for part in translations[0].parts]
    if alignment:
        content["alignment"] = translator.alignment(translations[0])
    return json.dumps(content, ensure_ascii=False)


def _pieces(translation: Translation, translator: Translator) -> dict[str, Any]:
    targets = [part.target for part in translation.parts]
    return {
        "pieces": [piece for target in targets for piece in translator.spelled(target.pieces)],
        "piece_scores": [round(score, 6) for target in targets for score in target.piece_scores],
    }


def _weights(explanation: Explanation) -> dict[str, Any]:
    maps = explanation.attention._asdict()
    return {
        "source_pieces": explanation.source_pieces,
        "target_pieces": explanation.target_pieces,
        **{name: weights.double().round(decimals=4).tolist() for name, weights in maps.items()},
    }
