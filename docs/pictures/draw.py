"""Draws the pictures of docs/mathematics.md beside itself: python docs/pictures/draw.py [FOLDER]"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch

import qknorm

NORMS = (1.0, 1.5, 2.0, 3.0, 4.0, math.inf)
SWEPT = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)  # the second paper's
SAMPLES = 20_000
TOKENS, HEAD_DIM, GROWTHS = 24, 64, (1, 2, 8)

# Okabe and Ito's colours, which survive colour blindness; lines also differ in dash or marker.
BLACK, ORANGE, SKY, GREEN, BLUE, RED = "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00"
STYLE = {
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def saturation(path: Path) -> None:
    """Attention of the same queries and keys while they grow, as training lets them: plain above, normalised below."""
    figure, axes = plt.subplots(2, len(GROWTHS), figsize=(8.4, 5.9), layout="constrained")
    query, key = related_queries_and_keys()
    rows = (("plain", plain_weights), ("normalised, p = 2", normalized_weights))
    for row, (name, weights_of) in enumerate(rows):
        for axis, growth in zip(axes[row], GROWTHS, strict=True):
            weights = weights_of(query * growth, key * growth)[0, 0]
            image = axis.imshow(weights.numpy(), cmap="cividis", vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            axis.set_title(f"{name}, q and k × {growth}")
            axis.set_xlabel(f"listens to {tokens_listened_to(weights):.1f} of {TOKENS}")
        axes[row, 0].set_ylabel("query")
    figure.colorbar(image, ax=axes, shrink=0.8, label="attention weight")
    _save(figure, path)


def related_queries_and_keys() -> tuple[torch.Tensor, torch.Tensor]:
    """(1, 1, tokens, head_dim) each: neighbours resemble one another, so that there is something to attend to."""
    noise = torch.randn(2, TOKENS + 4, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    smooth = noise.unfold(1, 5, 1).mean(-1) * math.sqrt(5)
    return (smooth[0] * 0.5 + smooth[1])[None, None], smooth[1][None, None]


def plain_weights(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return (query @ key.mT / math.sqrt(HEAD_DIM)).softmax(-1)


def normalized_weights(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return qknorm.qk_attention_weights(query, key, math.sqrt(HEAD_DIM))


def tokens_listened_to(weights: torch.Tensor) -> float:
    """The exponential of the entropy, mean over the queries."""
    return float(torch.special.entr(weights).sum(-1).exp().mean())


def unit_balls(path: Path) -> None:
    """Where the vectors of norm 1 lie, and where one vector is taken by normalising."""
    figure, axis = plt.subplots(figsize=(6.2, 4.2), layout="constrained")
    angles = torch.linspace(0, 2 * math.pi, 2881)
    circle = torch.stack([angles.cos(), angles.sin()], -1)
    colours = dict(zip(NORMS, (RED, ORANGE, BLACK, GREEN, SKY, BLUE), strict=True))
    vector = torch.tensor([1.29, 0.83])
    axis.annotate("", vector.tolist(), (0, 0), arrowprops={"arrowstyle": "-|>", "color": "0.45", "lw": 1.2}, zorder=1)
    axis.text(1.31, 0.85, "x", color="0.3", fontsize=12, style="italic")
    for p, colour in colours.items():
        ball, point = qknorm.lp_normalize(circle, p), qknorm.lp_normalize(vector, p)
        name = "∞" if math.isinf(p) else f"{p:g}"
        axis.plot(*ball.T, color=colour, label=f"p = {name}", zorder=2)
        axis.plot(*point, "o", color=colour, markersize=6, markeredgecolor="white", zorder=3)
    axis.axhline(0, color="0.85", lw=0.8, zorder=0)
    axis.axvline(0, color="0.85", lw=0.8, zorder=0)
    axis.set(aspect="equal", xlim=(-1.12, 1.45), ylim=(-1.12, 1.12), xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    axis.set_title("All vectors with ‖x‖ₚ = 1, and x̂ = x / ‖x‖ₚ for one x")
    figure.legend(loc="outside right center", handlelength=1.4, reverse=True)
    _save(figure, path)


def bounds(path: Path) -> None:
    """How large q̂·k̂ can be, and how much weight a softmax can then give to one key."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.5), layout="constrained")
    ps = np.linspace(1, 6, 251)
    for dim, colour, dash in ((16, ORANGE, ":"), (64, BLUE, "-"), (128, GREEN, "--")):
        limits = [largest_product(p, dim) for p in ps]
        left.plot(ps, limits, color=colour, ls=dash)
        left.text(6.08, limits[-1], f"d = {dim}", color=colour, va="center")
    for p in (3, 4):
        left.plot(p, largest_product(p, 64), "o", color=BLUE)
        left.annotate(f"{largest_product(p, 64):g}", (p, largest_product(p, 64)), (6, -11), textcoords="offset points",
                      color=BLUE)  # fmt: skip
    left.set(yscale="log", xlabel="p", xlim=(1, 6), yticks=(1, 2, 4, 8, 16))
    left.yaxis.set_major_formatter("{x:g}")
    left.minorticks_off()
    left.set_title("The largest possible |q̂·k̂|")

    scales = np.linspace(0, 20, 401)
    for length, colour, dash in ((10, ORANGE, ":"), (75, BLUE, "-"), (500, GREEN, "--")):
        right.plot(scales, [largest_weight(g, length) for g in scales], color=colour, ls=dash, label=f"L = {length}")
        start = qknorm.henry_scale(length)
        right.plot(start, largest_weight(start, length), "o", color=colour, clip_on=False)
    right.set(xlabel="g", xlim=(0, 20), xticks=range(0, 21, 4), ylim=(0, 1.03))
    right.set_title("Weight of a key with q̂·k̂ = 1, all others with 0")
    right.legend(loc="center right", title="dots: log₂(L² − L)", alignment="left")
    _save(figure, path)


