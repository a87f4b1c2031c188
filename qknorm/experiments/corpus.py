"""The corpus that a table is computed on: one of the papers', a named one, or a folder of somebody's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qknorm.data import corpora
from qknorm.data.splits import SPLITS
from qknorm.errors import InputError
from qknorm.experiments.recipe import PAIRS, TableRecipe, load_sizes


@dataclass(frozen=True)
class ChosenCorpus:
    name: str
    data: Mapping[str, Any]
    """The keys of a recipe that say where its text is."""


def pair_of(name: str) -> str | None:
    """The first paper's language pair, if this is the corpus that it used."""
    return next((pair for pair, corpus in PAIRS.items() if corpus == name), None)


def corpora_of(table: TableRecipe, origin: str, size: str, name: str | None) -> list[ChosenCorpus]:
    """The one that was chosen, or those that a table has at a size."""
    name = name or load_sizes()[size].get("corpus")
    if name is not None:
        return [find_corpus(name)]
    if not table.pairs:
        raise InputError(f"{origin} names no pairs of the paper; choose a corpus with --corpus")
    return [find_corpus(PAIRS[direction]) for direction in table.pairs]


def find_corpus(name: str) -> ChosenCorpus:
    """A named corpus, a folder that holds one, or a folder with train, dev and test of any two languages."""
    folder = Path(name).resolve()
    known = {info.name for info in corpora.known() if info.languages}
    if Path(name).is_dir() and folder.name in known:
        corpora.get(folder.name, from_folder=folder)
        name = folder.name
    base = name.partition(":")[0]
    if base in known:
        scheme = "words" if base in PAIRS.values() else "raw"
        return ChosenCorpus(name.replace(":", "-"), {"corpus": name, "scheme": scheme})
    if not folder.is_dir():
        raise InputError(f"{name} is neither a parallel corpus (see: qknorm data list) nor a folder")
    return ChosenCorpus(folder.name, _files(name, folder))


def _files(name: str, folder: Path) -> dict[str, Any]:
    """Where the text of a corpus of one's own is: the name of its folder may say which language is the source."""
    codes = sorted(path.suffix[1:] for path in folder.glob("train.*"))
    if len(codes) != 2:
        raise InputError(f"{name} needs one train file in each of two languages, such as train.en and train.gl")
    if folder.name.endswith("-".join(reversed(codes))):
        codes.reverse()
    files = {split: [str(folder / f"{split}.{code}") for code in codes] for split in SPLITS}
    missing = next((path for both in files.values() for path in both if not Path(path).is_file()), None)
    if missing is not None:
        raise InputError(f"{name} has no {Path(missing).name}; it needs train, dev and test in {' and '.join(codes)}")
    source, target = files["train"]
    return {"source": source, "target": target, "dev": files["dev"], "test": files["test"], "languages": codes}
