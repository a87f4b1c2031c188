"""What a run can do with the minutes that somebody has: the size of the model, how long it learns and how.

Pure functions from numbers to numbers: `planned.py` measures the numbers and asks. The peak, the small shapes and the
taught head rest on single trials of ten to fifteen minutes (docs/measured/trials.jsonl); the larger shapes, dropout by
passes, the decay and the limits are judgement, not yet measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

DEFAULT_MINUTES = 60.0


@dataclass(frozen=True)
class TextSize:
    """What matters about a prepared text."""

    positions: int
    """Of one pass: pieces on the longer side of each pair, EOS included."""
    dev: int
    """The same of the dev set."""
    test: int


@dataclass(frozen=True)
class Shape:
    """A size that a model may have."""

    dim: int
    feed_forward: int
    encoder_layers: int
    decoder_layers: int
    heads: int

    def __str__(self) -> str:
        return f"{self.encoder_layers} + {self.decoder_layers} layers, dim {self.dim}"

    @property
    def weights(self) -> int:
        """Those that every position is multiplied with, but for the vocabulary."""
        attention, feed_forward = 4 * self.dim**2, 2 * self.dim * self.feed_forward
        encoder = self.encoder_layers * (attention + feed_forward)
        return encoder + self.decoder_layers * (2 * attention + feed_forward)

    def grown(self, wanted: Shape) -> Shape:
        """As much of another size as this one can grow to. Heads stay as wide as they are: there are more of them."""
        each = self.dim // self.heads
        dim = wanted.dim if wanted.dim > self.dim and wanted.dim % each == 0 else self.dim
        return Shape(
            dim,
            max(self.feed_forward, wanted.feed_forward),
            max(self.encoder_layers, wanted.encoder_layers),
            max(self.decoder_layers, wanted.decoder_layers),
            dim // each,
        )


SHAPES = (
    Shape(128, 256, 3, 2, 4),
    Shape(192, 384, 3, 2, 4),
    Shape(256, 512, 3, 2, 4),
    Shape(256, 1024, 3, 3, 4),
    Shape(384, 1536, 4, 4, 6),
    Shape(512, 2048, 4, 4, 8),
)

# A model may be as large as this many positions learned per weight allow: with fewer, a smaller one gets further.
_POSITIONS_PER_WEIGHT = 1.0
# Of the speed of a large matrix product, what a training run reaches before its own speed has been measured.
_EFFICIENCY = 0.6
_MERGES = 4.6  # times the square root of the words
MOST_PASSES = 150  # more only learn the text by heart
_MARGIN = 0.9  # of the time is planned: a machine is seldom as fast for an hour as for some seconds
# Per position, in units of what an update takes for it: greedy translation and loss of dev; beam search of test.
_VALIDATION_COST, _TEST_COST = 0.8, 1.2
_WARMUP, _TAUGHT, _DECAY = 0.05, 0.6, 0.5  # shares of the updates
_OWN = 0.25  # the last of them, in which nothing is learned from that is borrowed
_DROPOUT_INSIDE_ABOVE = 0.2
# Of the minutes of a run, to learn more text; the second for each time as much text as the old.
_LEAST_ADDING, _ADDING_PER_SHARE, _MOST_ADDING = 0.03, 1.25, 0.25
_LEAST_NEW = 0.2  # of what is read then
_OF_CHILD = 0.5  # of the learning rate, where a run goes on from another
_BACKWARDS, _TRANSLATING_BACK = 0.3, 0.06  # shares of the minutes, where text in one language is to be used
# Of a batch. With Muon twice as many: making matrices orthogonal then takes about a sixth of an update.
_POSITIONS_PER_DIMENSION, _MUON_POSITIONS_PER_DIMENSION = 4, 8

START: dict[str, dict[str, Any]] = {
    "data": {"tidy": True, "apart": True, "keep": True},
    "model": {"embedding_init": "counted"},
    "training": {
        "optimizer": "muon",
        "schedule": "trapezoid",
        "max_updates": 2,
        "decay": 1,
        "stop_after": 6,
        "average": 3,
    },
    # With the first paper's 0.6 translations are 4 to 8 % too short; 1 gave more dev BLEU for all four models tried.
    "decoding": {"validation_beam_size": 1, "length_penalty": 1.0},
}
"""What every plan begins with; the updates are still to be counted."""


@dataclass(frozen=True)
class Length:
    """How long a run learns, in numbers that a recipe and a person can use."""

    updates: int
    passes: float
    seconds: float
    """That the whole run will take from here on."""
    is_limited_by_text: bool
    """Whether more time would be of no use."""
    validations: int


def minutes_to_add(minutes: float, share: float) -> float:
    """How long a run of so many minutes learns new text, which is this share of the old."""
    return max(min(_MOST_ADDING, _LEAST_ADDING + _ADDING_PER_SHARE * share) * minutes, 1.0)


def weight_of_added(share: float) -> float:
    """Of new text that is this share of the old: at least a fifth of what is read is new."""
    drawn: float = share**0.7
    return max(1.0, _LEAST_NEW / (1 - _LEAST_NEW) / drawn)


def minutes_backwards(minutes: float) -> float:
    """Of a run's minutes, those of the model that translates text in the target language back."""
    return _BACKWARDS * minutes


