"""What all groups of keys of a recipe have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel, ConfigDict, model_validator

from qknorm.errors import InputError


class Renamed(NamedTuple):
    """What a key of an earlier version is called now, and those of its values that have another name too."""

    key: str
    values: Mapping[str, str]


class RecipePart(BaseModel):
    """A group of keys, checked: one that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    old_keys: ClassVar[Mapping[str, Renamed]] = {}
    """Keys of earlier versions, which recipes and run folders may still have."""
    short_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that stand for options of a value, so that they may be given without it."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, content: Any) -> Any:
        return cls.as_written_now(content) if isinstance(content, dict) else content

    @classmethod
    def as_written_now(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content with keys of earlier versions under their new names."""
        result = dict(content)
        for old, (key, values) in cls.old_keys.items():
            if old in result and key in result:
                raise InputError(f"{old} is the former name of {key}; give one of them")
            if old in result:
                value = result.pop(old)
                result[key] = values.get(value, value) if isinstance(value, str) else value
        return result
