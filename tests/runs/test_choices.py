from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import BaseModel, ValidationError

from qknorm.runs.choices import OneOf


class Choice(BaseModel):
    schedule: Annotated[str, OneOf({"constant": 1, "cosine": 2})]


def test_a_name_of_the_table_is_taken_and_another_refused_with_all_of_them() -> None:
    assert Choice(schedule="cosine").schedule == "cosine"
    with pytest.raises(ValidationError, match="'constant' or 'cosine'"):
        Choice(schedule="linear")
