from __future__ import annotations

import sys
from pathlib import Path

import pytest

from qknorm.errors import InputError
from qknorm.runs.language_recipe import LanguageTrainingRecipe
from qknorm.runs.recipe import TrainingRecipe
from qknorm.training.loggers.table import LOGGERS, chosen_loggers
from tests.training.toy import trainer


@pytest.mark.parametrize("name", LOGGERS)
def test_without_its_package_a_sentence_says_how_to_get_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError, match=rf"install it with: pip install 'qknorm\[{name}\]'"):
        trainer(tmp_path, loggers=(name,))


@pytest.mark.parametrize("kind", [TrainingRecipe, LanguageTrainingRecipe])
def test_every_logger_is_a_key_of_every_task(kind: type[TrainingRecipe | LanguageTrainingRecipe]) -> None:
    assert chosen_loggers(kind()) == ()
    assert chosen_loggers(kind.model_validate(dict.fromkeys(LOGGERS, True))) == tuple(LOGGERS)
