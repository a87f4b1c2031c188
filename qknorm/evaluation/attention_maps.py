"""Who looks at whom: every attention weight of a translator, for one sentence and one translation of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from qknorm.attention.observed import observing
from qknorm.data.batches import Batch
from qknorm.data.subwords import EOS
from qknorm.models.translator import DecoderLayer, EncoderLayer, TranslatorModel


class AttentionMaps(NamedTuple):
    """Probabilities, each (layers, heads, queries, keys).

    The source's positions are its pieces and EOS. Position i of the target predicts its i-th piece, the last
    one where EOS is: it has read BOS and the pieces before.
    """

    encoder: Tensor
    """From the source to itself."""
    decoder: Tensor
    """From the target to itself."""
    cross: Tensor
    """From the target to the source."""


@torch.no_grad()
def attention_maps(
    model: TranslatorModel, source: Sequence[int], target: Sequence[int], direction: int = 0
) -> AttentionMaps:
    """The attention of a model in eval mode that reads `source` and says `target`, both without EOS."""
    seen: dict[nn.Module, Tensor] = {}
    batch = Batch.of([source], [target], direction)
    # Only the way to the loss is of interest, so anything that may be said will do as what should be.
    batch = Batch(batch.source, batch.target_in, torch.full_like(batch.target_in, EOS), direction)
    with observing(model, lambda _name, layer, attended: seen.update({layer: attended.weights()[0].cpu()})):
        model(batch.to(model.languages.device))
    encoder = [layer for layer in model.encoder if isinstance(layer, EncoderLayer)]
    decoder = [layer for layer in model.decoder if isinstance(layer, DecoderLayer)]
    return AttentionMaps(
        torch.stack([seen[layer.attention] for layer in encoder]),
        torch.stack([seen[layer.attention] for layer in decoder]),
        torch.stack([seen[layer.source_attention] for layer in decoder]),
    )
