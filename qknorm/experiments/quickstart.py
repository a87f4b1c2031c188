"""What `qknorm quickstart` does: two translators side by side, with and without query-key normalisation."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from rich.table import Table

from qknorm.data import corpora
from qknorm.data.textfiles import read_lines
from qknorm.errors import InputError
from qknorm.experiments.cells import Cell
from qknorm.experiments.compare import compared_runs
from qknorm.experiments.machines import Machines
from qknorm.experiments.minutes import by_one_plan
from qknorm.experiments.recipe import BASELINE, FULL
from qknorm.experiments.report import write_report
from qknorm.runs.recipe import Recipe, checked, merged
from qknorm.runs.run import Run
from qknorm.screen import Screen

CORPUS, WITHOUT_NETWORK = "tatoeba-en-es:20k", "phrasebook-en-gl:20k"
MINUTES = 5.0
PEAK = 3e-3
"""The highest learning rate: of 0.0015, 0.003 and 0.006 the best by dev loss, for each of the two
(docs/measured/trials.jsonl)."""
EXAMPLES = 5
_SYSTEMS = (BASELINE, FULL)
_WAY_OUT = "choose another folder with --out"


def run(folder: Path, console: Screen) -> None:
    """Get a corpus, train both models, compare them, show what they say; a second call finds them trained."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --out needs a folder")
    corpus = _corpus(console)
    cells = [Cell(system.name, {}, recipe(corpus, system.name), _WAY_OUT) for system in _SYSTEMS]
    console.print("Two translators learn side by side; this takes up to ten minutes on two cores.\n")
    machines = Machines()
    cells = by_one_plan(cells, folder, console, machines.threads(len(cells)))
    failures = machines.run_missing("quickstart", cells, folder, console)
    if failures:
        name, reason = next(iter(failures.items()))
        raise InputError(f"training {name} failed: {reason} (more in {Run(folder / name).log_file})")
    _show_scores(folder, console)
    _show_examples(folder, console)
    report = folder / "report.html"
    write_report(folder, report)
    console.print(f"\nAll of it and where the two models look, to see in a browser: {report}")
    command = "qknorm" if shutil.which("qknorm") else sys.argv[0]
    console.print(
        "\nNext:\n"
        f'  echo "Where is the station?" | {command} translate {folder / FULL.name}\n'
        f"  {command} train --src mine.en --tgt mine.es     your own two files\n"
        f"  {command} reproduce henry-table6 --size smoke   what each part of the model contributes",
    )


def recipe(corpus: corpora.CorpusFolder, system: str) -> Recipe:
    """What somebody's own files would be trained with in this many minutes, for one of the two systems."""
    content = {
        "name": system,
        "minutes": MINUTES,
        "data": {"corpus": corpus.info.name},
        "training": {"peak": PEAK},
    }
    changes = next(known.changes for known in _SYSTEMS if known.name == system)
    return checked(Recipe, merged(content, changes), "quickstart")


def _corpus(console: Screen) -> corpora.CorpusFolder:
    try:
        corpus = corpora.get(CORPUS)
    except InputError as error:
        console.print(f"{error}\nWithout it, the embedded phrasebook will do.")
        corpus = corpora.get(WITHOUT_NETWORK)
    source, target = corpus.info.languages or ("", "")
    pairs = f"{corpus.counts['train']:,} sentence pairs, {source} → {target}"
    console.print(f"{corpus.info.name}: {pairs}. Licence: {corpus.info.licence}")
    return corpus


def _show_scores(folder: Path, console: Screen) -> None:
    found = compared_runs({system.label: [folder / system.name] for system in _SYSTEMS}, BASELINE.label)
    table = Table("", "test BLEU", "95 %", box=None)
    for row in found.rows:
        table.add_row(row.name, f"{row.bleu:.1f}", f"{row.low:.1f} – {row.high:.1f}")
    console.print(table)
    console.print("\n".join([*found.sentences, ""]))


def _show_examples(folder: Path, console: Screen) -> None:
    """Test sentences of moderate length, evenly spread."""
    tests = {system.label: Run(folder / system.name).test_set() for system in _SYSTEMS}
    translations = {label: list(read_lines(test.hypotheses)) for label, test in tests.items()}
    sources, references = (list(read_lines(path)) for path in (tests[FULL.label].source, tests[FULL.label].references))
    moderate = [row for row, line in enumerate(sources) if 5 <= len(line.split()) <= 10]
    rows = moderate[:: max(1, len(moderate) // EXAMPLES)][:EXAMPLES]
    width = max(map(len, (*translations, "reference")))
    console.print("Sentences that neither has seen:")
    for row in rows:
        console.print(f"\n  {sources[row]}")
        told = {**{label: own[row] for label, own in translations.items()}, "reference": references[row]}
        for label, text in told.items():
            console.print(f"  {label:>{width}}  {text}")
