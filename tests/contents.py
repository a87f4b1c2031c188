"""Contents of run folders with usual numbers where a test does not care."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qknorm.runs.contents import TranslationResult, ValidationLine


def validation(step: int = 10, seconds: float = 1.0, **others: Any) -> ValidationLine:
    """A line of metrics.jsonl; `measures` and `scales` are among the others."""
    usual = {"tokens_per_second": 100.0, "train_loss": 1.0, "lr": 0.001}
    return ValidationLine(step=step, seconds=seconds, **usual | others)


def write_metrics(folder: Path, *lines: ValidationLine) -> None:
    (folder / "metrics.jsonl").write_text("".join(f"{line.as_text()}\n" for line in lines))


def translated(best_dev_bleu: float, **others: Any) -> TranslationResult:
    """The result of a translator."""
    return TranslationResult(best_dev_bleu=best_dev_bleu, **{"updates": 10, "seconds": 1.0} | others)
