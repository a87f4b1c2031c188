from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from qknorm.experiments.experiment import Experiment
from qknorm.experiments.page import write
from qknorm.experiments.recipe import About
from qknorm.experiments.results import RunResult
from qknorm.experiments.slurm import Slurm, run_task
from qknorm.experiments.spanned import plan_sweep
from qknorm.experiments.views.rates import answer, best_rate, sensitivity
from qknorm.screen import Screen
from tests.experiments.views.outcomes import result
from tests.sweeps import results_in

RATES = Experiment(about=About(title="Rates", question="Which?", shows="rates"))

LOGITS = {"none": 200.0, "rms": 20.0}


def rate_sweep(lost: dict[str, dict[float, float]]) -> list[RunResult]:
    """Two seeds of each norm at each rate; `lost` is how far its final loss is above 2."""
    return [
        result(
            {"qk_norm": norm, "optimizer": "adamw", "peak": rate, "seed": seed},
            [3.0, 2.0 + above],
            largest_logit=[LOGITS[norm], 1.0],
        )
        for norm, by_rate in lost.items()
        for rate, above in by_rate.items()
        for seed in (1, 2)
    ]


def test_the_learning_rate_s_page(tmp_path: Path) -> None:
    runs = rate_sweep({"none": {0.001: 0.0, 0.01: 0.6}, "rms": {0.001: 0.1, 0.01: 0.0}})
    found = answer(RATES, runs)
    write(RATES, runs, found, found.draw(tmp_path / "figures"), tmp_path)
    losses, logits = found.tables
    assert losses.columns == ["", "0.001", "0.01", "best rate", "sensitivity"]
    assert [(row[0], row[3], row[4]) for row in losses.rows] == [
        ("no normalisation", "0.001", "0.3000 ± 0.0000"),
        ("RMSNorm", "0.01", "0.0500 ± 0.0000"),
    ]
    assert [row[1].split()[0] for row in logits.rows] == ["200.0", "20.0"]
    assert found.sentences == [
        "With optimizer adamw, the lowest final losses over the learning rate were: no normalisation 2.0000 at 0.001 "
        "(mean of all rates 0.3000 higher); RMSNorm 2.0000 at 0.01 (mean of all rates 0.0500 higher)."
    ]
    records = list(csv.DictReader((tmp_path / "summary.csv").read_text().splitlines()))
    assert [
        (record["system"], float(record["rate"]), record["is_best"], float(record["final_val_loss_mean"]))
        for record in records
    ] == [
        ("no normalisation", 0.001, "True", 2.0),
        ("no normalisation", 0.01, "False", 2.6),
        ("RMSNorm", 0.001, "False", 2.1),
        ("RMSNorm", 0.01, "True", 2.0),
    ]
    assert [float(record["sensitivity_mean"]) for record in records[::2]] == [pytest.approx(0.3), pytest.approx(0.05)]
    tex = (tmp_path / "summary.tex").read_text()
    assert tex.count(r"\toprule") == 2
    assert r"\caption{optimizer adamw. Final loss by the highest learning rate" in tex
    page = (tmp_path / "summary.md").read_text()
    assert page.startswith("# Rates\n\n**Question.** Which?\n\n**Result.** With optimizer adamw")
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{name}.{kind}" for name in ("learning-rates", "logits") for kind in ("png", "svg", "pdf")
    }


def test_runs_that_failed_stand_where_their_loss_would() -> None:
    runs = rate_sweep({"none": {0.001: 0.0, 0.1: 0.0}, "rms": {0.001: 0.1}})
    broken = [replace(run, status="failed") if run.settings["peak"] == 0.1 else run for run in runs]
    losses, logits = answer(RATES, broken).tables
    assert losses.columns[1:3] == ["0.001", "0.1"]
    assert [row[2] for row in losses.rows] == [row[2] for row in logits.rows] == ["2 failed", ""]
    one_left = [*broken[:2], replace(broken[2], status="done"), *broken[3:]]
    losses, _ = answer(RATES, one_left).tables
    assert losses.rows[0][2] == "2.0000, 1 failed"


def test_the_sensitivity_of_a_fold_is_the_mean_of_its_seeds() -> None:
    losses = {(0, 1): (2.0, 2.2), (0, 2): (3.0, 3.4), (1, 1): (2.0, 2.6), (1, 2): (4.0, 4.4)}  # by fold and seed
    by_rate = {
        rate: [result({"fold": fold, "seed": seed}, [both[place]]) for (fold, seed), both in losses.items()]
        for place, rate in enumerate((0.001, 0.01))
    }
    found = sensitivity(by_rate)
    assert found.count == 2
    assert found.mean == pytest.approx((0.1 + 0.2 + 0.3 + 0.2) / 4)


