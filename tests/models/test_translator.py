from __future__ import annotations

import dataclasses
import itertools
import zlib
from typing import Any

import pytest
import torch

from qknorm.attention.norms import LpKind
from qknorm.data.batches import Batch
from qknorm.data.subwords import PAD
from qknorm.models.translator import TranslatorConfig, TranslatorModel

PIECES = 30
TINY = TranslatorConfig(
    dim=16,
    feed_forward=32,
    encoder_layers=2,
    decoder_layers=2,
    heads=4,
    dropout=0.0,
    attention_dropout=0.0,
    relu_dropout=0.0,
    embedding_dropout=0.0,
    qk_norm=LpKind(scale_init=6.0),  # at √head_dim a fresh "lp" equals a fresh "rms"
)
BATCH = Batch.of([[5, 6, 7], [8]], [[9, 10], [11, 12, 13]])

CHOICES: list[dict[str, Any]] = [
    {},
    {"norm": "scale"},
    {"norm": "rms"},
    {"placement": "post"},
    {"fix_norm": False},
    {"qk_norm": "none"},
    {"qk_norm": "rms"},
    {"qk_norm": "layer"},
    {"qk_norm": LpKind(3.0, scale_init=6.0, per_head_scale=True)},
    {"qk_norm": LpKind(scale_init=5.0, learn_scale=False)},
    {"qk_norm": LpKind(scale_init=6.0, normalize_value=True)},
]


def model(**choices: Any) -> TranslatorModel:
    torch.manual_seed(0)
    target_pieces = torch.arange(PIECES) != PAD
    target_pieces[[2, 29]] = False  # BOS, and a piece of the source alone
    return TranslatorModel(dataclasses.replace(TINY, **choices), {("en", "gl"): target_pieces})


@pytest.mark.parametrize(
    ("pieces", "shape", "parameters"),
    [
        (3164, {"encoder_layers": 4, "decoder_layers": 4, "heads": 4}, 31_051_880),  # gl→en
        (8217, {}, 48_356_907),  # sk→en
        (8304, {}, 48_401_538),  # en→he
    ],
)
def test_the_papers_models_have_the_papers_number_of_parameters(
    pieces: int, shape: dict[str, int], parameters: int
) -> None:
    """Table 1 of Henry et al.; the number of pieces is the one whole number that fits."""
    paper = TranslatorModel(TranslatorConfig(**shape), {("en", "gl"): torch.ones(pieces, dtype=torch.bool)})  # type: ignore[arg-type]
    assert sum(parameter.numel() for parameter in paper.parameters()) == parameters


def moved(**choices: Any) -> TranslatorModel:
    """A model away from its start, where some choices are equal: ScaleNorm begins as RMSNorm.

    What is added to a parameter depends on its name alone, so parts that two models have in common stay equal. In
    double precision, where rounding is far below any difference that a choice makes.
    """
    translator = model(**choices).double()
    with torch.no_grad():
        for name, parameter in translator.named_parameters():
            if parameter.requires_grad:
                generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.double))
    return translator


def test_every_choice_is_another_model() -> None:
    with torch.no_grad():
        losses = [float(moved(**choices)(BATCH)) for choices in CHOICES]
        assert losses[0] == pytest.approx(float(moved()(BATCH)), abs=1e-9)  # the same choices are the same model
    for (choice, first), (another, second) in itertools.combinations(zip(CHOICES, losses, strict=True), 2):
        assert abs(first - second) > 1e-6, (choice, another)


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_every_choice_learns_one_batch_by_heart(choices: dict[str, Any]) -> None:
    learner = model(**choices)
    optimizer = torch.optim.Adam((p for p in learner.parameters() if p.requires_grad), lr=5e-3)
    learner.config = dataclasses.replace(learner.config, label_smoothing=0.0)
    before = float(learner(BATCH))
    for _ in range(30):
        optimizer.zero_grad()
        torch.autograd.backward(learner(BATCH))
        optimizer.step()
    assert float(learner(BATCH)) < 0.35 * before


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_decoding_piece_by_piece_gives_the_probabilities_of_training(choices: dict[str, Any]) -> None:
    translator = model(**choices).eval()
    (direction,) = translator.directions
    classes = translator.get_buffer("class_of_piece_0")
    with torch.inference_mode():
        state = translator.start(BATCH.source, direction)
        logits = [translator.step(BATCH.target_in[:, t], state) for t in range(BATCH.target_in.shape[1])]
        expected = float(translator(BATCH))
    steps = [step.log_softmax(-1) for step in logits]
    real = (BATCH.target_out != PAD).nonzero().tolist()
    total = -sum(float(steps[t][row, classes[BATCH.target_out[row, t]]]) for row, t in real)
    assert total / len(real) == pytest.approx(expected, rel=1e-4)


def test_label_smoothing_is_spread_over_what_may_be_said() -> None:
    translator = model().train()
    translator.config = dataclasses.replace(translator.config, label_smoothing=0.0)
    sharp = float(translator(BATCH))
    translator.config = dataclasses.replace(translator.config, label_smoothing=1.0)
    uniform = float(translator(BATCH))
    translator.config = dataclasses.replace(translator.config, label_smoothing=0.1)
    assert float(translator(BATCH)) == pytest.approx(0.9 * sharp + 0.1 * uniform, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_target_piece_that_may_not_be_said_is_refused(dtype: torch.dtype) -> None:
    """29 is a piece of the source alone; in float32 a kernel computes the loss, in float64 torch does."""
    with pytest.raises(ValueError, match="target holds class -1, but the classes are 0 to 26"):
        model().to(dtype)(Batch.of([[5, 6, 7]], [[9, 29]]))
