"""The operator for a whole model against the search in torch's operations, which defines what is to be found."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import nn

from qknorm.attention.norms import KINDS, LpKind
from qknorm.data.subwords import EOS
from qknorm.decoding import beam
from qknorm.decoding.beam import BeamSettings, Hypothesis, Search, beam_search, searched
from qknorm.decoding.engine import packed_model
from qknorm.decoding.sentence import Sentence
from qknorm.errors import InputError
from qknorm.models.half import use_half_products
from qknorm.models.translator import TranslatorModel
from tests.models.test_translator import CHOICES, model
from tests.ops.kernels import needs_kernel

ROUNDING = 2e-4  # what a score may differ by: two ways of adding up, in layers one after the other

sources = st.lists(st.lists(st.integers(4, 28), max_size=40), min_size=1, max_size=9)
shapes = st.sampled_from(
    [
        *CHOICES,
        {"dim": 64, "heads": 1, "feed_forward": 100},
        {"dim": 48, "encoder_layers": 1, "decoder_layers": 3},
        {"dim": 24, "heads": 2, "feed_forward": 7, "placement": "post", "norm": "rms"},
        {"dim": 24, "position_dim": 12},
        {"qk_norm": LpKind(math.inf)},
        {"qk_norm": LpKind(2.7, log_scale=True, per_head_scale=True)},
        {"qk_norm": LpKind(1.0, scale_init=40.0), "norm": "scale"},
    ]
)
searches = st.builds(
    BeamSettings,
    beam_size=st.integers(1, 6),
    length_penalty=st.sampled_from([-0.5, 0.0, 0.6, 2.0]),
    extra_length=st.integers(0, 8),
    min_length=st.integers(0, 4),
    max_length=st.one_of(st.none(), st.integers(1, 9)),
)


def trained(**choices: Any) -> TranslatorModel:
    """Weights away from where they start: of norms and biases too."""
    made = model(**choices).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        made.embedding.output_bias[EOS] += 1.5
    return made


def found(translator: TranslatorModel, some: Sequence[Sequence[int]], settings: BeamSettings) -> list[list[Hypothesis]]:
    return beam_search(translator, wanted(some, settings), settings, translator.directions[0])


def wanted(some: Sequence[Sequence[int]], settings: BeamSettings) -> list[Sentence]:
    """As many hypotheses as the beam has, of every second one."""
    return [Sentence(source, 1 if row % 2 else settings.beam_size) for row, source in enumerate(some)]


def by_definition(
    translator: TranslatorModel, some: Sequence[Sequence[int]], settings: BeamSettings
) -> list[list[Hypothesis]]:
    direction = translator.directions[0]
    return searched(
        lambda chosen: Search(translator, chosen, settings, direction), wanted(some, settings), settings.beam_size
    )


def is_served(translator: TranslatorModel) -> bool:
    return packed_model(translator, translator.directions[0], "float32", 10) is not None


@pytest.fixture
def no_plain_search(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(*_: Any) -> None:
        raise AssertionError("left to the plain search")

    with monkeypatch.context() as patched:
        patched.setattr(beam, "Search", refuse)
        yield


def assert_same(actual: Sequence[Hypothesis], expected: Sequence[Hypothesis]) -> None:
    """The same pieces and scores, but for hypotheses that are within rounding of each other."""
    assert [h.score for h in actual] == pytest.approx([h.score for h in expected], abs=ROUNDING)
    for ours, theirs in zip(actual, expected, strict=True):
        if ours.pieces == theirs.pieces:
            assert ours.piece_scores == pytest.approx(theirs.piece_scores, abs=ROUNDING)
        else:
            assert any(abs(ours.score - other.score) < ROUNDING for other in expected)


@needs_kernel
@hypothesis_settings(max_examples=60)
@given(shapes, sources, searches)
def test_hypotheses_and_scores_are_those_of_the_definition(
    choices: dict[str, Any], some: list[list[int]], settings: BeamSettings
) -> None:
    translator = trained(**choices)
    assert is_served(translator)
    for actual, expected in zip(
        found(translator, some, settings), by_definition(translator, some, settings), strict=True
    ):
        assert_same(actual, expected)


@needs_kernel
@pytest.mark.usefixtures("no_plain_search")
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_a_translation_is_the_same_in_any_company_to_the_last_bit(choices: dict[str, Any], precision: Any) -> None:
    translator = trained(**choices, feed_forward=80)
    settings = BeamSettings(3, extra_length=6, precision=precision)
    generator = torch.Generator().manual_seed(3)
    lengths = [0, 1, 2, 3, 5, 8, 13, 21, 33, 50, 70]
    some = [torch.randint(4, 29, (length,), generator=generator).tolist() for length in (*lengths, *lengths, *lengths)]
    together = found(translator, some, settings)
    assert together == found(translator, some[::-1], settings)[::-1]
    for source, sentence, hypotheses in zip(some, wanted(some, settings), together, strict=True):
        assert beam_search(translator, [sentence], settings, translator.directions[0]) == [hypotheses], source


@needs_kernel
def test_more_sentences_than_are_worked_on_at_a_time() -> None:
    translator, settings = trained(), BeamSettings(2, extra_length=4)
    some = [[4 + i % 25, 4 + i * 7 % 25] * (i % 4 + 1) for i in range(200)]
    for actual, expected in zip(
        found(translator, some, settings), by_definition(translator, some, settings), strict=True
    ):
        assert_same(actual, expected)


@needs_kernel
def test_bytes_say_nearly_what_floats_say() -> None:
    """The log-probabilities of the first pieces, which no earlier choice has changed."""
    translator = trained(dim=64, feed_forward=128)
    some = [[5, 6, 7], [8], [9, 10, 11, 12, 13], []]
    first = {
        precision: [best.piece_scores[0] for best, *_ in found(translator, some, BeamSettings(30, precision=precision))]
        for precision in ("float32", "int8")
    }
    assert first["int8"] != first["float32"]
    assert first["int8"] == pytest.approx(first["float32"], abs=0.1)


@needs_kernel
def test_weights_that_change_are_noticed() -> None:
    translator, settings = trained(), BeamSettings(extra_length=3)
    before = found(translator, [[5, 6]], settings)
    with torch.no_grad():
        translator.embedding.output_bias[20] += 30.0
    after = found(translator, [[5, 6]], settings)
    assert after[0][0].pieces == [20] * 5 != before[0][0].pieces


@needs_kernel
def test_longer_sentences_than_the_model_was_packed_for() -> None:
    translator, settings = trained(), BeamSettings(1, max_length=5)
    for length in (3, 300, 700, 3):
        some = [[5] * length]
        for actual, expected in zip(
            found(translator, some, settings), by_definition(translator, some, settings), strict=True
        ):
            assert_same(actual, expected)


class Doubled(nn.LayerNorm):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return super().forward(input) * 2


def _with_another_norm(translator: TranslatorModel) -> None:
    translator.decoder_norm = Doubled(16)


def _with_another_kind(translator: TranslatorModel) -> None:
    """QK norms of somebody else's."""
    for name in [name for name, _ in translator.named_modules()]:
        if name.endswith("k_norm"):
            translator.get_submodule(name.rpartition(".")[0]).k_norm = Doubled(4)


