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
from qknorm.experiments.report.contests import Participant, TestSet
from qknorm.experiments.report.material import Material
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
    template = """
<p>A translator reads and writes pieces of words. For every piece it decides how much to look at each of the others: its
attention, which always adds up to 100 %. Point at a piece, or move with the arrow keys, to see where it looks.
{% if section.has_taught %}A head that was taught to align words looks at the word that it translates.{% endif %}</p>
{% for note in section.notes %}<p class="note">Not shown: {{ note }}</p>{% endfor %}
{% if section.data %}
<noscript><p class="note">The viewer needs JavaScript, which is switched off.</p></noscript>
<div id="viewer" class="card" hidden>
  <div class="controls">
    <label>System <select id="viewer-system"></select></label>
    <label class="wide">Sentence <select id="viewer-sentence"></select></label>
    <label>Who looks at whom <select id="viewer-kind">
      <option value="cross">the translation at the source (cross)</option>
      <option value="encoder">the source at itself (encoder)</option>
      <option value="decoder">the translation at itself (decoder)</option>
    </select></label>
    <label>Layer <select id="viewer-layer"></select></label>
    <label>Head <select id="viewer-head"></select></label>
  </div>
  <div class="two">
    <div>
      <p class="label" id="viewer-queries-label"></p>
      <div id="viewer-queries" class="pieces" role="group" aria-labelledby="viewer-queries-label"></div>
      <p class="label" id="viewer-keys-label"></p>
      <div id="viewer-keys" class="pieces" role="group" aria-labelledby="viewer-keys-label"></div>
      <p id="viewer-says" class="says" aria-live="polite"></p>
      <h4>Entropy of each head</h4>
      <p class="how">For this sentence: 0 means that every piece looks at a single one, 1 that it looks at all alike.
      Press a number to see its head.</p>
      {% call scrolling("Entropy of each head") %}<table id="viewer-entropy"></table>{% endcall %}
    </div>
    <div>
      <h4>All pieces at once</h4>
      <p class="how">A row for each piece that looks, a column for each that is looked at; the brighter, the more.
      The scale is the same for all heads and systems.</p>
      {% call scrolling("Heat map") %}<svg id="viewer-map" role="img"></svg>{% endcall %}
      <div class="scale" aria-hidden="true"><div id="viewer-scale"></div>
      {% for share in ("0", "6 %", "25 %", "56 %", "100 %") %}<span>{{ share }}</span>{% endfor %}</div>
    </div>
  </div>
</div>
<script type="application/json" id="viewer-data">{{ section.data|tojson }}</script>
{% elif not section.notes %}
<p>The test set has no sentence that could be shown.</p>
{% endif %}
"""

    @property
    def has_taught(self) -> bool:
        return any(system["taught"] is not None for system in self.data)

    @classmethod
    def of(cls, material: Material) -> list[Self]:
        return [cls(*_explained(material.test_sets))] if material.test_sets else []


def _explained(test_sets: Sequence[TestSet]) -> tuple[list[dict[str, Any]], list[str]]:
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
