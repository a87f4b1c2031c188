"""What the attention viewer shows: every weight of a few test sentences, a byte each."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from qknorm.attention.watch import normalized_entropy
from qknorm.data.subwords import SPECIAL_PIECES, Scheme
from qknorm.decoding.translator import Explanation, Translator
from qknorm.errors import InputError
from qknorm.experiments.report.contests import Material, Participant, SharedTest
from qknorm.experiments.report.section import Section
from qknorm.models.translator import TAUGHT_HEAD

_SENTENCES = 6
_MOST_BYTES = 1_400_000  # of weights, before base64 makes them a third longer
_MODERATE = range(6, 15)  # words
_NAMES = {"<s>": "(start)", "</s>": "(end)", "<unk>": "(unknown)"}


@dataclass(frozen=True)
class AttentionSection(Section):
    """`data` goes into the page as JSON; `notes` say which systems are not in it, and why."""

    data: list[dict[str, Any]]
    notes: list[str]
    title = "Attention"

    @property
    def has_taught(self) -> bool:
        return any(system["taught"] is not None for system in self.data)

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        return [cls(*_explained(material.test_sets))] if material.test_sets else []


def _explained(test_sets: Sequence[SharedTest]) -> tuple[list[dict[str, Any]], list[str]]:
    """For each test set and system the same sentences, fewer where the models are large."""
    data: list[dict[str, Any]] = []
    notes: list[str] = []
    room = _MOST_BYTES
    for test_set in test_sets:
        loaded = []
        for entry in test_set.participants:
            try:
                loaded.append((entry, Translator.load(entry.system.first.folder, _direction(entry))))
            except InputError as error:
                notes.append(f"{entry.system.name}: {error}")
        of_systems: list[list[dict[str, Any]]] = [[] for _ in loaded]
        for line in _moderate(test_set.sources):
            try:
                explanations = [translator.explain(line) for _, translator in loaded]
            except InputError:  # longer in pieces than anything in training: it would be translated in parts
                continue
            room -= sum(weights.numel() for explanation in explanations for weights in explanation.attention)
            if room < 0 and any(of_systems):
                break
            for sentences, explanation, (_, translator) in zip(of_systems, explanations, loaded, strict=True):
                sentences.append(_sentence(line, explanation, translator.subwords.scheme))
            if of_systems and len(of_systems[0]) == _SENTENCES:
                break
        where = f" ({test_set.title})" if len(test_sets) > 1 else ""
        for (entry, translator), sentences in zip(loaded, of_systems, strict=True):
            if sentences:
                taught = TAUGHT_HEAD if translator.taught else None
                data.append({"name": entry.system.name + where, "taught": taught, "sentences": sentences})
    return data, notes


def _direction(entry: Participant) -> str | None:
    run = entry.system.first
    return entry.tests[0].direction if len(run.recipe.data.directions) > 1 else None


def _moderate(lines: Sequence[str]) -> list[str]:
    """Candidates, from all over the test set: sentences neither trivial nor too long to draw, or else the shortest."""
    moderate = [line for line in dict.fromkeys(lines) if len(line.split()) in _MODERATE]
    if not moderate:
        moderate = sorted({line for line in lines if line.strip()}, key=lambda line: (len(line), line))[:_SENTENCES]
    step = max(1, len(moderate) // (2 * _SENTENCES))  # twice as many as are wanted: some may be passed over
    return moderate[::step]


def _sentence(line: str, explanation: Explanation, scheme: Scheme) -> dict[str, Any]:
    source, target = (readable(side, scheme) for side in (explanation.source_pieces, explanation.target_pieces))
    # What a decoder can look at while it says a piece: the start, and the pieces before.
    read = [*readable(["<s>"], scheme), *target[:-1]]
    maps = zip(("encoder", "decoder", "cross"), explanation.attention, strict=True)
    return {
        "text": line,
        "source": source,
        "target": target,
        "read": read,
        "maps": {kind: _map(weights, causal=kind == "decoder") for kind, weights in maps},
    }


def _map(weights: Tensor, causal: bool) -> dict[str, Any]:
    """(layers, heads, queries, keys) in bytes, and the entropy of each head."""
    keys = weights.shape[-1]
    entropy = normalized_entropy(weights, torch.arange(1, keys + 1) if causal else keys)
    if causal and entropy.shape[-1] > 1:
        entropy = entropy[..., 1:]  # the first has nothing to choose
    steps = (weights * 255).round().to(torch.uint8)
    return {
        "shape": list(weights.shape),
        "weights": base64.b64encode(steps.numpy().tobytes()).decode(),
        "entropy": [[round(head, 2) for head in layer] for layer in entropy.mean(-1).tolist()],
    }


def readable(pieces: Sequence[str], scheme: Scheme) -> list[tuple[str, str]]:
    """Each piece as one reads it, and whether a word begins there, goes on, or is none at all."""
    spelled, inside = [], False
    for piece in pieces:
        if piece in SPECIAL_PIECES:
            spelled.append((_NAMES.get(piece, piece), "special"))
        elif scheme == "words":
            spelled.append((piece.removesuffix("</w>"), "inside" if inside else "word"))
            inside = not piece.endswith("</w>")
        else:
            begins = piece.startswith("▁")
            spelled.append((piece.removeprefix("▁") or "␣", "word" if begins else "inside"))
    return spelled