UNTRAINED = math.log(65)


def at_rates(losses: dict[float, float | None]) -> dict[float, list[RunResult]]:
    """A run at each rate with its final loss, or one that diverged."""
    done = {rate: result({"peak": rate}, [9.0 if loss is None else loss]) for rate, loss in losses.items()}
    return {
        rate: [replace(run, untrained_loss=UNTRAINED, status="failed" if losses[rate] is None else "done")]
        for rate, run in done.items()
    }


def test_a_run_that_diverged_counts_as_an_untrained_model() -> None:
    found = sensitivity(at_rates({0.001: 2.0, 0.01: 2.4, 0.1: None}))
    assert found.mean == pytest.approx((0.0 + 0.4 + UNTRAINED - 2.0) / 3)
    assert found.mean > sensitivity(at_rates({0.001: 2.0, 0.01: 2.4})).mean


def test_a_seed_that_never_finished_says_nothing_of_rates() -> None:
    first, second = at_rates({0.001: 2.0, 0.1: 2.4}), at_rates({0.001: None, 0.1: None})
    by_rate = {
        rate: [replace(run, settings={"seed": seed}) for seed, runs in ((1, first), (2, second)) for run in runs[rate]]
        for rate in first
    }
    assert sensitivity(by_rate).mean == pytest.approx(0.2)


@pytest.mark.parametrize("loss", [5.0, 1e9, math.inf, math.nan])
def test_a_loss_above_that_of_an_untrained_model_is_capped(loss: float) -> None:
    assert sensitivity(at_rates({0.001: 2.0, 0.1: loss})).mean == pytest.approx((UNTRAINED - 2.0) / 2)


def test_the_best_rate_is_not_one_at_which_half_of_the_seeds_diverge() -> None:
    risky = at_rates({0.1: 1.9})[0.1] + at_rates({0.1: None})[0.1]
    assert best_rate({0.01: at_rates({0.01: 2.0})[0.01], 0.1: risky}) == 0.01


def test_a_system_that_always_diverges_has_no_sensitivity_and_is_named() -> None:
    both = {"none": at_rates({0.001: None, 0.1: None}), "rms": at_rates({0.001: 2.0, 0.1: 2.2})}
    runs = [
        replace(run, settings=run.settings | {"qk_norm": norm})
        for norm, by_rate in both.items()
        for repeats in by_rate.values()
        for run in repeats
    ]
    found = answer(RATES, runs)
    assert found.tables[0].rows[0] == ["no normalisation", "1 failed", "1 failed", "", ""]
    assert "no normalisation failed at every rate; RMSNorm 2.0000 at 0.001" in found.sentences[0]
    assert "counts as a loss of 4.1744, that of an untrained model" in found.tables[0].note


def test_whoever_diverges_counts_as_untrained_on_another_machine_too(folder: Path) -> None:
    """SLURM's tasks tell nobody but their folders how they ended."""
    planned = plan_sweep(folder / "tiny.yaml", None, ["p=2", "folds=null", "peak=[0.01, 1.0e+30]"])
    slurm, quiet = Slurm(), Screen(quiet=True)
    assert planned.run(folder / "out", quiet, slurm) == {}
    (listed,) = slurm.write(folder / "out").parent.glob("slurm-*.json")
    for task in range(len(slurm.cells)):
        run_task(listed, task)
    failures = planned.run(folder / "out", quiet, Slurm())
    assert [name for name, reason in failures.items() if " is nan at update" in reason] == list(failures)
    assert {name.rpartition("-")[2] for name in failures} == {"1e+30"}
    found = answer(planned.experiment, results_in(folder / "out"))
    assert [row[2] for row in found.tables[0].rows] == ["1 failed"] * 2
    counted = [record["counted_loss"] for record in found.records if record["rate"] == 1e30]
    assert counted == [pytest.approx(math.log(len(set("a line of some text\n"))))] * 2


def test_runs_that_start_otherwise_are_told_apart() -> None:
    runs = [
        result({"p": 3.0, "start": start, "peak": rate, "seed": 1}, [3.0, loss])
        for start, loss in (("same", 1.0), ("comparable", 3.0))
        for rate in (0.001, 0.01)
    ]
    losses, _ = answer(RATES, runs).tables
    assert [(row[0], row[1], row[-1]) for row in losses.rows] == [
        ("p = 3, same start", "1.0000", "0.0000"),
        ("p = 3, comparable start", "3.0000", "0.0000"),
    ]
