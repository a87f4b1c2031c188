"""Attention with Lp-normalised queries and keys."""

from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qknorm.attention.functional import qk_attention, qk_attention_weights
    from qknorm.attention.lp import lp_normalize
    from qknorm.attention.module import KeyValueCache, KeyValues, LpNorm, QKNormAttention, parameter_groups
    from qknorm.attention.scale import comparable_scale, henry_scale, percentile_length
    from qknorm.decoding.language_model import LanguageModel as LanguageModel
    from qknorm.decoding.translator import Translator as Translator

__version__ = _version("qknorm")

# The library, which needs torch alone.
__all__ = [
    "KeyValueCache",
    "KeyValues",
    "LpNorm",
    "QKNormAttention",
    "__version__",
    "comparable_scale",
    "henry_scale",
    "lp_normalize",
    "parameter_groups",
    "percentile_length",
    "qk_attention",
    "qk_attention_weights",
]

_HOMES = {
    **dict.fromkeys(("qk_attention", "qk_attention_weights"), "qknorm.attention.functional"),
    "lp_normalize": "qknorm.attention.lp",
    **dict.fromkeys(
        ("KeyValueCache", "KeyValues", "LpNorm", "QKNormAttention", "parameter_groups"), "qknorm.attention.module"
    ),
    **dict.fromkeys(("comparable_scale", "henry_scale", "percentile_length"), "qknorm.attention.scale"),
    "LanguageModel": "qknorm.decoding.language_model",  # of the toolkit, as is the next
    "Translator": "qknorm.decoding.translator",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, and only then: `qknorm --help` needs no torch, and the library needs no toolkit."""
    if name not in _HOMES:
        raise AttributeError(f"module 'qknorm' has no attribute {name!r}")
    found = globals()[name] = getattr(_import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
