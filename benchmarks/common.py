"""What every benchmark does: say on which machine it ran, write its figures down, and answer for its targets."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

DEFAULT_OUT = Path("benchmarks/results")


def machine() -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "processor": platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
    }


def agg_pyplot() -> Any:
    """matplotlib, drawing into files only."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def finish(name: str, result: dict[str, Any], missed: Sequence[str], out: Path, console: Console) -> int:
    """Write the figures, say which targets were missed, and return the exit code."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    console.print(f"Written to {out}: {', '.join(sorted(path.name for path in out.glob(f'{name}.*')))}")
    console.print("\n".join(["Targets missed:", *missed]) if missed else "Every target is met.")
    return 1 if missed else 0
