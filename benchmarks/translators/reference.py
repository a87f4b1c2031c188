"""The first paper's own code, from a checkout of it that the user has. Nothing of it is kept here.

Its Controller trains and translates as its command line does. Two of its constants are changed from outside: the
numbers of its special pieces, so that no piece need be renumbered, and, for decoding, its table of positions, so that
it can carry our weights.
"""

from __future__ import annotations

import importlib
import logging
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.translators import Pieces, Sentences, Size
from qknorm.attention.module import QKNormAttention
from qknorm.attention.norms import LpKind, kind_of
from qknorm.data.subwords import BOS, EOS, PAD, UNK
from qknorm.errors import InputError
from qknorm.models.layers import FeedForward, sinusoids
from qknorm.models.translator import DecoderLayer, EncoderLayer, TranslatorModel

_PAIR = "source2target"


class Reference:
    """The modules of a checkout."""

    def __init__(self, folder: Path) -> None:
        result = sorted(folder.rglob("controller.py"))
        if not result:
            raise InputError(f"{folder} is no checkout of the reference code: there is no controller.py in it")
        sys.path.insert(0, str(result[0].parent))
        try:
            names = ("all_constants", "utils", "layers", "model", "data_manager", "controller", "configurations")
            self.modules: dict[str, ModuleType] = {name: importlib.import_module(name) for name in names}
        finally:
            sys.path.pop(0)
        constants: Any = self.modules["all_constants"]
        constants.PAD_ID, constants.UNK_ID, constants.BOS_ID, constants.EOS_ID = PAD, UNK, BOS, EOS

    def controller(self, vocabulary: int, target_vocabulary: Sequence[int], size: Size, pairs: _PairsInMemory) -> Any:
        """Its QKNorm configuration for en→vi, at our size."""
        dropouts = dict.fromkeys(("dropout", "att_dropout", "ff_dropout"), size.dropout)
        sizes = {
            "embed_dim": size.dim,
            "ff_dim": size.feed_forward,
            "num_enc_layers": size.encoder_layers,
            "num_dec_layers": size.decoder_layers,
            "num_heads": size.heads,
            "label_smoothing": size.label_smoothing,
            "word_dropout": size.word_dropout,
            "batch_size": size.budget,
        }
        others = {
            "pairs": _PAIR,
            "joint_vocab_size": vocabulary,
            "lang_vocab_size": 2,
            "log_freq": 10**9,
            "logger": logging.getLogger("reference"),
        }
        arguments = Namespace(**(self.modules["configurations"].en2vi() | sizes | dropouts | others))
        model = self.modules["model"].Transformer(arguments)
        pairs.logit_mask = torch.zeros(vocabulary, dtype=torch.uint8)
        pairs.logit_mask[list(target_vocabulary)] = 1
        pairs.ivocab = {number: str(number) for number in range(vocabulary)}
        return self.modules["controller"].Controller(arguments, model, pairs)


class _PairsInMemory:
    """What its Controller asks of a DataManager, without files."""

    logit_mask: Tensor
    ivocab: dict[int, str]

    def __init__(self, dataset: Any = None) -> None:
        self._dataset = dataset
        self._batches: Iterator[Any] = iter(())

    def get_batch(self) -> dict[str, Any]:
        batch = next(self._batches, None)
        if batch is None:
            self._batches = self._dataset.get_iter(shuffle=True)
            batch = next(self._batches)
        source, target, targets = batch
        return {
            "src": source,
            "tgt": target,
            "targets": targets,
            "src_lang_idx": 0,
            "tgt_lang_idx": 1,
            "pair": _PAIR,
            "logit_mask": self.logit_mask,
        }


class ReferenceLearner:
    """Its update, over its own batches of sentences of like source length."""

    def __init__(self, reference: Reference, sentences: Sentences, size: Size) -> None:
        sources = _objects([[*source, EOS] for source in sentences.sources])
        targets = _objects([[BOS, *target] for target in sentences.targets])
        dataset = reference.modules["data_manager"].NMTDataset(sources, targets, size.budget)
        pairs = _PairsInMemory(dataset)
        self._controller = reference.controller(sentences.vocabulary, sentences.target_vocabulary, size, pairs)
        self.model: nn.Module = self._controller.model
        self.model.train()

    def update(self) -> int:
        before = self._controller.stats["words"]
        self._controller.run_log(1, 1)
        return int(self._controller.stats["words"] - before)

    def translate(self, sources: Sequence[Pieces]) -> list[Pieces]:
        return _translate(self._controller, sources)


