"""What somebody asks of an experiment: YAML with a title and a question, and rows, listed or spanned by lists.

The tables of the papers are such files with rows, in `papers/tables`; `qknorm reproduce my-table.yaml` runs anybody's
own. A recipe whose lists span a grid says the same of itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, cast, get_args

from pydantic import Field, PositiveFloat, field_validator, model_validator

from qknorm.errors import InputError
from qknorm.experiments.citations import PAPERS
from qknorm.runs.recipe import DirectionRecipe, checked, merged, read_yaml
from qknorm.runs.recipe_part import RecipePart

Size = Literal["smoke", "small", "medium", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)
MEDIUM_MINUTES = 30.0
"""Of a run at the size that is planned by minutes, unless others are asked for."""
Changes = dict[str, dict[str, Any]]
"""Keys of a recipe by their part, such as {"model": {"heads": 2}}."""
ALL = "all"
"""In place of a language pair, where a published figure speaks for any."""

PAIRS = {
    "en-vi": "iwslt15-en-vi",
    "ar-en": "ted-ar-en",
    "en-he": "ted-en-he",
    "gl-en": "ted-gl-en",
    "sk-en": "ted-sk-en",
}
"""The first paper's language pairs, and the corpora in which they are found."""

_PAPERS = Path(__file__).parent / "papers"
_SYSTEMS = _PAPERS / "systems.yaml"
_PARTS = ("data", "model", "training", "decoding")
_KEPT = {"data": set(DirectionRecipe.model_fields), "training": {"seed"}}
"""Keys that no row may change: systems are compared on the same text, and seeds are counted by --seeds."""