def _in_double(translator: TranslatorModel) -> None:
    translator.double()


def _watched(translator: TranslatorModel) -> None:
    translator.decoder_norm.register_forward_hook(lambda _module, _inputs, out: out * 2)


def _without_bias(translator: TranslatorModel) -> None:
    translator.decoder_norm = nn.LayerNorm(16, bias=False)


@pytest.mark.parametrize("change", [_with_another_norm, _with_another_kind, _in_double, _watched, _without_bias])
def test_what_it_does_not_know_is_left_to_the_definition(change: Any) -> None:
    translator, settings = trained(), BeamSettings(extra_length=4, precision="int8")
    change(translator)
    assert not is_served(translator)
    assert found(translator, [[5, 6, 7], [8]], settings) == by_definition(translator, [[5, 6, 7], [8]], settings)


def test_every_kind_of_the_table_is_served_or_left() -> None:
    """A new kind of norm is not silently taken for another one."""
    assert {choices["qk_norm"] for choices in CHOICES if isinstance(choices.get("qk_norm"), str)} | {"lp"} == set(KINDS)


@needs_kernel
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_weights_that_are_not_numbers_are_one_sentence(precision: Any) -> None:
    translator = trained()
    with torch.no_grad():
        translator.get_parameter("decoder.0.feed_forward.inner.weight")[3, 5] = math.nan
    with pytest.raises(InputError, match="the model's output is not a number"):
        found(translator, [[5, 6]], BeamSettings(precision=precision))