class ReferenceDecoder:
    """Its beam search with our weights."""

    def __init__(self, reference: Reference, model: TranslatorModel) -> None:
        config, kind = model.config, kind_of(model.config.qk_norm)
        if not isinstance(kind, LpKind) or (kind.p, config.norm, config.placement) != (2.0, "layer", "pre"):
            raise InputError("the reference code carries QKNorm models: qk_norm=lp p=2 norm=layer placement=pre")
        vocabulary = model.target_vocabulary(model.directions[0]).tolist()
        self._controller = reference.controller(
            len(model.embedding.weight), vocabulary, Size.of(model.config), _PairsInMemory()
        )
        utilities: Any = reference.modules["utils"]
        utilities.get_positional_encoding = lambda dim, length: sinusoids(length, dim)
        with torch.no_grad():
            _copy(model, self._controller.model)

    def translate(self, sources: Sequence[Pieces]) -> list[Pieces]:
        return _translate(self._controller, sources)


def _translate(controller: Any, sources: Sequence[Pieces]) -> list[Pieces]:
    width = 1 + max(map(len, sources))
    rows = [[*source, EOS, *[PAD] * (width - 1 - len(source))] for source in sources]
    mask = controller.data_manager.logit_mask
    best, _ = controller._translate([torch.tensor(rows)], np.arange(len(rows)), 0, 1, mask)
    return [[int(number) for number in line.split()] for line in best]


def _objects(sequences: list[Pieces]) -> np.ndarray[Any, Any]:
    array = np.empty(len(sequences), dtype=object)
    array[:] = sequences
    return array


def _copy(ours: TranslatorModel, theirs: Any) -> None:
    theirs.word_embedding.copy_(ours.embedding.weight)
    theirs.lang_embedding.copy_(ours.languages)
    theirs.out_bias.copy_(ours.embedding.output_bias)
    for number, layer in enumerate(ours.encoder):
        assert isinstance(layer, EncoderLayer)
        _copy_attention(layer.attention, theirs.encoder.atts[number])
        _copy_feed_forward(layer.feed_forward, theirs.encoder.ffs[number])
        norms = [layer.attention_residual.norm, layer.feed_forward_residual.norm]
        _copy_norms(norms, theirs.encoder.scales[2 * number : 2 * number + 2])
    for number, layer in enumerate(ours.decoder):
        assert isinstance(layer, DecoderLayer)
        _copy_attention(layer.attention, theirs.decoder.atts[number])
        _copy_attention(layer.source_attention, theirs.decoder.cross_atts[number])
        _copy_feed_forward(layer.feed_forward, theirs.decoder.ffs[number])
        norms = [layer.attention_residual.norm, layer.source_attention_residual.norm, layer.feed_forward_residual.norm]
        _copy_norms(norms, theirs.decoder.scales[3 * number : 3 * number + 3])
    _copy_norms([ours.encoder_norm], theirs.encoder.scales[-1:])
    _copy_norms([ours.decoder_norm], theirs.decoder.scales[-1:])


def _copy_attention(ours: QKNormAttention, theirs: Any) -> None:
    projections = (ours.q_proj, ours.k_proj, ours.v_proj, ours.out_proj)
    theirs.weights.copy_(torch.cat([projection.weight for projection in projections]))
    theirs.biases.copy_(torch.cat([projection.bias for projection in projections]))
    theirs.mha_scale.scale.copy_(ours.q_norm.get_parameter("scale").squeeze())


def _copy_feed_forward(ours: FeedForward, theirs: Any) -> None:
    theirs.in_proj.load_state_dict(ours.inner.state_dict())
    theirs.out_proj.load_state_dict(ours.outer.state_dict())


def _copy_norms(ours: Sequence[nn.Module], theirs: Sequence[nn.Module]) -> None:
    for norm, other in zip(ours, theirs, strict=True):
        other.load_state_dict(norm.state_dict())