class About(RecipePart):
    """What every experiment says of itself: the words on its page, and what that shows."""

    title: str = ""
    question: str = ""
    """What it is to answer."""
    caveat: str = ""
    """What it cannot say."""
    shrunk: str = ""
    """What the size that was taken has less of."""
    shows: str | None = None
    """One of the table of views; without it, what the task is about."""
    paper: str | None = None
    """What the page cites, by its key in `citations.py`."""

    @classmethod
    def as_written_now(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        return {**content, "shows": "scores"} if content.get("shows") == "bleu" else dict(content)

    @field_validator("paper")
    @classmethod
    def _known(cls, paper: str | None) -> str | None:
        if paper is not None and paper not in PAPERS:
            raise ValueError(f"paper must be one of {', '.join(PAPERS)}, not {paper!r}")
        return paper


class RowRecipe(RecipePart):
    """A row: a system, by what distinguishes it from the full model."""

    name: str
    """Of its run folders."""
    label: str = ""
    """What the table shows; without it, the name."""
    changes: Changes = Field(default_factory=dict)
    """Keys of a recipe by their part, such as {model: {p: 3}}."""
    at_paper_size: Changes = Field(default_factory=dict)
    """Further changes at the size `paper`: smaller ones train every system in the same way."""
    published: dict[str, float] = Field(default_factory=dict)
    """Test BLEU by pair; a number alone is that of all."""
    sizes: tuple[Size, ...] = SIZES
    """Those at which there is such a row."""

    @property
    def title(self) -> str:
        return self.label or self.name

    def changed(self, size: str) -> Changes:
        """All changes at a size."""
        return merged(self.changes, self.at_paper_size if size == "paper" else {})

    @classmethod
    def as_written_now(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        return {**content, "published": _by(content.get("published"), [ALL])}

    @field_validator("name")
    @classmethod
    def _of_a_folder(cls, name: str) -> str:
        if not re.fullmatch(r"\w[\w.+-]*", name):
            raise ValueError(f"name must be that of a folder, such as without-g, not {name!r}")
        return name

    @field_validator("changes", "at_paper_size")
    @classmethod
    def _possible(cls, changes: Changes) -> Changes:
        for part, keys in changes.items():
            if part not in _PARTS:
                raise ValueError(f"changes must hold keys of {', '.join(_PARTS)}, such as {{model: {{p: 3}}}}")
            for key in _KEPT.get(part, set()) & keys.keys():
                raise ValueError(
                    f"changes must leave {part}.{key} alone: all rows have the same text and the same seeds"
                )
        return changes


class TableRecipe(About):
    """Some systems, listed, which are compared with one of them on one or more corpora."""

    title: str
    pairs: tuple[str, ...] = ()
    """Language pairs of the first paper, trained on at the size `paper` where no corpus is chosen."""
    bleu: Literal["tokens", "text"] = "text"
    """SacreBLEU of the text; or of Moses' tokens, but for the TED talks, of which the first paper scored the text."""
    reference: str = ""
    """The row that the others are compared with; without it, the first."""
    rates: dict[Size, tuple[PositiveFloat, ...]] = Field(default_factory=dict)
    """Learning rates by size, or a list for every size, which each row tries with its first seed; the best on dev is
    its own."""
    data: dict[str, dict[str, float]] = Field(default_factory=dict)
    """What was published of each pair, where the table shows data."""
    rows: tuple[RowRecipe, ...] = Field(min_length=1)
    """The systems."""

    @classmethod
    def as_written_now(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        return super().as_written_now({**content, "rates": _by(content.get("rates"), SIZES)})

    @field_validator("rates")
    @classmethod
    def _different(cls, rates: dict[Size, tuple[float, ...]]) -> dict[Size, tuple[float, ...]]:
        if twice := [of_size for of_size in rates.values() if len(set(of_size)) < len(of_size)]:
            raise ValueError(f"rates must differ from each other, unlike {twice[0]}")
        return rates

    @property
    def first(self) -> str:
        return self.reference or self.rows[0].name

    def row(self, name: str) -> RowRecipe:
        return next(row for row in self.rows if row.name == name)

    def rows_at(self, size: str) -> list[RowRecipe]:
        return [row for row in self.rows if size in row.sizes]

    def rates_at(self, size: str) -> tuple[float, ...]:
        return self.rates.get(cast(Size, size), ())

    def published(self, row: str, direction: str | None) -> float | None:
        """What was published of a row on a pair. Of a table of one pair, this speaks for any corpus."""
        figures, pair = self.row(row).published, self.pairs[0] if len(self.pairs) == 1 else direction or ""
        return figures.get(ALL, figures.get(pair))

    def is_comparable(self, direction: str | None) -> bool:
        """Whether scores on a pair may be held against the published ones: where these are of the same text.

        A table without pairs does not say of which text its figures are.
        """
        return direction in self.pairs

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for kind, texts in (("name", [row.name for row in self.rows]), ("label", [row.title for row in self.rows])):
            if twice := [text for text in texts if texts.count(text) > 1]:
                raise ValueError(f"two rows have the {kind} {twice[0]}; each needs its own")
        for size in SIZES:
            if self.first not in {row.name for row in self.rows_at(size)}:
                raise ValueError(f"reference must be the name of a row of every size, not {self.first}")
        for direction in self.pairs:
            if direction not in PAIRS:
                raise ValueError(f"pairs must be some of {', '.join(PAIRS)}, not {direction}")
        for kind, by_pair in (("data", set(self.data)), *(("published", set(row.published)) for row in self.rows)):
            if unknown := by_pair - {*self.pairs, ALL}:
                known = ", ".join(self.pairs) or "of which it names none"
                raise ValueError(f"{kind} must be of the table's pairs, {known}, not of {unknown.pop()}")
        if len(self.pairs) > 1 and any(ALL in row.published for row in self.rows):
            raise ValueError("published must be given for each pair, such as {en-vi: 33.24, gl-en: 24.21}")
        return self


def _by(value: Any, keys: Sequence[str]) -> dict[str, Any]:
    """What is given for each of some keys; a value alone is that of all."""
    return value if isinstance(value, dict) else {} if value is None else dict.fromkeys(keys, value)


def names() -> list[str]:
    """The tables that come with the package."""
    return sorted(path.stem for path in (_PAPERS / "tables").glob("*.yaml"))


def load_table(name: str, added: Sequence[Path] = ()) -> TableRecipe:
    """A table of the package by its name, or of a YAML file; with rows of other files added at its end."""
    path = _PAPERS / "tables" / f"{name}.yaml" if name in names() else Path(name)
    if not path.exists():
        raise InputError(f"{name} is neither a file nor a table of the papers: {', '.join(names())}, lp-figures")
    content, rows = read_yaml(path), list[RowRecipe]()
    if not isinstance(content, dict) or not isinstance(content.get("rows"), list):
        raise InputError(f"{path} is not a table: it must hold title and a list of rows (docs/reproduce.md has one)")
    for file, more in ((path, content["rows"]), *((file, read_yaml(file)) for file in added)):
        rows += _rows(more if isinstance(more, list) else [more], rows, file)
        table = checked(TableRecipe, content | {"rows": rows}, str(file))
    return table


def load_systems() -> dict[str, RowRecipe]:
    """The systems of the package, which any row may be like."""
    return {row["name"]: checked(RowRecipe, row, str(_SYSTEMS)) for row in read_yaml(_SYSTEMS)}


def load_sizes() -> dict[str, dict[str, Any]]:
    """What each size is: its recipe, its corpus, and what it has shrunk."""
    sizes: dict[str, dict[str, Any]] = read_yaml(_PAPERS / "sizes.yaml")
    return sizes


def _rows(contents: Sequence[Any], before: Sequence[RowRecipe], path: Path) -> list[RowRecipe]:
    """Rows, each of which may be like a system of the package or like a row before it."""
    known = load_systems() | {row.name: row for row in before}
    rows = []
    for number, content in enumerate(contents, start=1):
        where = f"{path}, row {number}"
        if not isinstance(content, dict):
            raise InputError(f"{where}: a row holds keys such as name, label and changes, not {content!r}")
        rows.append(checked(RowRecipe, _like(content, known, where), where))
        known[rows[-1].name] = rows[-1]
    return rows


def _like(content: Mapping[str, Any], known: Mapping[str, RowRecipe], where: str) -> dict[str, Any]:
    """A row with the changes of the one it is like and, where it has no name of its own, that one's name and label."""
    given = dict(content)
    if "like" not in given:
        return given
    other = known.get(name := str(given.pop("like")))
    if other is None:
        raise InputError(f"{where}: like must be one of {', '.join(known)}, not {name}")
    taken = {} if "name" in given else {"name": other.name, "label": other.label}
    changes = {key: _laid_over(getattr(other, key), given.get(key, {})) for key in ("changes", "at_paper_size")}
    return {**taken, **given, **changes}


def _laid_over(changes: Changes, given: Any) -> Any:
    return merged(changes, given) if isinstance(given, dict) else given  # the check will say what is wrong with it


FULL, BASELINE = (load_systems()[name] for name in ("qknorm", "baseline"))
"""The first paper's two models (Henry et al. 2020)."""