def seconds_to_translate_back(minutes: float) -> float:
    """Of a run's minutes, what it may take to translate back."""
    return _TRANSLATING_BACK * 60 * minutes


def merges_for(words: int) -> int:
    """Merges of the vocabulary for a text of this many words, both sides: rare pieces cannot be learned."""
    return round(min(max(_MERGES * math.sqrt(words), 2000), 8000) / 500) * 500


def shape_for(operations: float, vocabulary: int, positions: int) -> Shape:
    """The largest model that learns enough with so many floating-point operations, from a text of so many positions."""
    most = MOST_PASSES * positions
    affordable = [
        shape
        for shape in SHAPES
        if min(_learned(shape, operations, vocabulary), most) >= _POSITIONS_PER_WEIGHT * shape.weights
    ]
    return affordable[-1] if affordable else SHAPES[0]


def peak_for(dim: int, has_parent: bool = False) -> float:
    """The highest learning rate: 0.0015 for a width of 256, less for wider models, and for what is known already."""
    return round((_OF_CHILD if has_parent else 1.0) * 1.5e-3 * math.sqrt(256 / dim), 5)


def budget_for(dim: int, optimizer: str) -> int:
    """Positions of a batch: 1,024 for a width of 256, twice as many with Muon; more for wider models."""
    return dim * (_MUON_POSITIONS_PER_DIMENSION if optimizer == "muon" else _POSITIONS_PER_DIMENSION)


def _learned(shape: Shape, operations: float, vocabulary: int) -> float:
    """Positions that a model of this shape can learn: six operations for each weight, two forwards, four backwards."""
    return _EFFICIENCY * operations / (6 * (shape.weights + shape.dim * vocabulary))


def length_for(
    text: TextSize,
    seconds: float,
    seconds_per_update: float,
    positions_per_update: float,
    updates: int | None = None,
) -> Length:
    """How many updates and validations fit into this many seconds.

    `updates`: their number, where somebody has decided on it.
    """
    seconds = max(seconds, 0.0)  # to make the text ready may have taken longer than somebody has
    per_position = seconds_per_update / positions_per_update
    validations = round(min(max(4 + seconds / 400, 4), 20))
    beside = (validations * _VALIDATION_COST * text.dev + _TEST_COST * text.test) * per_position
    beside = min(beside, seconds / 2)
    affordable = _MARGIN * (seconds - beside) / seconds_per_update
    useful = MOST_PASSES * text.positions / positions_per_update
    updates = updates or max(int(min(affordable, useful)) // validations, 1) * validations
    passes = updates * positions_per_update / text.positions
    expected = updates * seconds_per_update / _MARGIN + beside
    return Length(updates, passes, expected, useful < affordable, validations)


def dropout_for(passes: float, dim: int) -> float:
    """The more often a text is read, the more is dropped: 0.1 at five passes, 0.3 at eighty; less in narrow models."""
    dropout = 0.1 + 0.167 * math.log10(max(passes, 0.1) / 5)
    return round(max(min(dropout, 0.35) * min(dim / 256, 1.0), 0.1), 2)


def settings(length: Length, dim: int, borrows: bool = False) -> dict[str, dict[str, Any]]:
    """The length as keys of a recipe, of which some text may be borrowed."""
    every = math.ceil(length.updates / length.validations)
    return {
        "model": dropout_settings(length.passes, dim),
        "training": {
            "warmup": max(round(_WARMUP * length.updates), 1),
            "taught": round(_TAUGHT * length.updates),
            "own": round(_OWN * length.updates) if borrows else 0,
            "validate_every": every,
            **_ending(length.updates, every),
        },
    }


def dropout_settings(passes: float, dim: int) -> dict[str, float]:
    """Keys of the model: inside of sublayers less is dropped than of their outputs."""
    dropout = dropout_for(passes, dim)
    inner = round(dropout / 2, 2) if dropout > _DROPOUT_INSIDE_ABOVE else 0.0
    outputs, insides = ("dropout", "embedding_dropout"), ("attention_dropout", "relu_dropout")
    return dict.fromkeys(outputs, dropout) | dict.fromkeys(insides, inner)


def prolonged(done: int, more: Length, max_validations: int, grows: bool = False) -> dict[str, int]:
    """The keys of training that change when a run goes on after `done` updates, before which its rate was flat.

    It validates as often as a new plan, so its patience lasts as long as that of one. Where it grows, updates of the
    smaller model, which were fast, count for nothing in the shares of what is to come.
    """
    every = math.ceil(more.updates / more.validations)
    updates = max((done + more.updates) // every, done // every + 1) * every
    most = max(max_validations, updates // every)
    return {"validate_every": every, "max_validations": most, **_ending(updates, every, done, done if grows else 0)}


def _ending(updates: int, every: int, done: int = 0, uncounted: int = 0) -> dict[str, int]:
    """The decay takes its share of all updates that count, begins with a validation, and is still to be done."""
    flat = max(round((updates - _DECAY * (updates - uncounted)) / every) * every, done)
    return {"max_updates": updates, "decay": max(updates - flat, 1)}
