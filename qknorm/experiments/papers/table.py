"""A table as somebody describes it: YAML of rows, each a name and what distinguishes it from the full model.

The tables of the papers are such files, in the folder `tables`; `qknorm reproduce my-table.yaml` runs anybody's own.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from qknorm.data.textfiles import open_bytes
from qknorm.errors import InputError
from qknorm.experiments.citations import known_paper
from qknorm.experiments.papers.sizes import SIZES, Size
from qknorm.runs.recipe import DirectionRecipe, Loader, merged
from qknorm.runs.recipe_part import RecipePart

Changes = dict[str, dict[str, Any]]
"""Keys of a recipe by their part, such as {"model": {"heads": 2}}."""

PAIRS = {
    "en-vi": "iwslt15-en-vi",
    "ar-en": "ted-ar-en",
    "en-he": "ted-en-he",
    "gl-en": "ted-gl-en",
    "sk-en": "ted-sk-en",
}
"""The first paper's language pairs, and the corpora in which they are found."""

_FOLDER = Path(__file__).parent / "tables"
_SYSTEMS = Path(__file__).parent / "systems.yaml"
_PARTS = ("data", "model", "training", "decoding")
_KEPT = {"data": set(DirectionRecipe.model_fields), "training": {"seed"}}
"""Keys that no row may change: systems are compared on the same text, and seeds are counted by --seeds."""
_Kind = TypeVar("_Kind", bound=RecipePart)
_NAME = r"\w[\w.+-]*"


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
    published: float | dict[str, float] | None = None
    """Test BLEU; in a table of several pairs, one for each."""
    sizes: tuple[Size, ...] = SIZES
    """Those at which there is such a row."""

    @property
    def title(self) -> str:
        return self.label or self.name

    def changed(self, size: Size) -> Changes:
        """All changes at a size."""
        return merged(self.changes, self.at_paper_size if size == "paper" else {})

    @field_validator("name")
    @classmethod
    def _of_a_folder(cls, name: str) -> str:
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"must be that of a folder, such as without-g, not {name!r}")
        return name

    @field_validator("changes", "at_paper_size", mode="before")
    @classmethod
    def _of_parts(cls, changes: Any) -> Any:
        for part, keys in changes.items() if isinstance(changes, dict) else [("", changes)]:
            if part not in _PARTS or not isinstance(keys, dict):
                raise ValueError(f"must hold keys of {', '.join(_PARTS)}, such as {{model: {{p: 3}}}}")
            for key in _KEPT.get(part, set()) & keys.keys():
                raise ValueError(f"must leave {part}.{key} alone: all rows have the same text and the same seeds")
        return changes

    @field_validator("published", mode="before")
    @classmethod
    def _a_number(cls, value: Any) -> Any:
        for direction, number in value.items() if isinstance(value, dict) else [(None, value)]:
            if number is not None and not _is_number(number):
                where = f" for {direction}" if direction else ""
                raise ValueError(f"must be a number{where}, such as 33.24, not {number!r}")
        return value


class TableRecipe(RecipePart):
    """Some systems, compared with one of them on one or more corpora."""

    title: str
    question: str = ""
    """What the table is to answer."""
    caveat: str = ""
    """What it cannot say."""
    paper: str | None = None
    """The paper that published it, by its key in `citations.py`."""
    shows: Literal["bleu", "data", "attention"] = "bleu"
    """Test BLEU of each row, what the data and the model are, or where the heads look."""
    pairs: tuple[str, ...] = ()
    """Language pairs of the first paper, trained on at the size `paper` where no corpus is chosen."""
    bleu: Literal["tokens", "text"] = "text"
    """SacreBLEU of the text; or of Moses' tokens, but for the TED talks, of which the first paper scored the text."""
    reference: str = ""
    """The row that the others are compared with; without it, the first."""
    rates: tuple[float, ...] | dict[Size, tuple[float, ...]] = ()
    """Learning rates that each row tries with its first seed, at every size or by size; the best on dev is its own."""
    data: dict[str, dict[str, float]] = Field(default_factory=dict)
    """What was published of each pair, where the table shows data."""
    rows: tuple[RowRecipe, ...] = Field(min_length=1)
    """The systems."""

    @field_validator("rates", mode="before")
    @classmethod
    def _numbers(cls, rates: Any) -> Any:
        if isinstance(rates, dict) and (unknown := rates.keys() - set(SIZES)):
            raise ValueError(f"must be by size, {', '.join(SIZES)}, not by {', '.join(map(str, unknown))}")
        for some in rates.values() if isinstance(rates, dict) else [rates]:
            if not isinstance(some, list | tuple) or not all(_is_number(rate) and float(rate) > 0 for rate in some):
                raise ValueError(f"must be learning rates such as [0.001, 0.002], not {some!r}")
            if len(set(map(float, some))) < len(some):
                raise ValueError(f"must differ from each other, unlike {some!r}")
        return rates

    @property
    def first(self) -> str:
        return self.reference or self.rows[0].name

    def rows_at(self, size: Size) -> list[RowRecipe]:
        return [row for row in self.rows if size in row.sizes]

    def rates_at(self, size: Size) -> tuple[float, ...]:
        return self.rates.get(size, ()) if isinstance(self.rates, dict) else self.rates

    def published(self, row: RowRecipe, direction: str | None) -> float | None:
        """What was published of a row on a pair. Of a table of one pair, this speaks for any corpus."""
        if not isinstance(row.published, dict):
            return row.published
        return row.published.get(self.pairs[0] if len(self.pairs) == 1 else direction or "")

    def is_comparable(self, direction: str | None) -> bool:
        """Whether scores on a pair may be held against the published ones: where these are of the same text.

        A table without pairs does not say of which text its figures are.
        """
        return direction in self.pairs

    @model_validator(mode="after")
    def _possible(self) -> Self:
        known_paper(self.paper)
        for kind, given in (("name", [row.name for row in self.rows]), ("label", [row.title for row in self.rows])):
            if twice := [text for text in given if given.count(text) > 1]:
                raise ValueError(f"two rows have the {kind} {twice[0]}; each needs its own")
        for size in SIZES:
            if self.first not in {row.name for row in self.rows_at(size)}:
                raise ValueError(f"reference must be the name of a row of every size, not {self.first}")
        for direction in self.pairs:
            if direction not in PAIRS:
                raise ValueError(f"pairs must be some of {', '.join(PAIRS)}, not {direction}")
        for kind, by_pair in [("data", self.data), *(("published", row.published) for row in self.rows)]:
            if isinstance(by_pair, dict) and (unknown := by_pair.keys() - set(self.pairs)):
                known = ", ".join(self.pairs) or "of which it names none"
                raise ValueError(f"{kind} must be of the table's pairs, {known}, not of {unknown.pop()}")
        if len(self.pairs) > 1 and any(isinstance(row.published, float) for row in self.rows):
            raise ValueError("published must be given for each pair, such as {en-vi: 33.24, gl-en: 24.21}")
        return self


