"""The first paper's two models (Henry et al. 2020)."""

from __future__ import annotations

from qknorm.experiments.papers.table import load_systems

FULL, BASELINE = (load_systems()[name] for name in ("qknorm", "baseline"))
