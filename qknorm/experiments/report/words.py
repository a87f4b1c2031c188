"""What a report says in sentences, for somebody who has not read the papers."""

from __future__ import annotations

from collections.abc import Sequence

from qknorm.runs.language_recipe import GPTRecipe
from qknorm.runs.norm_recipe import LpRecipe
from qknorm.runs.recipe import ModelRecipe

FEW = 3
"""Up to this many things are named one by one."""
_COUNTS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


def heading(names: Sequence[str], folder: str) -> str:
    """The names of what is shown, or that of the folder if they are many."""
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:]))) if len(names) <= FEW else folder


def counted(count: int, thing: str) -> str:
    """Two translators, 28,995 pairs."""
    number = _COUNTS[count] if count < len(_COUNTS) else f"{count:,}"
    return f"{number} {thing}{'' if count == 1 else 's'}"


def attention(model: ModelRecipe | GPTRecipe) -> str:
    norm = model.qk_norm
    if isinstance(norm, LpRecipe):
        return f"queries and keys normalised, p = {norm.p:g}"
    return {
        "rms": "queries and keys by RMSNorm",
        "layer": "queries and keys by LayerNorm",
        "none": "plain scaled dot products",
    }.get(norm.kind, f"queries and keys normalised ({norm.kind})")
