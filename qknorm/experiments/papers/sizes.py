"""The sizes of an experiment: the recipe of the full model at each, and what was shrunk."""

from __future__ import annotations

from typing import Any, Literal, get_args

Size = Literal["smoke", "small", "medium", "paper"]
SIZES: tuple[Size, ...] = get_args(Size)

MEDIUM_MINUTES = 30.0
"""Of a run, unless others are asked for."""

_SHRUNK = {
    "smoke": "SMOKE SIZE: a check that everything works. The scores mean nothing: a tiny model after a minute.",
    "small": (
        "SMALL SIZE: 3 + 3 layers, d = 128, 1,200 updates of 2,048 positions and one schedule for all systems (cosine, "
        "peak 0.002), where the paper has up to 6 + 6 layers, d = 512 and tens of thousands of updates. Differences "
        "between systems may be compared with the paper's; the scores themselves are far lower."
    ),
    "medium": (
        "MEDIUM SIZE: {minutes:g} minutes a run of the full model, planned once for a corpus (its plan.yaml) and with "
        "as many updates for all systems, nothing counted beforehand and one way of training, Adam's, where the paper "
        "has up to 6 + 6 layers, d = 512 and many hours of a GPU."
    ),
    "paper": "PAPER SIZE: the published setting.",
}

STAND_IN = {"smoke": "phrasebook-en-gl:2k", "small": "ted-gl-en", "medium": "ted-gl-en"}
"""The corpus of a smaller size, unless another is chosen."""

_DROPOUTS = ("dropout", "attention_dropout", "relu_dropout", "embedding_dropout")
_VALIDATE_EVERY = {"en-vi": 1500, "ar-en": 2000, "en-he": 2000, "sk-en": 600, "gl-en": 100}


def shrunk(size: Size, minutes: float = MEDIUM_MINUTES) -> str:
    """What a table says on its face."""
    return _SHRUNK[size].format(minutes=minutes)


def settings(size: Size, direction: str | None, minutes: float = MEDIUM_MINUTES) -> dict[str, Any]:
    """The recipe of the full model but for the corpus; `direction` is one of the paper's, or None for another corpus.

    Only the size `medium` is planned by minutes.
    """
    if size == "smoke":
        return {
            "data": {"merges": 300},
            "model": {"dim": 64, "feed_forward": 64, **_layers(1), "heads": 2, **dict.fromkeys(_DROPOUTS, 0.1)},
            "training": {"budget": 512, **_cosine(peak=4e-3, warmup=10, max_updates=150, validate_every=150)},
            "decoding": {"validation_beam_size": 1, "beam_size": 2, "extra_length": 5},
        }
    if size == "small":
        return {
            "data": {"merges": 3000},
            "model": {"dim": 128, "feed_forward": 512, **_layers(3), "heads": 4, **dict.fromkeys(_DROPOUTS, 0.1)},
            "training": {"budget": 2048, **_cosine(peak=2e-3, warmup=150, max_updates=1200, validate_every=300)},
            "decoding": {"validation_beam_size": 1},
        }
    if size == "medium":
        # Nothing is counted beforehand, and Adam learns: the tables are about the paper's method.
        method = {"model": {"embedding_init": "random"}, "training": {"taught": 0, "optimizer": "adam"}}
        return {"minutes": minutes, "data": {}, **method}
    return _galician() if direction == "gl-en" else _base(direction)


def _base(direction: str | None) -> dict[str, Any]:
    """The paper's base model; what is not said is the default of a recipe."""
    every = _VALIDATE_EVERY.get(direction or "", 1500)
    return {
        "data": {"merges": 8000},
        "model": dict.fromkeys(_DROPOUTS, 0.3),
        "training": {"validate_every": every, "max_validations": 200, "min_rate": 1e-5},
    }


def _galician() -> dict[str, Any]:
    """The paper's model for its smallest pair."""
    every = _VALIDATE_EVERY["gl-en"]
    return {
        "data": {"merges": 3000},
        "model": {**dict.fromkeys(_DROPOUTS, 0.4), **_layers(4), "heads": 4},
        "training": {"validate_every": every, "max_validations": 1000, "min_rate": 5e-5},
    }


def _layers(number: int) -> dict[str, int]:
    return {"encoder_layers": number, "decoder_layers": number}


def _cosine(**settings: float) -> dict[str, Any]:
    return {"schedule": "cosine", **settings}
