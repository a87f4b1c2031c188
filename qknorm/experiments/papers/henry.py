"""The first paper's tables (Henry et al. 2020): what it published, and which runs show it, at three sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Size = Literal["smoke", "small", "medium", "paper"]
Changes = Mapping[str, Mapping[str, Any]]
"""Keys of a recipe by their part, such as {"model": {"heads": 2}}."""


@dataclass(frozen=True)
class System:
    """A row of a table: a model, by what distinguishes it from the full one."""

    name: str
    """Of its run folders."""
    label: str
    changes: Changes = field(default_factory=dict)
    changes_at_paper_size: Changes = field(default_factory=dict)
    """In addition: smaller sizes train every system in the same way."""


@dataclass(frozen=True)
class Experiment:
    """Some systems, compared with one of them on one or more corpora."""

    title: str
    systems: Callable[[Size], tuple[System, ...]]
    reference: str
    """The name of the system that the others are compared with."""
    pairs: tuple[str, ...]
    """Those of the paper."""
    published: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """Test BLEU by pair and system."""
    moses: bool = True
    """Whether the paper scored tokens with Moses' script, where it had them; else SacreBLEU everywhere."""


# The models.

FULL = System("qknorm", "QKNorm + LayerNorm")
BASELINE = System(
    "baseline",
    "baseline (Nguyen and Salazar)",
    {"model": {"attention": "dot", "norm": "scale"}},
    {"training": {"schedule": "constant", "peak": 3e-4}},
)
_ABLATIONS = (
    System("without-g", "without g", {"model": {"scale": "absent"}}),
    System("without-layernorm", "without LayerNorm (ScaleNorm)", {"model": {"norm": "scale"}}),
    System("without-fixnorm", "without FixNorm", {"model": {"fix_norm": False}}),
    System(
        "without-fixnorm-prenorm", "without FixNorm or PreNorm", {"model": {"fix_norm": False, "placement": "post"}}
    ),
    System("values-too", "values normalised too", {"model": {"normalize_value": True}}),
)


def _with_heads(*numbers: int) -> tuple[System, ...]:
    return tuple(System(f"heads-{number}", f"{number} heads", {"model": {"heads": number}}) for number in numbers)


def _with_percentiles(*percentiles: float) -> tuple[System, ...]:
    return tuple(
        System(
            f"percentile-{percentile:g}",
            "longest sentence" if percentile == 100 else f"percentile {percentile:g}",
            {"model": {"scale_percentile": percentile}},
        )
        for percentile in percentiles
    )


def _open_questions(size: Size) -> tuple[System, ...]:
    """What the paper names as future work and a small machine can try."""
    depths, heads, warmups = {
        "smoke": ((1, 2), (2, 4), (1, 10)),
        "small": ((1, 2, 3, 5), (2, 4, 8), (1, 50, 150, 450)),
        "medium": ((1, 2, 3, 5), (2, 4, 8), (1, 100, 300, 900)),
        "paper": ((2, 4, 6, 8), (2, 4, 8, 16), (1, 4000, 8000, 16000)),
    }[size]
    return (
        FULL,
        *(System(f"layers-{depth}", f"{depth} + {depth} layers", {"model": _layers(depth)}) for depth in depths),
        *_with_heads(*heads),
        *(
            System(f"warmup-{updates}", f"warm-up of {updates:,} updates", {"training": {"warmup": updates}})
            for updates in warmups
        ),
        System("bpe-dropout", "BPE-dropout 0.1", {"data": {"bpe_dropout": 0.1}}),
    )


def _layers(number: int) -> dict[str, int]:
    return {"encoder_layers": number, "decoder_layers": number}


# What was published.

PAIRS = {
    "en-vi": "iwslt15-en-vi",
    "ar-en": "ted-ar-en",
    "en-he": "ted-en-he",
    "gl-en": "ted-gl-en",
    "sk-en": "ted-sk-en",
}
"""The paper's language pairs, and the corpora in which they are found."""

TABLE_1_COLUMNS = ("examples", "words", "parameters", "L", "dev BLEU", "hours")
TABLE_1: dict[str, tuple[float, ...]] = {
    "gl-en": (10_000, 370_000, 31_051_880, 79, 23.45, 6),
    "sk-en": (61_000, 2_320_000, 48_356_907, 75, 31.34, 11),
    "en-vi": (133_000, 5_990_000, 48_431_538, 72, 28.77, 19),
    "en-he": (212_000, 7_880_000, 48_401_538, 72, 31.16, 38),
    "ar-en": (214_000, 8_090_000, 48_499_512, 75, 37.94, 26),
}
"""Examples and words are rounded there; hours are those of one GPU."""


def _by_pair(**scores: tuple[float, ...]) -> dict[tuple[str, str], float]:
    """The rows of Tables 2 and 3, in the order of PAIRS."""
    return {(pair, system): score for system, row in scores.items() for pair, score in zip(PAIRS, row, strict=True)}


def _en_vi(systems: tuple[System, ...], *scores: float) -> dict[tuple[str, str], float]:
    return {("en-vi", system.name): score for system, score in zip(systems, scores, strict=True)}


