"""What the runs of a sweep left on disk, as one table."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qknorm.data.textfiles import replacing
from qknorm.errors import InputError
from qknorm.experiments.cells import is_done, read_result
from qknorm.runs.language_run import gpt_config, recipe_of

PLAIN = "none"  # the `start` of runs without normalisation
_MEASURED = {
    "language": ("best_val_loss", "final_val_loss", "best_step", "seconds"),
    "translation": ("bleu", "bleu_tokenized", "chrf", "best_dev_bleu", "updates", "seconds"),
}


@dataclass(frozen=True)
class RunResult:
    """One run: what distinguishes it, what came out, and its course (of a language model).

    Lists have an entry per validation.
    """

    name: str
    task: str
    settings: dict[str, Any]
    status: str
    measured: dict[str, float] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)
    alphas: list[list[float]] = field(default_factory=list)
    """Per layer, the mean over its heads; empty without normalisation."""
    alpha_start: float | None = None
    entropy: list[float] = field(default_factory=list)
    """Mean over layers and heads, as the two below."""
    saturated: list[float] = field(default_factory=list)
    use_of_bound: list[float] = field(default_factory=list)
    """The largest logit as a share of its bound; empty without normalisation."""

    @property
    def p(self) -> float | None:
        """None for a run without Lp normalisation."""
        value = self.settings.get("p")
        return None if value is None else float(value)

    @property
    def start(self) -> str:
        if self.settings.get("qk_norm", "lp") != "lp":
            return PLAIN
        return str(self.settings.get("start", "same"))

    @property
    def block(self) -> tuple[tuple[str, Any], ...]:
        """What two runs must share to be compared: the fold, and whatever else is not p or its start."""
        others = {key: value for key, value in self.settings.items() if key not in ("p", "start", "qk_norm")}
        return tuple(sorted(others.items()))

    def row(self) -> dict[str, Any]:
        """The line of results.csv."""
        first: dict[str, Any] = {}
        if self.task == "language":
            first = {"p": self.settings.get("p", ""), "start": self.start, "fold": self.settings.get("fold", "")}
        others = {key: value for key, value in self.settings.items() if key not in first}
        measured = {key: self.measured.get(key, "") for key in _MEASURED[self.task]}
        return first | others | measured | {"status": self.status}


def load_results(folder: Path, failures: Mapping[str, str] | None = None) -> list[RunResult]:
    """Every run of the sweep's plan, done or not."""
    try:
        plan = json.loads((folder / "sweep.json").read_text(encoding="utf-8"))
        task, cells = plan.get("task", "language"), plan["cells"]
    except (OSError, ValueError, KeyError):
        raise InputError(f"{folder} is not the folder of a sweep: there is no readable sweep.json in it") from None
    return [_load(folder / cell["name"], task, cell["settings"], failures or {}) for cell in cells]


def write_results(results: Sequence[RunResult], extra: Mapping[str, Any], folder: Path) -> None:
    """results.csv, and results.json with the same rows and more."""
    rows = [result.row() for result in results]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    columns.sort(key=lambda key: key in (*_MEASURED[results[0].task], "status"))  # stable: what was measured comes last
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    for name, content in (
        ("results.csv", text.getvalue()),
        ("results.json", json.dumps({"runs": rows, **extra}, indent=1, ensure_ascii=False)),
    ):
        with replacing(folder / name) as file:
            file.write(content.encode())


def _load(folder: Path, task: str, settings: dict[str, Any], failures: Mapping[str, str]) -> RunResult:
    if not is_done(folder):
        return RunResult(folder.name, task, settings, "failed" if folder.name in failures else "missing")
    if task == "translation":
        return RunResult(folder.name, task, settings, "done", read_result(folder))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return RunResult(
        folder.name,
        task,
        settings,
        "done",
        read_result(folder),
        [line["step"] for line in lines],
        [line["val_loss"] for line in lines],
        [[_mean(alpha) for alpha in line["scales"].values()] for line in lines if line["scales"]],
        gpt_config(recipe_of(folder).model, 1).scale_init,
        [_mean([layer["entropy"] for layer in line["attention"]]) for line in lines],
        [_mean([layer["saturated"] for layer in line["attention"]]) for line in lines],
        [_use_of_bound(line["attention"]) for line in lines if line["attention"][0]["bound"] is not None],
    )


def _use_of_bound(layers: Sequence[Mapping[str, Any]]) -> float:
    return _mean(
        [
            logit / bound if bound else 0.0
            for layer in layers
            for logit, bound in zip(layer["largest_logit"], layer["bound"], strict=True)
        ]
    )


def _mean(numbers: Any) -> float:
    """Of a number, a list, or lists of lists of one length."""
    if isinstance(numbers, (int, float)):
        return float(numbers)
    return statistics.fmean(map(_mean, numbers))
