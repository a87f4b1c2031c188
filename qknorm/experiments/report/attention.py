"""What the attention viewer shows: every weight of a few test sentences, a byte each."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from qknorm.data.subwords import SPECIAL_PIECES, Scheme
from qknorm.decoding.translator import Explanation, Translator
from qknorm.errors import InputError
from qknorm.experiments.report.contests import Contest, Entry

_SENTENCES = 6
_MOST_BYTES = 1_400_000  # of weights, before base64 makes them a third longer
_MODERATE = range(6, 15)  # words
_NAMES = {"<s>": "(start)", "</s>": "(end)", "<unk>": "(unknown)"}


@dataclass(frozen=True)
class Viewer:
    """`data` goes into the page as JSON; `notes` say which systems are not in it, and why."""

    data: list[dict[str, Any]]
    notes: list[str]


def viewer_of(contests: Sequence[Contest]) -> Viewer:
    """For each test set and system the same sentences, fewer where the models are large."""
    viewer, room = Viewer([], []), _MOST_BYTES
    for contest in contests:
        loaded = []
        for entry in contest.entries:
            try:
                loaded.append((entry, Translator.load(entry.system.first.folder, _pair(entry))))
            except InputError as error:
                viewer.notes.append(f"{entry.system.name}: {error}")
        shown: list[list[dict[str, Any]]] = [[] for _ in loaded]
        for line in _moderate(contest.sources):
            try:
                found = [translator.explain(line) for _, translator in loaded]
            except InputError:  # longer in pieces than anything in training: it would be translated in parts
                continue
            room -= sum(weights.numel() for each in found for weights in each.attention)
            if room < 0 and any(shown):
                break
            for sentences, explanation, (_, translator) in zip(shown, found, loaded, strict=True):
                sentences.append(_sentence(line, explanation, translator.subwords.scheme))
            if shown and len(shown[0]) == _SENTENCES:
                break
        where = f" ({contest.title})" if len(contests) > 1 else ""
        for (entry, _), sentences in zip(loaded, shown, strict=True):
            if sentences:
                viewer.data.append({"name": entry.system.name + where, "sentences": sentences})
    return viewer


def _pair(entry: Entry) -> str | None:
    run = entry.system.first
    return entry.tests[0].pair if len(run.recipe.data.all_pairs) > 1 else None


def _moderate(lines: Sequence[str]) -> list[str]:
    """Candidates, from all over the test set: sentences neither trivial nor too long to draw, or else the shortest."""
    moderate = [line for line in dict.fromkeys(lines) if len(line.split()) in _MODERATE]
    if not moderate:
        moderate = sorted({line for line in lines if line.strip()}, key=lambda line: (len(line), line))[:_SENTENCES]
    step = max(1, len(moderate) // (2 * _SENTENCES))  # twice as many as are wanted: some may be passed over
    return moderate[::step]


def _sentence(line: str, found: Explanation, scheme: Scheme) -> dict[str, Any]:
    source, target = (readable(side, scheme) for side in (found.source_pieces, found.target_pieces))
    # What a decoder can look at while it says a piece: the start, and the pieces before.
    read = [*readable(["<s>"], scheme), *target[:-1]]
    maps = zip(("encoder", "decoder", "cross"), found.attention, strict=True)
    return {
        "text": line,
        "source": source,
        "target": target,
        "read": read,
        "maps": {kind: _map(weights, causal=kind == "decoder") for kind, weights in maps},
    }


def _map(weights: Tensor, causal: bool) -> dict[str, Any]:
    """(layers, heads, queries, keys) in bytes, and the entropy of each head in bits."""
    entropy = torch.special.entr(weights).sum(-1) / math.log(2)
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
    found, inside = [], False
    for piece in pieces:
        if piece in SPECIAL_PIECES:
            found.append((_NAMES.get(piece, piece), "special"))
        elif scheme == "words":
            found.append((piece.removesuffix("</w>"), "inside" if inside else "word"))
            inside = not piece.endswith("</w>")
        else:
            begins = piece.startswith("▁")
            found.append((piece.removeprefix("▁") or "␣", "word" if begins else "inside"))
    return found