def _is_number(value: Any) -> bool:
    """Also one that YAML takes for text, such as 1e-3."""
    try:
        return not isinstance(value, bool) and math.isfinite(float(value))
    except (TypeError, ValueError):
        return False


def names() -> list[str]:
    """The tables that come with the package."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def load_table(name: str, added: Sequence[Path] = ()) -> TableRecipe:
    """A table of the package by its name, or of a YAML file; with rows of other files added at its end."""
    path = _FOLDER / f"{name}.yaml" if name in names() else Path(name)
    if not path.exists():
        raise InputError(f"{name} is neither a file nor a table of the papers: {', '.join(names())}, lp-figures")
    content = _read(path)
    if not isinstance(content, dict) or not isinstance(content.get("rows"), list):
        raise InputError(f"{path} is not a table: it must hold title and a list of rows (docs/reproduce.md has one)")
    rows = _rows(content["rows"], [], path)
    table = _checked(TableRecipe, content | {"rows": rows}, str(path))
    for file in added:
        own = _read(file)
        rows += _rows(own if isinstance(own, list) else [own], rows, file)
        table = _checked(TableRecipe, content | {"rows": rows}, str(file))
    return table


def load_systems() -> dict[str, RowRecipe]:
    """The systems of the package, which any row may be like."""
    return {row["name"]: _checked(RowRecipe, row, str(_SYSTEMS)) for row in _read(_SYSTEMS)}


def _rows(contents: Sequence[Any], before: Sequence[RowRecipe], path: Path) -> list[RowRecipe]:
    """Rows, each of which may be like a system of the package or like a row before it."""
    known = load_systems() | {row.name: row for row in before}
    rows = []
    for number, content in enumerate(contents, start=1):
        where = f"{path}, row {number}"
        if not isinstance(content, dict):
            raise InputError(f"{where}: a row holds keys such as name, label and changes, not {content!r}")
        rows.append(_checked(RowRecipe, _like(content, known, where), where))
        known[rows[-1].name] = rows[-1]
    return rows


def _like(content: Mapping[str, Any], known: Mapping[str, RowRecipe], where: str) -> dict[str, Any]:
    """A row with the changes of the one it is like and, where it has no name of its own, that one's name and label."""
    own = dict(content)
    if "like" not in own:
        return own
    other = known.get(name := str(own.pop("like")))
    if other is None:
        raise InputError(f"{where}: like must be one of {', '.join(known)}, not {name}")
    taken = {} if "name" in own else {"name": other.name, "label": other.label}
    changes = {key: _laid_over(getattr(other, key), own.get(key, {})) for key in ("changes", "at_paper_size")}
    return {**taken, **own, **changes}


def _laid_over(changes: Changes, own: Any) -> Any:
    return merged(changes, own) if isinstance(own, dict) else own  # the check will say what is wrong with it


def _read(path: Path) -> Any:
    with open_bytes(path) as file:
        try:
            return yaml.load(file.read().decode("utf-8"), Loader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: not UTF-8, or a date that is none
            raise InputError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from None


def _checked(kind: type[_Kind], content: Mapping[str, Any], where: str) -> _Kind:
    """A table or row, or one sentence about the first thing that is wrong with it."""
    try:
        return kind.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{where}: {_first_problem(error, list(kind.model_fields))}") from None


def _first_problem(error: ValidationError, known: Sequence[str]) -> str:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        (nearest,) = difflib.get_close_matches(where, known, n=1, cutoff=0)
        return f"there is no key {where}; the nearest is {nearest}"
    if first["type"] == "missing":
        return f"{where} is missing"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where} {message[0].lower()}{message[1:]}" if where else message


FULL, BASELINE = (load_systems()[name] for name in ("qknorm", "baseline"))
"""The first paper's two models (Henry et al. 2020)."""
