"""Attention with Lp-normalised queries and keys."""

from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from qknorm.attention.functional import qk_attention, qk_attention_weights
from qknorm.attention.lp import lp_normalize
from qknorm.attention.module import KeyValueCache, KeyValues, LpNorm, QKNormAttention, parameter_groups
from qknorm.attention.scale import comparable_scale, henry_scale, percentile_length

if TYPE_CHECKING:
    from qknorm.decoding.language_model import LanguageModel
    from qknorm.decoding.translator import Translator

__version__ = _version("qknorm")


def __getattr__(name: str) -> Any:
    """What needs more than torch is imported when it is asked for."""
    if name == "Translator":
        from qknorm.decoding.translator import Translator

        return Translator
    if name == "LanguageModel":
        from qknorm.decoding.language_model import LanguageModel

        return LanguageModel
    raise AttributeError(f"module 'qknorm' has no attribute {name!r}")


__all__ = [
    "KeyValueCache",
    "KeyValues",
    "LanguageModel",
    "LpNorm",
    "QKNormAttention",
    "Translator",
    "__version__",
    "comparable_scale",
    "henry_scale",
    "lp_normalize",
    "parameter_groups",
    "percentile_length",
    "qk_attention",
    "qk_attention_weights",
]
