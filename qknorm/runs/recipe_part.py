"""What all groups of keys of a recipe have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator


class RecipePart(BaseModel):
    """A group of keys, checked: one that is not known is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    short_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys that stand for options of a value, so that they may be given without it."""

    @model_validator(mode="before")
    @classmethod
    def _read(cls, content: Any) -> Any:
        return cls.as_written_now(content) if isinstance(content, dict) else content

    @classmethod
    def as_written_now(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        """What is meant by contents that may be short, or of an earlier version."""
        return dict(content)
