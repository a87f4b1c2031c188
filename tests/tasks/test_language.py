from __future__ import annotations

from pathlib import Path

from qknorm.runs.contents import LanguageResult
from qknorm.runs.run import Run
from qknorm.tasks.table import TASKS
from tests.contents import validation, write_metrics


def test_the_result_of_a_language_model_leaves_the_time_of_validations_out(tmp_path: Path) -> None:
    run = Run(tmp_path)
    lines = [(10, 3.0, 2.0), (20, 6.0, 1.5), (30, 9.0, 1.75)]
    write_metrics(
        tmp_path,
        *(validation(step, took, measures={"val_loss": loss}, validation_seconds=1.0) for step, took, loss in lines),
    )
    described = TASKS["language"]
    result = described.result(run)
    assert result.content().keys() == set(described.measured)
    assert result == LanguageResult(best_val_loss=1.5, final_val_loss=1.75, best_step=20, seconds=6.0)
