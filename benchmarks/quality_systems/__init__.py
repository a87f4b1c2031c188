"""The translation systems whose quality per minute is compared: what is the same for all, and what each leaves behind.

Only the standard library is imported here, since JoeyNMT's own environment reads this too.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

SPLITS = ("train", "dev", "test")
UPDATES_PER_LOOK = 1000  # after which JoeyNMT's schedule looks for a plateau, as published
LATE = 1.05  # what exceeds its minutes by one twentieth still belongs to them


@dataclass(frozen=True)
class Contest:
    """What is the same for all systems."""

    text: Path
    """Folder of train, dev and test in two languages, without pairs of which one side is blank."""
    source: str
    target: str
    tokenized: bool
    """Whether the text is tokenised: it is then scored detokenised."""
    threads: int

    def file(self, split: str, language: str) -> Path:
        return self.text / f"{split}.{language}"

    def lines(self, split: str, language: str) -> list[str]:
        return self.file(split, language).read_text(encoding="utf-8").removesuffix("\n").split("\n")

    @property
    def references(self) -> list[str]:
        return self.lines("test", self.target)


@dataclass(frozen=True)
class Validation:
    """A point of a learning curve: minutes since the start of the system, BLEU on dev by our function for all."""

    minutes: float
    updates: int
    bleu: float


class Clock:
    """When a system validates, and when it stops. It stands still while a system validates.

    A model that has not yet learned to end its sentences takes minutes to translate a dev set; counted, they would say
    more about how often it is asked than about how it learns.
    """

    def __init__(self, minutes: float, validations: int) -> None:
        self._began, self._end, self._part = time.monotonic(), 60 * minutes, 60 * minutes / validations
        self._done = 0
        self.validating = 0.0
        """Seconds spent so far, which are not counted."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began - self.validating

    @property
    def is_over(self) -> bool:
        return self.seconds >= self._end

    @property
    def is_due(self) -> bool:
        """At equal parts of the minutes, the last at their end."""
        return self.seconds >= (self._done + 1) * self._part

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """During a validation."""
        before = self.seconds
        yield
        self.validating += self.seconds - before
        self._done = int(self.seconds / self._part)


def best_by(minutes: float, validations: Iterable[Validation]) -> Validation | None:
    """The first of the best validations that ended in time."""
    in_time = [point for point in validations if point.minutes <= LATE * minutes]
    return max(in_time, key=lambda point: point.bleu, default=None)


@dataclass(frozen=True)
class Outcome:
    """What a system has achieved in its minutes.

    tests: for each number of minutes the scores of the checkpoint that was the best on the dev set by then.
    facts: updates, speed, size and whatever else a reader should know.
    took: minutes until its test was done, where these count.
    """

    minutes: float
    curve: list[Validation]
    tests: dict[str, dict[str, Any]]
    facts: dict[str, Any] = field(default_factory=dict)
    took: float | None = None

    @property
    def is_late(self) -> bool:
        return self.took is not None and self.took > LATE * self.minutes

    def save(self, path: Path) -> None:
        scratch = path.with_name(f".{path.name}")
        scratch.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        scratch.replace(path)

    @classmethod
    def load(cls, path: Path) -> Outcome:
        return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Outcome:
        return cls(**{**content, "curve": [Validation(**point) for point in content["curve"]]})


def write_copy(lines: Sequence[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


_running: list[subprocess.Popen[bytes]] = []


def run_logged(command: Sequence[str | Path], log: Path, threads: int, more: Mapping[str, str] | None = None) -> None:
    """Run a system with so many threads in a process of its own; what it says goes to a file."""
    limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
    with log.open("ab") as file:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **limits, **(more or {})},
        )
        _running.append(process)
        code = process.wait()
        _running.remove(process)
    if code:
        last = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
        raise RuntimeError(f"{Path(command[0]).name} ended with {code}: {last[:300]} (all of it in {log})")


def stop_all() -> None:
    """End the systems that are running."""
    for process in _running:
        process.terminate()
