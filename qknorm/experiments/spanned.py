"""Experiments whose rows are spanned: every choice of a value from each list of a recipe."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from qknorm.errors import InputError
from qknorm.experiments.cells import REPEATS, Cell
from qknorm.experiments.experiment import Experiment
from qknorm.experiments.plan import Plan, planned_runs, sharing_runs
from qknorm.experiments.recipe import About
from qknorm.experiments.views.table import view_of
from qknorm.runs.any_recipe import SWEEP_KEYS, kind_of
from qknorm.runs.norm_recipe import options_apart
from qknorm.runs.recipe import AnyRecipe, checked, merged, read_recipe, with_overrides


def plan_sweep(path: Path, size: str | None = None, overrides: Sequence[str] = ()) -> Plan:
    """Every run that the lists of a recipe span.

    A list spans the grid; `data.folds` holds out every block of the text in turn; `baselines` are other models that
    span the same grid, but for the lists of `model`; `sizes` are named changes, of which --size or `size` chooses one.
    """
    content = read_recipe(path)
    said = {key: content.pop(key) for key in SWEEP_KEYS if key in content}
    kind = kind_of(content, str(path))
    about = {key: said[key] for key in About.model_fields if key in said}
    if (size := size or said.get("size")) is not None:
        changes = _changes_of(size, said.get("sizes") or {}, path)
        about |= {"shrunk": changes.pop("shrunk")} if "shrunk" in changes else {}
        content = merged(content, changes)
    content = with_overrides(kind, content, overrides)
    name = content.get("name", path.stem)
    if not isinstance(name, str):
        raise InputError(f"{path}: name must be text, not {name!r}")
    cells = _span(kind, content, path)
    axes, model = _axes(kind, content, path), content.get("model") or {}
    plain = {**content, "model": {key: model[key] for key in model if ("model", key) not in axes}}
    for baseline in said.get("baselines") or []:
        if not isinstance(baseline, dict):
            raise InputError(f"{path}: a baseline is keys and values, such as qk_norm: none, not {baseline!r}")
        changed = with_overrides(kind, plain, [f"{key}={value}" for key, value in baseline.items()])
        cells += _span(kind, changed, path, baseline)
    cells.sort(key=lambda cell: [cell.settings.get(key, 0) for key in REPEATS])
    _check_different(cells, path)
    cells = sharing_runs(cells)
    experiment = Experiment(
        name=name if size is None else f"{name}-{size}",
        task=cells[0].recipe.task,
        about=checked(About, about, str(path)),
        cells=planned_runs(cells),
    )
    view_of(experiment, str(path))
    return Plan(experiment, cells)


def _changes_of(size: str, sizes: Mapping[str, Any], path: Path) -> dict[str, Any]:
    if size not in sizes:
        known = f"it has {', '.join(sizes)}" if sizes else "it has no sizes"
        raise InputError(f"{path} has no size {size!r}; {known}")
    return dict(sizes[size])


_Key = tuple[str, str]  # part and key, such as model and p


def _axes(kind: type[AnyRecipe], content: Mapping[str, Any], path: Path) -> dict[_Key, list[Any]]:
    """The lists in a recipe, except where the recipe itself wants one."""
    axes = {}
    for part, values in content.items():
        if not isinstance(values, dict):
            continue
        fields = getattr(kind.model_fields[part].annotation, "model_fields", {}) if part in kind.model_fields else {}
        for key, value in values.items():
            if not isinstance(value, list) or (key in fields and _accepts(fields[key].annotation, value)):
                continue
            if not value:
                raise InputError(f"{path}: {part}.{key} is an empty list; a sweep needs at least one value there")
            axes[part, key] = value
    return axes


def _accepts(annotation: Any, value: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


def _folds(content: Mapping[str, Any]) -> list[dict[_Key, Any]]:
    data = content.get("data")
    folds = data.get("folds") if isinstance(data, dict) else None
    if not isinstance(folds, int) or "fold" in content["data"]:
        return [{}]
    return [{("data", "fold"): fold} for fold in range(folds)]


def _span(
    kind: type[AnyRecipe], content: Mapping[str, Any], path: Path, baseline: Mapping[str, Any] | None = None
) -> list[Cell]:
    """A run for every choice of a value from each list, in every fold."""
    grid = _axes(kind, content, path)
    return [
        _cell(kind, content, dict(zip(grid, values, strict=True)) | fold, path, baseline or {})
        for fold in _folds(content)
        for values in itertools.product(*grid.values())
    ]


def _cell(
    kind: type[AnyRecipe],
    content: Mapping[str, Any],
    chosen: Mapping[_Key, Any],
    path: Path,
    baseline: Mapping[str, Any],
) -> Cell:
    settings = dict(baseline)
    for (part, key), value in chosen.items():
        content = merged(content, {part: {key: value}})
        settings |= {name: _in_words(name, option) if isinstance(option, Mapping) else option
                     for name, option in options_apart({key: value}).items()}  # fmt: skip
    name = "_".join(f"{key}-{_in_words(key, value)}" for key, value in settings.items()) or "only"
    return Cell(name, settings, checked(kind, content, str(path)), is_baseline=bool(baseline))


def _in_words(key: str, value: Any) -> str:
    if isinstance(value, Mapping):  # a kind of normalisation with its options
        return "-".join(str(word) for option in value.items() for word in option if word != "kind")
    return f"{value:02d}" if key == "fold" else f"{value:g}" if isinstance(value, float) else str(value)


def _check_different(cells: Sequence[Cell], path: Path) -> None:
    ordered = sorted(cell.name for cell in cells)
    repeated = next((name for name, after in itertools.pairwise(ordered) if name == after), None)
    if repeated is not None:
        raise InputError(f"{path}: {repeated} would run twice; a value stands twice in a list")
