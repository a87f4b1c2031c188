from __future__ import annotations

from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.runs.translator_run import TranslatorRun
from tests.runs.test_run import write


def test_another_task_is_named_with_the_command_for_it(tmp_path: Path) -> None:
    write(tmp_path, recipe_yaml="task: language\ndata: {corpus: tinyshakespeare}")
    with pytest.raises(InputError, match=r"holds a language model, not a translator; try: qknorm generate .*"):
        TranslatorRun.open(tmp_path).make_model()
