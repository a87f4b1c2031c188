from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from qknorm.screen import Screen
from qknorm.training import progress as progress_module
from tests.training.toy import trainer


def test_a_person_sees_a_bar_and_a_file_gets_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "_SECONDS_BETWEEN_LINES", 0.0)
    facts = r"loss \d+\.\d+, lr 1\.00e-02, [\d,]+ tokens/s, at most \d+ seconds? left"
    for terminal in (True, False):
        printed = io.StringIO()
        console = Screen(file=printed, force_terminal=terminal, width=160, color_system=None)
        trainer(tmp_path / str(terminal), console=console).train()
        text = printed.getvalue()
        assert ("━" in text) == terminal
        assert len(re.findall(rf"update \d+ of 12: {facts}", text)) == (3 if terminal else 3 + 12)
        assert len(re.findall(r"dev_bleu \d", text)) == 3
        if terminal:
            assert re.findall(rf"12/12 ━+ {facts}", text)
