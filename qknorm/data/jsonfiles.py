"""JSON files whose content has a type, which whoever writes one shares with whoever reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from qknorm.data.textfiles import read_lines, replacing
from qknorm.errors import InputError


class Stored(BaseModel):
    """The content of a file. Keys of other versions are passed over in reading, and never written."""

    model_config = ConfigDict(
        extra="ignore",
        frozen=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
        ser_json_inf_nan="constants",
    )

    indent: ClassVar[int | None] = None
    """How the file is laid out: None for one line."""

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """What a file holds; an InputError that names the file and the key if it is damaged."""
        return cls.of_text("\n".join(read_lines(path)), str(path))

    @classmethod
    def of_text(cls, text: str, where: str) -> Self:
        """The same of a text that stands at some place."""
        try:
            return cls.model_validate(json.loads(text))
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"]))
            reason = f"{key}: {first['msg']}" if key else "it has no keys"
            raise InputError(f"{where} is damaged: {reason}") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is damaged: {error}") from None

    def as_text(self) -> str:
        return json.dumps(self.content(), indent=self.indent, ensure_ascii=False)

    def content(self) -> dict[str, Any]:
        """By the keys that the file has; what has its default is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_defaults=True)

    def write(self, path: Path) -> None:
        with replacing(path) as file:
            file.write(self.as_text().encode())


class WithMeasures(Stored):
    """Beside its fields, numbers by the names of an open table, such as that of metrics.

    They are the field `measures` of a class, and stand in the file among its other keys.
    """

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, content: Any) -> Any:
        if not isinstance(content, dict) or "measures" in content:
            return content
        others = {key: value for key, value in content.items() if key not in cls.model_fields}
        numbers = {key: value for key, value in others.items() if type(value) in (int, float)}
        return {**content, "measures": numbers}

    def content(self) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for key, value in super().content().items():
            flat |= value if key == "measures" else {key: value}
        return flat
