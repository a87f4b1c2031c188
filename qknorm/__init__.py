"""Attention with Lp-normalised queries and keys."""

from importlib.metadata import version as _version

from qknorm.attention.functional import qk_attention, qk_attention_weights
from qknorm.attention.lp import lp_normalize
from qknorm.attention.module import KeyValueCache, KeyValues, LpNorm, QKNormAttention, parameter_groups
from qknorm.attention.scale import comparable_scale, henry_scale, percentile_length

__version__ = _version("qknorm")

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
