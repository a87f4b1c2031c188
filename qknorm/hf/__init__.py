"""transformers: how its families normalise queries and keys, and their attention as ours, both ways.

transformers itself is imported only where it is needed; a spec or a layer needs torch alone.
"""

from qknorm.hf.interface import add_lp_norms, register
from qknorm.hf.layers import from_hf, to_hf
from qknorm.hf.models import TransformersAttention, attention_layers, replace_attention, restore_attention
from qknorm.hf.qwen3 import qwen3_attention_weights, to_qwen3
from qknorm.hf.spec import FAMILIES, QKNormSpec, spec_of
from qknorm.hf.table import conventions_table

__all__ = [
    "FAMILIES",
    "QKNormSpec",
    "TransformersAttention",
    "add_lp_norms",
    "attention_layers",
    "conventions_table",
    "from_hf",
    "qwen3_attention_weights",
    "register",
    "replace_attention",
    "restore_attention",
    "spec_of",
    "to_hf",
    "to_qwen3",
]
