"""Ctrl-C, a closed terminal, and the SIGTERM of torchrun and of job schedulers: when the state can be saved."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Self


def _signals() -> list[signal.Signals]:
    """Those that end a run. A closed terminal does not where somebody said so: nohup ignores its signal."""
    always = [signal.SIGINT, signal.SIGTERM]
    if not hasattr(signal, "SIGHUP") or signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        return always
    return [*always, signal.SIGHUP]


class Interruption:
    """While entered, takes note of an interruption instead of raising KeyboardInterrupt in the middle of an update."""

    def __init__(self) -> None:
        self.requested = False
        self._raises = False

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        self._handlers = {number: signal.signal(number, self._notice) for number in _signals() if is_main}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Around work that leaves the state alone and may take long: here an interruption raises KeyboardInterrupt."""
        self._raises = True
        try:
            if self.requested:
                raise KeyboardInterrupt
            yield
        finally:
            self._raises = False

    def _notice(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.requested = True
        if self._raises:
            self._raises = False
            raise KeyboardInterrupt
