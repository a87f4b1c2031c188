"""Values of a recipe that name a thing of a table."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class OneOf:
    """Stands in an annotation: `Annotated[str, OneOf(SCHEDULES)]` is one of the names that the table has by then."""

    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def _checked(self, name: Any) -> str:
        if isinstance(name, str) and name in self.names:
            return name
        *others, last = (repr(known) for known in self.names)
        raise PydanticCustomError("one_of", "Input should be {names}", {"names": f"{', '.join(others)} or {last}"})
