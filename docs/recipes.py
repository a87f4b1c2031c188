"""recipes.md, made from the recipes' own types by `make reference`."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic.fields import FieldInfo

from qknorm.attention.norms import KINDS
from qknorm.runs.any_recipe import RECIPES, SWEEP_KEYS
from qknorm.runs.choices import OneOf
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import AnyRecipe, parts_of
from qknorm.runs.recipe_part import RecipePart

_INTRODUCTION = """\
# Every key of a recipe

Made from the code by `make reference`; a test keeps it so. A recipe is a YAML file with the parts below; what is left
out has its default. On the command line a key is changed by `part.key=value`, or by `key=value` where only one part
has it:

```
qknorm train recipes/phrasebook.yaml name=wider dim=192 seed=3
```

A key that does not exist is an error that names the nearest one. `recipes/` holds commented examples.
"""

_NORM = """\
## Models: `qk_norm`

The name of a kind of normalisation, or a kind with its options, such as `{kind: lp, p: 3}`; `rms` and `layer` have
`eps`. The options of `lp` are below. They may also stand beside `qk_norm`, as keys of `model`: `p: 3`; beside another
kind they say nothing.
"""

_SWEEP = """\
## Sweeps

`qknorm sweep` takes a recipe in which keys of its parts may be lists: the lists span a grid of runs. With `data.folds`
of a language model, each block of the text is held out in turn. `minutes` are planned once, for the first of them, so
that all have as many updates. Beside the parts above it may have:
"""

_WORDS = {str: "text", int: "whole number", float: "number", bool: "`true` or `false`"}
_LIMITS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))


def reference() -> str:
    """The whole page."""
    sections = [
        _INTRODUCTION,
        *(section for kind in RECIPES.values() for section in _recipe(kind)),
        f"{_NORM}\n{_keys({key: field for key, field in LpRecipe.model_fields.items() if key != 'kind'})}",
        _SWEEP + "\n" + _table(["key", "meaning"], [[f"`{key}`", meaning] for key, meaning in SWEEP_KEYS.items()]),
    ]
    return "\n".join(sections)


def _recipe(kind: type[AnyRecipe]) -> Iterator[str]:
    """The keys of the recipe itself, then a section for each of its parts."""
    parts = parts_of(kind)
    top = {name: field for name, field in kind.model_fields.items() if name not in parts}
    yield f"## {kind.title}\n\n{kind.__doc__}\n\n{_keys(top)}"
    for name, part in parts.items():
        yield f"### {kind.title}: `{name}`\n\n{part.__doc__}\n\n{_keys(part.model_fields)}"
        for key, entry in _lists_of_others(part):
            yield f"#### {kind.title}: an entry of `{name}.{key}`\n\n{entry.__doc__}\n\n{_keys(entry.model_fields)}"


def _lists_of_others(part: type[RecipePart]) -> Iterator[tuple[str, type[RecipePart]]]:
    """The keys whose entries have keys of their own, unless these are among those of the part."""
    for key, field in part.model_fields.items():
        entry = (*get_args(field.annotation), None)[0]
        if isinstance(entry, type) and issubclass(entry, RecipePart) and not issubclass(part, entry):
            yield key, entry


def _keys(fields: dict[str, FieldInfo]) -> str:
    rows = []
    for key, field in fields.items():
        allowed = _listed(_named(field) or _choices(field.annotation, _limits(field)), "or")
        rows.append([f"`{key}`", allowed, _default(field), " ".join((field.description or "").split())])
    return _table(["key", "value", "default", "meaning"], rows)


def _named(field: FieldInfo) -> list[str]:
    """The names of a table, where a key wants one of them."""
    if isinstance(field.default, LpRecipe):
        return [*map(_yaml, KINDS), "[one with options](#models-qk_norm)"]
    return [_yaml(name) for choice in field.metadata if isinstance(choice, OneOf) for name in choice.names]


def _choices(kind: Any, limits: str = "") -> list[str]:
    """What a type allows, in words that a reader of YAML knows."""
    if get_origin(kind) is Annotated:
        return _choices(get_args(kind)[0], limits)
    if get_origin(kind) is Literal:
        return [_yaml(value) for value in get_args(kind)]
    if get_origin(kind) in (Union, types.UnionType):
        return [choice for member in get_args(kind) if member is not type(None) for choice in _choices(member, limits)]
    if get_origin(kind) is tuple:
        first, second = get_args(kind)
        if second is not ...:
            return [f"[{_WORDS[first]}, {_WORDS[second]}]"]
        if first in _WORDS:
            return [f"list of {_WORDS[first]}s"]
        return [f"list of entries with {_listed([_yaml(key) for key in first.model_fields], 'and')}"]
    return [f"{_WORDS[kind]}{limits}"]


def _limits(field: FieldInfo) -> str:
    bounds = [
        f"{sign} {getattr(limit, name)}" for limit in field.metadata for name, sign in _LIMITS if hasattr(limit, name)
    ]
    return f" {', '.join(bounds)}" if bounds else ""


def _default(field: FieldInfo) -> str:
    if isinstance(field.default, LpRecipe):
        return _yaml(field.default.kind)
    return "" if field.is_required() or field.default in (None, ()) else _yaml(field.default)


def _yaml(value: Any) -> str:
    """As it has to be written in a recipe: `"no"` with its quotation marks."""
    dumped = yaml.safe_dump(list(value) if isinstance(value, tuple) else value, default_flow_style=True)
    return f"`{dumped.splitlines()[0]}`"


def _listed(words: list[str], last: str) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *rows])


if __name__ == "__main__":
    print(reference(), end="")
