"""Values of a recipe that name a thing of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema


class OneOf:
    """Stands in an annotation: `Annotated[str, OneOf(SCHEDULES)]` is one of the names that the table has by then.

    fits: which entries of the table may be chosen, if not all.
    """

    def __init__(self, table: Mapping[str, Any], fits: Callable[[Any], bool] = lambda _: True) -> None:
        self.table, self.fits = table, fits

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    @property
    def names(self) -> list[str]:
        return [name for name, entry in self.table.items() if self.fits(entry)]

    def _checked(self, name: Any) -> str:
        if name in self.names:
            return str(name)
        *others, last = map(repr, self.names)
        raise PydanticCustomError("one_of", "Input should be {names}", {"names": f"{', '.join(others)} or {last}"})
