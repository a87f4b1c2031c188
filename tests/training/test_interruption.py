from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.training.toy import trainer


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="there is no such signal here")
@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_closed_terminal_ends_a_run_unless_it_is_ignored(is_ignored: bool, tmp_path: Path) -> None:
    """Ignored as by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_ignored else signal.SIG_DFL)
    try:
        loop = trainer(tmp_path)
        update = loop.update

        def close_terminal_and_update(stream: Iterator[Any]) -> None:
            if loop.progress.step == 5:
                os.kill(os.getpid(), signal.SIGHUP)
            update(stream)

        loop.update = close_terminal_and_update  # type: ignore[method-assign]
        with contextlib.nullcontext() if is_ignored else pytest.raises(KeyboardInterrupt):
            loop.train()
        assert loop.progress.step == (12 if is_ignored else 6)
    finally:
        signal.signal(signal.SIGHUP, before)
