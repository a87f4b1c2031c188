"""Attention with Lp-normalised queries and keys."""

from contextlib import nullcontext as _nullcontext
from importlib import import_module as _import_module
from importlib.metadata import version as _version
from typing import TYPE_CHECKING, Any

from qknorm.errors import needs as _needs

if TYPE_CHECKING:
    from qknorm import hf as hf
    from qknorm.attention import testing
    from qknorm.attention.cache import FixedKeyValueCache, KeyValueCache, KeyValues
    from qknorm.attention.functional import causal_mask, normalize_qk, qk_attention, qk_attention_weights
    from qknorm.attention.graft import fold_, graft, strength_
    from qknorm.attention.length import LogLength
    from qknorm.attention.lp import lp_normalize
    from qknorm.attention.module import QKNormAttention, parameter_groups
    from qknorm.attention.multihead import MultiheadAttention
    from qknorm.attention.norms import LpNorm
    from qknorm.attention.scale import comparable_scale, henry_scale, percentile_length
    from qknorm.attention.watch import watch
    from qknorm.decoding.language_model import LanguageModel as LanguageModel
    from qknorm.decoding.translator import Translator as Translator
    from qknorm.ops.rotary import Rotary

__version__ = _version("qknorm")

# The library, which needs torch alone.
__all__ = [
    "FixedKeyValueCache",
    "KeyValueCache",
    "KeyValues",
    "LogLength",
    "LpNorm",
    "MultiheadAttention",
    "QKNormAttention",
    "Rotary",
    "__version__",
    "causal_mask",
    "comparable_scale",
    "fold_",
    "graft",
    "henry_scale",
    "lp_normalize",
    "normalize_qk",
    "parameter_groups",
    "percentile_length",
    "qk_attention",
    "qk_attention_weights",
    "strength_",
    "testing",
    "watch",
]

_HOMES = {
    **dict.fromkeys(("FixedKeyValueCache", "KeyValueCache", "KeyValues"), "qknorm.attention.cache"),
    **dict.fromkeys(
        ("causal_mask", "normalize_qk", "qk_attention", "qk_attention_weights"), "qknorm.attention.functional"
    ),
    **dict.fromkeys(("fold_", "graft", "strength_"), "qknorm.attention.graft"),
    "LogLength": "qknorm.attention.length",
    "lp_normalize": "qknorm.attention.lp",
    **dict.fromkeys(("QKNormAttention", "parameter_groups"), "qknorm.attention.module"),
    "MultiheadAttention": "qknorm.attention.multihead",
    "LpNorm": "qknorm.attention.norms",
    "Rotary": "qknorm.ops.rotary",
    **dict.fromkeys(("comparable_scale", "henry_scale", "percentile_length"), "qknorm.attention.scale"),
    "hf": "qknorm.hf",
    "testing": "qknorm.attention.testing",
    "watch": "qknorm.attention.watch",
    "LanguageModel": "qknorm.decoding.language_model",
    "Translator": "qknorm.decoding.translator",
}
_WHOLE = {"hf", "testing"}  # modules with names of their own
_OF_TOOLKIT = {"LanguageModel", "Translator"}


def __getattr__(name: str) -> Any:
    """Import what is asked for, and only then: `qknorm --help` needs no torch, and the library needs no toolkit."""
    if name not in _HOMES:
        raise AttributeError(f"module 'qknorm' has no attribute {name!r}")
    with _needs("toolkit", f"qknorm.{name}") if name in _OF_TOOLKIT else _nullcontext():
        home = _import_module(_HOMES[name])
    value = globals()[name] = home if name in _WHOLE else getattr(home, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
