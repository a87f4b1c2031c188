"""How a recipe says what happens to queries and keys: a kind of normalisation with its options, as one value.

`qk_norm: rms` is short for `qk_norm: {kind: rms}`. The options of `lp` may also stand beside it, as in `p: 3`: each of
them can then be changed by itself, and be a list of which a sweep takes one after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    model_serializer,
    model_validator,
)

from qknorm.attention.norms import KINDS, LpKind, QKNormKind, kind_of
from qknorm.attention.scale import comparable_scale, henry_scale
from qknorm.errors import InputError
from qknorm.runs.choices import OneOf
from qknorm.runs.recipe_part import RecipePart


class LpRecipe(RecipePart):
    """Queries and keys are divided by their Lp norm, and multiplied by a factor g."""

    kind: Literal["lp"] = "lp"
    p: float = Field(LpKind.p, ge=1, allow_inf_nan=True)
    """The norm, from 1 to .inf."""
    scale: Literal["learned", "fixed", "absent"] = "learned"
    """The factor g: learned, kept at its start, or left out (1)."""
    scale_init: float | Literal["henry", "comparable"] = "henry"
    """Where g starts at p = 2: a number, log2(L² − L) of the first paper, or as sharp as plain attention. L is the
    context of a language model, and `scale_percentile` of a translator."""
    start: Literal["same", "comparable"] | Annotated[float, Field(allow_inf_nan=True)] = "same"
    """Where g starts at other p: at the same value, or such that attention is as sharp as at p = 2; or as at this p."""
    per_head_scale: bool = LpKind.per_head_scale
    """One g per head instead of one per layer."""
    normalize_value: bool = LpKind.normalize_value
    """Values are normalised too (an ablation)."""

    @model_validator(mode="after")
    def _possible(self) -> LpRecipe:
        if isinstance(self.start, float) and not self.start >= 1:
            raise ValueError(f"model.start ({self.start:g}) must be same, comparable or a p from 1 on")
        return self

    @property
    def sharp_as(self) -> float:
        """The p at whose sharpness under one and the same g attention starts."""
        if self.start == "same":
            return self.p
        return 2.0 if self.start == "comparable" else self.start

    def first_scale(self, length: float, head_dim: int) -> float | None:
        """Where g starts for sequences of this length; None: as sharp as plain attention."""
        if self.scale_init == "comparable":
            return None
        scale = henry_scale(length) if self.scale_init == "henry" else self.scale_init
        if self.sharp_as == self.p:
            return scale
        return comparable_scale(self.p, head_dim, scale / comparable_scale(self.sharp_as, head_dim, 1.0))

    def starting_at(self, scale: float | None) -> QKNormKind:
        """The kind for layers of attention, with the start of g as a number."""
        return LpKind(
            p=self.p,
            scale_init=1.0 if self.scale == "absent" else scale,
            per_head_scale=self.per_head_scale,
            normalize_value=self.normalize_value,
            learn_scale=self.scale == "learned",
        )


class OtherNormRecipe(RecipePart):
    """Any other kind of the table, with the options that it has."""

    model_config = ConfigDict(extra="allow")

    kind: Annotated[str, OneOf(KINDS)]

    @model_validator(mode="after")
    def _possible(self) -> OtherNormRecipe:
        try:
            self.starting_at(None)
        except TypeError as error:  # of an option
            raise ValueError(f"model.qk_norm: {error}") from None
        return self

    @model_serializer(mode="wrap")
    def _short(self, serialized: SerializerFunctionWrapHandler) -> Any:
        return serialized(self) if self.model_extra else self.kind

    def first_scale(self, length: float, head_dim: int) -> None:  # noqa: ARG002
        """It has no g whose start a recipe would choose."""
        return

    def starting_at(self, scale: float | None) -> QKNormKind:  # noqa: ARG002
        """The kind for layers of attention."""
        return kind_of({"kind": self.kind, **(self.model_extra or {})})


def _class_of(norm: Any) -> str:
    kind = norm.get("kind", "lp") if isinstance(norm, dict) else getattr(norm, "kind", None)
    return "lp" if kind == "lp" else "other"


NormRecipe = Annotated[
    Annotated[LpRecipe, Tag("lp")] | Annotated[OtherNormRecipe, Tag("other")], Discriminator(_class_of)
]
LP_OPTIONS = frozenset(LpRecipe.model_fields) - {"kind"}


class WithNorm(RecipePart):
    """Keys of a model whose `qk_norm` is such a value."""

    short_keys: ClassVar[frozenset[str]] = LP_OPTIONS

    @classmethod
    def as_written_now(cls, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content with options of `lp` inside its `qk_norm`; those beside another kind say nothing."""
        apart = options_apart(super().as_written_now(content))
        options = {key: apart.pop(key) for key in LP_OPTIONS & apart.keys()}
        norm = apart.get("qk_norm", {})
        if isinstance(norm, RecipePart):
            return apart
        value = norm if isinstance(norm, Mapping) else {"kind": norm}
        value = {**value, **options} if _class_of(value) == "lp" else value
        return apart | ({"qk_norm": value} if value else {})


def options_apart(part: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of a part with the options of `lp` beside it, so that contents can be laid over each other."""
    norm = part.get("qk_norm")
    if not isinstance(norm, Mapping) or _class_of(norm) != "lp":
        return dict(part)
    options = {key: value for key, value in norm.items() if key != "kind"}
    for key in options.keys() & part.keys():
        raise InputError(f"{key} is given twice, in qk_norm and beside it; give it once")
    rest = {key: value for key, value in part.items() if key != "qk_norm"}
    return rest | ({"qk_norm": norm["kind"]} if "kind" in norm else {}) | options
