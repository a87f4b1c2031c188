"""`qknorm data`: get a corpus, check one's own, import a translation memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from qknorm.commands._outputs import refuse_to_replace
from qknorm.errors import InputError
from qknorm.screen import Screen

if TYPE_CHECKING:
    from qknorm.counting.books import Bead

Item = TypeVar("Item")

app = typer.Typer(
    help="Get a corpus, check your own, align a book, or import a translation memory.",
    short_help="Get, check, align and import corpora.",
    no_args_is_help=True,
)


@app.command("list")
def list_corpora() -> None:
    """List the corpora that can be had by name."""
    from qknorm.data import corpora

    table = Table("name", "languages", "pairs", "what it is", box=None)
    for info in corpora.known():
        languages = " → ".join(info.languages) if info.languages else "–"
        table.add_row(info.name, languages, f"{info.size:,}", info.description)
    console = Screen()
    console.print(table)
    console.print("\nGet one with: qknorm data get NAME. A smaller training set: NAME:20k.")


@app.command()
def get(
    name: Annotated[str, typer.Argument(help="A name from `qknorm data list`, also with a size: tatoeba-en-es:20k.")],
    from_folder: Annotated[
        Path | None, typer.Option("--from", help="Take it from this folder instead of the network.")
    ] = None,
) -> None:
    """Make a corpus ready in the cache folder, and say where it is."""
    from qknorm.data import corpora

    corpus = corpora.get(name, from_folder=from_folder)
    console = Screen()
    counts = ", ".join(f"{split} {count:,}" for split, count in corpus.counts.items())
    console.print(f"{corpus.info.name}: {counts}")
    console.print(f"Licence: {corpus.info.licence}\nCite: {corpus.info.citation}")
    console.print(f"Folder: {corpus.path}")


@app.command()
def check(
    source: Annotated[Path, typer.Argument(help="Text file, one sentence a line; gzip is fine.")],
    target: Annotated[Path, typer.Argument(help="Its translation, line by line.")],
    out: Annotated[Path, typer.Option(help="Folder for the cleaned files, dropped.tsv and lengths.png.")] = Path(
        "checked"
    ),
    dev: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Dev set, source and target: kept out of training.")
    ] = None,
    test: Annotated[
        tuple[Path, Path] | None, typer.Option(help="Test set, source and target: kept out of training.")
    ] = None,
    max_characters: Annotated[int, typer.Option(min=1, help="Drop a pair with a longer side.")] = 2000,
    max_ratio: Annotated[
        float, typer.Option(min=1, help="Drop a pair if one side is more than this many times as long as the other.")
    ] = 6.0,
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Do not drop repeated pairs.")] = False,
    keep_copies: Annotated[bool, typer.Option("--keep-copies", help="Do not drop source equal to target.")] = False,
    tidy: Annotated[
        bool, typer.Option("--tidy", help="Write text in one way, as plans do: NFC, single ordinary spaces.")
    ] = False,
) -> None:
    """See what is in two aligned files, and clean them. Every dropped line is listed with its reason."""
    from qknorm.data.cleaning import CleaningReport, Rules, clean
    from qknorm.data.importers import read_aligned
    from qknorm.data.pipeline import TextPipeline
    from qknorm.data.textfiles import replacing
    from qknorm.experiments.lengths import draw_lengths

    names = tuple(path.name.removesuffix(".gz") for path in (source, target))
    if names[0] == names[1]:
        raise InputError(f"source and target are both called {names[0]}; give them different names")
    inputs = [path for path in (source, target, *(dev or ()), *(test or ())) if path.exists()]
    for name in (*names, "dropped.tsv", "lengths.png"):
        if names.count(name) + (name in ("dropped.tsv", "lengths.png")) > 1 or any(
            (out / name).exists() and (out / name).samefile(path) for path in inputs
        ):
            raise InputError(f"{out / name} would be written over a file that is read; choose another --out")
    rules = Rules(max_characters, max_ratio, duplicates=not keep_duplicates, copies=not keep_copies)
    held_out = (pair for files in (dev, test) if files for pair in read_aligned(*files))
    if next(read_aligned(source, target), None) is None:
        raise InputError(f"{source} and {target} are empty")
    report, pipeline = CleaningReport(), TextPipeline(["tidy"] if tidy else [])
    pairs = _with_progress(read_aligned(source, target), source)
    with replacing(out / names[0]) as source_file, replacing(out / names[1]) as target_file:
        for pair in clean(pairs, rules, out / "dropped.tsv", held_out, report, pipeline):
            source_file.write(pair.source.encode() + b"\n")
            target_file.write(pair.target.encode() + b"\n")
    draw_lengths(report, (names[0], names[1]), out / "lengths.png")

    console = Screen()
    table = Table("", "pairs", box=None)
    table.add_row("read", f"{report.read:,}")
    for reason, count in report.dropped.most_common():
        table.add_row(f"dropped: {reason}", f"{count:,}")
    table.add_row("kept", f"{report.kept:,}")
    console.print(table)
    for shift in report.out_of_step:
        console.print(f"warning: {shift}")
    console.print(f"{out}: {names[0]}, {names[1]}, dropped.tsv, lengths.png")


@app.command("import")
def import_memory(
    file: Annotated[Path, typer.Argument(help="TSV, JSONL, TMX, PO or MO, by its ending; gzip is fine.")],
    source: Annotated[str, typer.Option(help="Language code of the source, such as en.")],
    target: Annotated[str, typer.Option(help="Language code of the target, such as gl.")],
    out: Annotated[Path, typer.Option(help="Write OUT.en and OUT.gl (or the codes of your languages).")] = Path(
        "imported"
    ),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there already.")] = False,
) -> None:
    """Turn a translation memory into two aligned text files."""
    from qknorm.data.importers import codes_left_out, read_memory
    from qknorm.data.textfiles import replacing

    if source == target:
        raise InputError(f"source and target are both {source}; two languages are needed")
    for code in (source, target):
        if not re.fullmatch(r"[\w-]+", code):
            raise InputError(f"{code!r} is not a language code; give one such as en or pt-BR")
    if not out.name:
        raise InputError(f"--out {out} is a folder; give the beginning of the files' names, such as mine")
    paths = [out.with_name(f"{out.name}.{language}") for language in (source, target)]
    refuse_to_replace(paths, force)
    count = 0
    with replacing(paths[0]) as source_file, replacing(paths[1]) as target_file:
        for pair in read_memory(file, source, target):
            source_file.write(pair.source.encode() + b"\n")
            target_file.write(pair.target.encode() + b"\n")
            count += 1
        if not count:
            raise InputError(f"{file} holds no translated entry")
    print(f"{count:,} pairs: {paths[0]}, {paths[1]}")
    if codes := codes_left_out(file):
        print(f"{codes:,} native codes were left out: formatting of some program, and no placeholder or tag")


@app.command()
def align(
    source: Annotated[Path, typer.Argument(help="A book or another long text: plain text or DOCX.")],
    target: Annotated[Path, typer.Argument(help="Its translation.")],
    out: Annotated[
        Path,
        typer.Option(help="Write OUT.en and OUT.gl, by the endings of the books' names; of book.txt, OUT.a and OUT.b."),
    ] = Path("aligned"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite files that are there already.")] = False,
) -> None:
    """Find which sentences of a book and of its translation belong together. What is unsure is listed by itself."""
    from qknorm.counting.books import align as beads_of
    from qknorm.counting.kept import counting_bar
    from qknorm.data.paragraphs import read_sentences
    from qknorm.data.textfiles import write_lines
    from qknorm.decoding.splitting import join_parts

    if not out.name:
        raise InputError(f"--out {out} is a folder; give the beginning of the files' names, such as mine")
    paths = [out.with_name(f"{out.name}.{end}") for end in (*_endings(source, target), "confidence", "unsure.tsv")]
    refuse_to_replace(paths, force)
    sources, targets, console = read_sentences(source), read_sentences(target), Screen()
    with counting_bar(console) as progress:
        beads = beads_of(sources, targets, progress)

    def row(bead: Bead) -> tuple[str, str, str]:
        ours, theirs = sources[bead.source.start : bead.source.stop], targets[bead.target.start : bead.target.stop]
        return join_parts(ours), join_parts(theirs), f"{bead.confidence:.2f}"

    sure = [row(bead) for bead in beads if bead.is_sure]
    for column, path in enumerate(paths[:3]):
        write_lines(path, (line[column] for line in sure))
    unsure = ("\t".join(row(bead)) for bead in beads if not bead.is_sure)
    write_lines(paths[3], ["source\ttarget\tconfidence", *unsure])
    table = Table("", "pairs", f"sentences of {source.name}", f"of {target.name}", box=None)
    for name, chosen in (
        ("sure", [bead for bead in beads if bead.is_sure]),
        ("unsure", [bead for bead in beads if bead.is_pair and not bead.is_sure]),
        ("without a counterpart", [bead for bead in beads if not bead.is_pair]),
        ("together", beads),
    ):
        sentences = (sum(len(bead.source) for bead in chosen), sum(len(bead.target) for bead in chosen))
        table.add_row(name, *(f"{count:,}" for count in (sum(bead.is_pair for bead in chosen), *sentences)))
    console.print(table)
    console.print(", ".join(map(str, paths)))


def _endings(source: Path, target: Path) -> tuple[str, str]:
    """What the names of two files end with, such as en and gl, unless that says nothing of their languages."""
    endings = (source.suffix.removeprefix("."), target.suffix.removeprefix("."))
    are_languages = all(re.fullmatch(r"[\w-]+", ending) for ending in endings) and not {*endings} & {
        "txt",
        "docx",
        "gz",
    }
    return endings if are_languages and endings[0] != endings[1] else ("a", "b")


@app.command()
def suspects(
    source: Annotated[Path, typer.Argument(help="Text file, one sentence a line; gzip is fine.")],
    target: Annotated[Path, typer.Argument(help="Its translation, line by line.")],
    most: Annotated[int, typer.Option(min=1, help="Show this many pairs.")] = 100,
    out: Annotated[Path, typer.Option(help="File for all pairs with their scores.")] = Path("suspects.tsv"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite a file that is there already.")] = False,
) -> None:
    """List the pairs that translate each other least, by word translations counted from the text itself."""
    from qknorm.counting.kept import counting_bar
    from qknorm.counting.suspects import suspects as scored
    from qknorm.data.cleaning import dropped_row
    from qknorm.data.importers import read_aligned
    from qknorm.data.textfiles import replacing

    refuse_to_replace([out], force)
    pairs, console = list(read_aligned(source, target)), Screen()
    if not any(side.strip() for pair in pairs for side in pair):
        raise InputError(f"{source} and {target} are empty")
    with counting_bar(console) as progress:
        scores = scored([pair.source for pair in pairs], [pair.target for pair in pairs], progress)
    worst_first = (-scores).argsort(kind="stable").tolist()
    with replacing(out) as file:
        file.write(b"line\tscore\tsource\ttarget\n")
        file.writelines(dropped_row(row + 1, f"{scores[row]:.2f}", pairs[row]) for row in worst_first)
    for row in worst_first[:most]:
        console.print(f"line {row + 1:,}, score {scores[row]:.1f}\n  {pairs[row].source}\n  {pairs[row].target}")
    console.print(f"{min(most, len(pairs)):,} of {len(pairs):,} pairs, the most doubtful first; all of them: {out}")


def _with_progress(items: Iterator[Item], file: Path) -> Iterator[Item]:
    """The items, with a bar if there is a terminal; the number of lines of `file` is the number of items."""
    from qknorm.data.textfiles import open_bytes

    console = Screen(stderr=True)
    if not console.is_terminal:
        yield from items
        return
    with open_bytes(file) as binary:
        total = sum(block.count(b"\n") for block in iter(lambda: binary.read(2**20), b""))
    columns = (TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        yield from progress.track(items, total=total)