def alpha_start(path: Path) -> None:
    """How spread out q̂·k̂ is, and what a start of g makes of it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(8.6, 3.5), layout="constrained")
    ps = np.linspace(1, 4, 25)
    for dim, colour, marker in ((16, ORANGE, "s"), (64, BLUE, "o"), (256, GREEN, "D")):
        left.plot(ps, [predicted_spread(p, dim) for p in ps], color=colour, lw=1.4)
        sampled = [sampled_spread(p, dim) for p in SWEPT]
        left.plot(SWEPT, sampled, marker, color=colour, markersize=5.5, label=f"d = {dim}")
    left.set(yscale="log", xlabel="p", yticks=(0.001, 0.01, 0.1, 1), xticks=range(1, 5))
    left.yaxis.set_major_formatter("{x:g}")
    left.set_title("Standard deviation of q̂·k̂")
    left.legend(loc="lower right", title="points sampled, lines predicted", alignment="left")

    same = [8 * sampled_spread(p, 64) for p in SWEPT]
    comparable = [qknorm.comparable_scale(p, 64, 8) * sampled_spread(p, 64) for p in SWEPT]
    right.plot(SWEPT, same, "--", marker="^", color=RED)
    right.plot(SWEPT, comparable, "-", marker="o", color=BLUE)
    right.text(3.05, 3.75, "the same g = 8", color=RED, ha="right")
    right.text(4, 1.2, "comparable g", color=BLUE, ha="right")
    right.set(xlabel="p", xticks=range(1, 5), ylim=(0, 5.2))
    right.set_title("Standard deviation of the logits g q̂·k̂, d = 64")
    _save(figure, path)


def largest_product(p: float, dim: int) -> float:
    """|q̂·k̂| ≤ d^max(0, 1 − 2/p)."""
    return float(dim ** max(0.0, 1 - 2 / p))


def largest_weight(g: float, length: int) -> float:
    """What softmax gives to a key with q̂·k̂ = 1 when all others are orthogonal to the query."""
    return 1 / (1 + (length - 1) * math.exp(-g))


def predicted_spread(p: float, dim: int) -> float:
    """√d / (d · E|z|^p)^(2/p), by way of the start that undoes it."""
    return 1 / (math.sqrt(dim) * qknorm.comparable_scale(p, dim, 1.0))


def sampled_spread(p: float, dim: int) -> float:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, SAMPLES, dim, generator=generator).unbind(0)
    return float((qknorm.lp_normalize(q, p) * qknorm.lp_normalize(k, p)).sum(-1).std())


def _save(figure: plt.Figure, path: Path) -> None:
    figure.savefig(path, dpi=160, metadata={"Software": None})
    plt.close(figure)


def draw(folder: Path) -> None:
    with plt.rc_context(STYLE):
        saturation(folder / "saturation.png")
        unit_balls(folder / "unit_balls.png")
        bounds(folder / "bounds.png")
        alpha_start(folder / "alpha_start.png")


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
