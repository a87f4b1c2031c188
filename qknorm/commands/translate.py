"""`qknorm translate`: lines in, lines out."""

from __future__ import annotations

import json
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
    file: Annotated[Path | None, typer.Argument(help="Text, one sentence a line; standard input without it.")] = None,
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
    length_penalty: Annotated[float | None, typer.Option(help="Larger prefers longer translations.")] = None,
    min_length: Annotated[int, typer.Option(min=0, help="Of a translation, in pieces.")] = 0,
    max_length: Annotated[int | None, typer.Option(min=1, help="Of a translation, in pieces.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching for the best.")] = False,
    temperature: Annotated[
        float | None, typer.Option(help="With --sample: below 1 for likelier translations, above 1 for odder ones.")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(min=1, help="With --sample: draw from this many of the likeliest pieces.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="With --sample: another seed, other translations.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Lines read before they are translated; 1 answers each line at once.")
    ] = None,
) -> None:
    """Translate lines. N lines in are N lines out, blank ones included."""
    from qknorm.data.textfiles import decoded_lines, read_lines
    from qknorm.decoding.sampling import SamplingSettings
    from qknorm.decoding.translator import LINES_AT_ONCE, Translator

    drawing = {"temperature": temperature, "top_k": top_k, "seed": seed}
    searching = {"beam_size": beam_size, "length_penalty": length_penalty}
    if (pieces or attention or alignment) and not as_json:
        raise InputError("--pieces, --attention and --alignment belong to --json")
    if not sample and any(value is not None for value in drawing.values()):
        raise InputError("--temperature, --top-k and --seed belong to --sample")
    if sample and any(value is not None for value in searching.values()):
        raise InputError("--beam-size and --length-penalty do not go with --sample: nothing is searched")
    if temperature is not None and not temperature > 0:
        raise InputError(f"--temperature must be above 0, not {temperature:g}; --beam-size 1 takes the likeliest piece")
    if max_length is not None and min_length > max_length:
        raise InputError(f"--min-length {min_length} is more than --max-length {max_length}")
    if beam_size is not None and n_best is not None and beam_size < n_best:
        raise InputError(f"--n-best {n_best} needs a --beam-size of at least {n_best}")

    translator = Translator.load(run, pair)
    settings = replace(translator.settings, min_length=min_length, max_length=max_length, **_given(searching))
    if beam_size is None:
        settings = replace(settings, beam_size=max(settings.beam_size, n_best or 1))
    translator = translator.with_settings(settings, SamplingSettings(**_given(drawing)) if sample else None)
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
                text = "\n".join(f"{number}\t{one.score:.4f}\t{one.text}" for one in translations)
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
    shown: dict[str, Any] = {"line": number, "source": source}
    shown["translations"] = [
        {"text": one.text, "score": round(one.score, 6)} | (_pieces(one, translator) if pieces else {})
        for one in translations
    ]
    if attention:
        shown["attention"] = [_weights(translator.explain_part(part)) for part in translations[0].parts]
    if alignment:
        shown["alignment"] = translator.alignment(translations[0])
    return json.dumps(shown, ensure_ascii=False)


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
