from __future__ import annotations

from pathlib import Path

from qknorm.runs.run import Run
from qknorm.tasks.table import TASKS


def test_the_result_of_a_language_model_leaves_the_time_of_validations_out(tmp_path: Path) -> None:
    run = Run(tmp_path)
    lines = [(10, 3.0, 2.0), (20, 6.0, 1.5), (30, 9.0, 1.75)]
    run.metrics_file.write_text(
        "".join(
            f'{{"step": {step}, "seconds": {seconds}, "val_loss": {loss}, "validation_seconds": 1.0}}\n'
            for step, seconds, loss in lines
        )
    )
    described = TASKS["language"]
    result = described.result(run)
    assert tuple(result) == described.measured
    assert result == {"best_val_loss": 1.5, "final_val_loss": 1.75, "best_step": 20, "seconds": 6.0}