@needs_kernel
@pytest.mark.parametrize("value", [math.inf, -math.inf, 3e38])
@pytest.mark.parametrize("name", ["decoder.0.feed_forward.inner.weight", "decoder.1.source_attention.k_proj.weight"])
def test_infinite_weights_do_what_they_do_by_the_definition(value: float, name: str) -> None:
    translator, settings = trained(), BeamSettings(extra_length=3)
    with torch.no_grad():
        translator.get_parameter(name)[3, 5] = value
    outcomes: list[object] = []
    for search in (found, by_definition):
        try:
            outcomes.append([best.pieces for best, *_ in search(translator, [[5, 6], [7]], settings)])
        except InputError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1]


@needs_kernel
@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_weights_of_zeros(precision: Any) -> None:
    translator = trained()
    with torch.no_grad():
        translator.get_parameter("decoder.0.feed_forward.inner.weight").zero_()
        translator.get_parameter("decoder.0.feed_forward.outer.weight")[2] = 0
        translator.embedding.weight[7] = 0
    settings = BeamSettings(extra_length=2, precision=precision)
    (best, *_) = found(translator, [[7, 7]], settings)[0]
    tolerance = ROUNDING if precision == "float32" else 0.5
    assert best.score == pytest.approx(by_definition(translator, [[7, 7]], settings)[0][0].score, abs=tolerance)


def test_no_sentences_and_sentences_without_pieces() -> None:
    translator = trained()
    assert found(translator, [], BeamSettings()) == []
    ((best,),) = found(translator, [[]], BeamSettings(1, extra_length=0))
    assert best.pieces == []


def test_a_copy_of_a_model_has_weights_of_its_own() -> None:
    translator, settings = trained(), BeamSettings(extra_length=3)
    other = copy.deepcopy(translator)
    with torch.no_grad():
        other.embedding.output_bias[20] += 30.0
    assert found(translator, [[5, 6]], settings) != found(other, [[5, 6]], settings)
    assert found(translator, [[5, 6]], settings) == found(translator, [[5, 6]], dataclasses.replace(settings))


@needs_kernel
@pytest.mark.usefixtures("no_plain_search")
def test_a_model_that_learns_with_half_products_says_what_its_weights_say() -> None:
    exact = trained()
    half = copy.deepcopy(exact)
    use_half_products(half)
    some = [[4, 5, 6], [7, 8]]
    assert found(half.eval(), some, BeamSettings()) == found(exact, some, BeamSettings())


@needs_kernel
@pytest.mark.parametrize("fused", [False, True])
def test_weights_that_an_optimiser_has_changed_are_noticed(fused: bool) -> None:
    learning, settings = trained(), BeamSettings()
    before = found(learning, [[4, 5, 6]], settings)
    optimizer = torch.optim.Adam(learning.train().parameters(), lr=0.1, fused=fused)
    for parameter in learning.parameters():
        parameter.grad = torch.randn_like(parameter)
    optimizer.step()
    after = found(learning.eval(), [[4, 5, 6]], settings)
    assert after != before
    assert_same(after[0], by_definition(learning, [[4, 5, 6]], settings)[0])
