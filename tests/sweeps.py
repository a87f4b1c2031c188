"""Small sweeps."""

from __future__ import annotations

from pathlib import Path

from qknorm.experiments.experiment import PLAN, Experiment
from qknorm.experiments.machines import Machines
from qknorm.experiments.plan import Plan
from qknorm.experiments.results import RunResult, load_results
from qknorm.screen import Screen

TINY = """
task: language
name: tiny
data: {file: text, folds: 2}
model: {layers: 1, heads: 2, dim: 8, context: 8, dropout: 0, p: [2, 3]}
training: {batch: 2, iterations: 4, warmup: 1, validate_every: 2, validation_windows: 3}
baselines: [{qk_norm: none}]
"""


TRANSLATORS = """
name: translators
data: {source: train.en, target: train.gl, dev: [dev.en, dev.gl], test: [test.en, test.gl], merges: 100}
model: {dim: 8, feed_forward: 8, encoder_layers: 1, decoder_layers: 1, heads: [1, 2]}
training: {budget: 256, schedule: cosine, peak: 0.01, warmup: 1, max_updates: 4, validate_every: 2, seed: [1, 2]}
decoding: {validation_beam_size: 1, extra_length: 5}
"""


def run(plan: Plan, folder: Path) -> dict[str, str]:
    """In this process: what is run, not where, is of interest."""
    return plan.run(folder, Screen(quiet=True), Machines(jobs=1))


def results_in(folder: Path) -> list[RunResult]:
    """What the runs of a sweep left."""
    return load_results(Experiment.of_file(folder / PLAN), folder)