_HEADS = _with_heads(2, 4, 8, 16, 32)
_PERCENTILES = _with_percentiles(75, 90, 92.5, 95, 97.5, 99, 100)

EXPERIMENTS = {
    "henry-table1": Experiment(
        "Table 1: data, model and training of each pair", lambda _: (FULL,), FULL.name, tuple(TABLE_1)
    ),
    "henry-table2": Experiment(
        "Table 2: test BLEU, Moses-style on tokens where the paper had them",
        lambda _: (BASELINE, FULL),
        BASELINE.name,
        tuple(PAIRS),
        _by_pair(baseline=(32.79, 36.09, 28.28, 22.01, 32.58), qknorm=(33.24, 36.75, 28.96, 24.21, 33.23)),
    ),
    "henry-table3": Experiment(
        "Table 3: test BLEU by SacreBLEU, on text",
        lambda _: (BASELINE, FULL),
        BASELINE.name,
        tuple(PAIRS),
        _by_pair(baseline=(32.41, 36.09, 28.28, 22.01, 32.58), qknorm=(33.18, 36.75, 28.96, 24.21, 33.22)),
        moses=False,
    ),
    "henry-table4": Experiment(
        "Table 4: the number of heads",
        lambda _: _HEADS,
        "heads-8",
        ("en-vi",),
        _en_vi(_HEADS, 32.40, 33.16, 33.24, 32.42, 32.30),
    ),
    "henry-table5": Experiment(
        "Table 5: the percentile of sentence lengths from which g starts",
        lambda _: _PERCENTILES,
        "percentile-97.5",
        ("en-vi",),
        _en_vi(_PERCENTILES, 32.58, 32.89, 32.64, 33.13, 33.24, 32.64, 33.10),
    ),
    "henry-table6": Experiment(
        "Table 6: what each part contributes",
        lambda _: (FULL, *_ABLATIONS, BASELINE),
        FULL.name,
        ("en-vi",),
        # The last two scores are those of Table 2.
        _en_vi((*_ABLATIONS, FULL, BASELINE), 24.53, 31.56, 32.63, 32.20, 32.34, 33.24, 32.79),
    ),
    "henry-figures": Experiment(
        "Figures 1 and 2: where four heads of one encoder layer look",
        lambda _: (BASELINE, FULL),
        BASELINE.name,
        ("gl-en",),
    ),
    "future-work": Experiment(
        "What the paper left open: depth, heads, warm-up and BPE-dropout under QKNorm",
        _open_questions,
        FULL.name,
        ("en-vi",),
    ),
}


# The sizes.

SHRUNK = {
    "smoke": "SMOKE SIZE: a check that everything works. The scores mean nothing: a tiny model after a minute.",
    "small": (
        "SMALL SIZE: 3 + 3 layers, d = 128, 1,200 updates of 2,048 positions and one schedule for all systems (cosine, "
        "peak 0.002), where the paper has up to 6 + 6 layers, d = 512 and tens of thousands of updates. Differences "
        "between systems may be compared with the paper's; the scores themselves are far lower."
    ),
    "medium": (
        "MEDIUM SIZE: half an hour a run, planned for this machine (see each recipe.yaml), with nothing counted "
        "beforehand and one way of training for all systems, where the paper has up to 6 + 6 layers, d = 512 and many "
        "hours of a GPU."
    ),
    "paper": "PAPER SIZE: the published setting.",
}
"""What a table says on its face."""

STAND_IN = {"smoke": "phrasebook-en-gl:2k", "small": "ted-gl-en", "medium": "ted-gl-en"}
"""The corpus of a smaller size, unless another is chosen."""

_DROPOUTS = ("dropout", "attention_dropout", "relu_dropout", "embedding_dropout")


_MEDIUM_MINUTES = 30


def settings(size: Size, pair: str | None) -> dict[str, Any]:
    """The recipe of the full model but for the corpus; `pair` is one of the paper's, or None for another corpus."""
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
        # Nothing is counted beforehand: the tables are about the paper's method.
        nothing_counted = {"model": {"embedding_init": "random"}, "training": {"taught": 0}}
        return {"minutes": _MEDIUM_MINUTES, "data": {}, **nothing_counted}
    validate_every = {"en-vi": 1500, "ar-en": 2000, "en-he": 2000, "sk-en": 600, "gl-en": 100}
    found: dict[str, dict[str, Any]] = {
        "data": {"merges": 8000},
        "model": dict.fromkeys(_DROPOUTS, 0.3),  # the rest are the defaults of a recipe
        "training": {"validate_every": validate_every.get(pair or "", 1500), "max_validations": 200, "min_rate": 1e-5},
    }
    if pair == "gl-en":
        found["data"] = {"merges": 3000}
        found["model"] = {**dict.fromkeys(_DROPOUTS, 0.4), **_layers(4), "heads": 4}
        found["training"] |= {"max_validations": 1000, "min_rate": 5e-5}
    return found


def _cosine(**settings: float) -> dict[str, Any]:
    return {"schedule": "cosine", **settings}
