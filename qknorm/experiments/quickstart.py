"""Attention with and without normalisation while queries and keys grow, as they do in training."""

from __future__ import annotations

import math
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch import Tensor

import qknorm
from qknorm.attention.functional import attention_weights
from qknorm.errors import InputError

TOKENS, HEAD_DIM = 24, 64
GROWTHS = (1, 2, 8)
P_VALUES = (1.5, 2.0, 3.0)


def run(folder: Path, console: Console) -> None:
    """Print the table, draw the picture, time one step."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; --out needs a folder")
    folder.mkdir(parents=True, exist_ok=True)
    query, key = related_queries_and_keys()
    console.print(
        f"\n{TOKENS} tokens attend to each other. Training lets queries and keys grow; here they grow by hand.\n"
        "Shown is how many tokens an average query really listens to (the exponential of the entropy).\n"
    )
    console.print(listening_table(query, key))
    picture = folder / "attention.png"
    draw(query, key, picture)
    console.print(
        "\nPlain attention ends up listening to one token each, whatever the angles say (the softmax saturates).\n"
        "Normalised attention depends on angles alone; how sharp it is, is learned by one parameter, g.\n"
    )
    console.print(
        f"What it costs, forward and backward: {cost():.2f} × plain attention (p = 2, shape (64, 8, 32, 64))."
    )
    console.print(f"Picture: {picture}")


def related_queries_and_keys() -> tuple[Tensor, Tensor]:
    """(1, 1, tokens, head_dim) each: neighbours resemble one another, so that there is something to attend to."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2, TOKENS + 4, HEAD_DIM, generator=generator)
    smooth = noise.unfold(1, 5, 1).mean(-1) * math.sqrt(5)
    query, key = smooth[0] * 0.5 + smooth[1], smooth[1]
    return query[None, None], key[None, None]


def plain_weights(query: Tensor, key: Tensor) -> Tensor:
    return attention_weights(query, key, HEAD_DIM**-0.5)


def normalized_weights(query: Tensor, key: Tensor, p: float) -> Tensor:
    return qknorm.qk_attention_weights(query, key, qknorm.comparable_scale(p, HEAD_DIM, math.sqrt(HEAD_DIM)), p=p)


def tokens_listened_to(weights: Tensor) -> float:
    entropy = torch.special.entr(weights).sum(-1)
    return float(entropy.exp().mean())


def listening_table(query: Tensor, key: Tensor) -> Table:
    table = Table("q and k", title="Tokens that a query listens to", title_justify="left")
    table.add_column("plain", justify="right")
    for p in P_VALUES:
        table.add_column(f"normalised p={p:g}", justify="right")
    for growth in GROWTHS:
        q, k = query * growth, key * growth
        counts = [plain_weights(q, k), *(normalized_weights(q, k, p) for p in P_VALUES)]
        table.add_row(f"× {growth}", *(f"{tokens_listened_to(weights):.1f}" for weights in counts))
    return table


def cost() -> float:
    """Time of normalised over plain attention, forward and backward, in turns."""
    q, k, v = (torch.randn(64, 8, 32, 64, requires_grad=True) for _ in range(3))
    g = torch.tensor(8.0, requires_grad=True)

    def seconds(normalized: bool) -> float:
        q.grad = k.grad = v.grad = None
        start = time.perf_counter()
        out = qknorm.qk_attention(q, k, v, g) if normalized else F.scaled_dot_product_attention(q, k, v)
        torch.autograd.backward(out.sum())
        return time.perf_counter() - start

    pairs = [(seconds(True), seconds(False)) for _ in range(40)][10:]
    return statistics.median(ours / plain for ours, plain in pairs)


def draw(query: Tensor, key: Tensor, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(GROWTHS), figsize=(8.4, 5.9), layout="constrained")
    rows = (("plain", plain_weights), ("normalised, p = 2", lambda q, k: normalized_weights(q, k, 2.0)))
    for row, (name, weights_of) in enumerate(rows):
        for column, growth in enumerate(GROWTHS):
            weights = weights_of(query * growth, key * growth)[0, 0]
            axis = axes[row, column]
            image = axis.imshow(weights, cmap="viridis", vmin=0, vmax=1)
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(f"{name}, q and k × {growth}", fontsize=10)
            axis.set_xlabel(f"listens to {tokens_listened_to(weights):.1f} of {TOKENS}", fontsize=9)
        axes[row, 0].set_ylabel("query")
    figure.colorbar(image, ax=axes, shrink=0.8, label="attention weight")
    figure.savefig(path, dpi=150)
    plt.close(figure)
