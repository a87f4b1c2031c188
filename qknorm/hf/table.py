"""One table of every family: its convention, and where its g starts in the unit of Henry et al., softmax(g · q̂k̂ᵀ)."""

from __future__ import annotations

from qknorm.errors import needs
from qknorm.hf.spec import FAMILIES, QKNormSpec, spec_of

_HEAD = ("family", "norm", "over", "weights", "rotation", "softmax scale", "head_dim", "g at the start")


def conventions_table() -> str:
    """Markdown, from the default configs of transformers with the norm switched on; the sharpest start comes last."""
    with needs("hf", "conventions_table"):
        from transformers import AutoConfig

    specs = []
    for name, family in FAMILIES.items():
        switch = {} if family.switch is None else {family.switch: True}
        specs.append(spec_of(AutoConfig.for_model(name, **switch)))
    normalized = [spec for spec in specs if spec.norm is not None]
    rows = [_HEAD, ("---",) * len(_HEAD), *map(_row, sorted(normalized, key=_order))]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _order(spec: QKNormSpec) -> tuple[float, str]:
    return spec.starting_scale() or 0.0, spec.family


def _row(spec: QKNormSpec) -> tuple[str, ...]:
    weights = f"{spec.offset:g} + {spec.weights}" if spec.offset else spec.weights
    rotation = {"after": "after the norm", "before": "before the norm", None: "none"}[spec.rotary]
    return (
        spec.family,
        str(spec.norm),
        spec.over,
        f"{weights}, biases" if spec.bias else weights,
        rotation,
        f"{spec.softmax_scale:.3g}",
        str(spec.head_dim),
        f"{spec.starting_scale():.1f}",
    )
