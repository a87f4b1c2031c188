"""A larger model says what the smaller one said, in double precision, and all that is new in it can learn."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from qknorm.models.growth import grown, grown_memory
from qknorm.models.translator import TranslatorModel
from tests.models.test_translator import BATCH, CHOICES, model, moved

WIDER = {"dim": 24, "heads": 6, "position_dim": 16}
DEEPER = {"encoder_layers": 3, "decoder_layers": 4}
LARGER = {**WIDER, "dim": 32, "heads": 8, "feed_forward": 50, "encoder_layers": 3, "decoder_layers": 3}
BEFORE = [choice for choice in CHOICES if choice.get("placement") != "post"]


@torch.no_grad()
def said(translator: TranslatorModel) -> torch.Tensor:
    """Log-probabilities of all that may be said, at every step of both sentences."""
    translator.eval()
    state = translator.start(BATCH.source, translator.directions[0])
    steps = [translator.step(pieces, state) for pieces in BATCH.target_in.T]
    return torch.stack(steps).log_softmax(-1)


def larger(before: TranslatorModel, **choices: Any) -> TranslatorModel:
    after = model(**choices).double()
    after.load_state_dict(grown(before.state_dict(), after))
    return after


@pytest.mark.parametrize("norm", ["layer", "scale", "rms"])
@pytest.mark.parametrize("choice", BEFORE, ids=str)
def test_a_larger_model_says_the_same(choice: dict[str, Any], norm: str) -> None:
    before = moved(**(choice := {"norm": norm, **choice}))
    with torch.no_grad():
        for name, parameter in before.decoder_norm.named_parameters():
            parameter.fill_(1.3 if name == "weight" else 0.0)  # see the next test
    after = larger(before, **choice, **LARGER)
    torch.testing.assert_close(said(after), said(before), rtol=0, atol=1e-10)
    torch.testing.assert_close(after(BATCH), before(BATCH), rtol=0, atol=1e-10)


@pytest.mark.parametrize("size", [DEEPER, {"feed_forward": 48}, WIDER, LARGER], ids=str)
@pytest.mark.parametrize("choice", [{"norm": "rms"}, {"norm": "layer", "fix_norm": False}, {}], ids=str)
def test_it_does_so_whatever_has_grown(choice: dict[str, Any], size: dict[str, int]) -> None:
    """But for LayerNorm with vectors of one length: the last norm's weights differ from one dimension to the next."""
    before, is_exact = moved(**choice), bool(choice) or "dim" not in size
    torch.testing.assert_close(
        said(larger(before, **choice, **size)), said(before), rtol=0, atol=1e-10 if is_exact else 0.3
    )


def test_it_grows_twice_as_it_would_at_once() -> None:
    before = moved(norm="rms")
    between = larger(before, norm="rms", **WIDER)
    after = larger(between, norm="rms", **LARGER)
    torch.testing.assert_close(said(after), said(before), rtol=0, atol=1e-10)


def test_all_that_is_new_can_learn() -> None:
    """After one step, of which new weights that begin as zero are the first to have a share, all of them move."""
    after = larger(moved(), **LARGER).train()
    start = {name: parameter.detach().clone() for name, parameter in after.named_parameters()}
    optimiser = torch.optim.SGD(after.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        after(BATCH).backward()
        optimiser.step()
    for name, parameter in after.named_parameters():
        if "proj.weight" in name:  # hidden units may be silent
            moves = (parameter - start[name]).abs()
            assert moves.amax(0).gt(0).all(), name
            assert moves.amax(1).gt(0).all(), name


@pytest.mark.parametrize("make", [torch.optim.Adam, lambda weights: torch.optim.SGD(weights, momentum=0.9)])
def test_an_optimiser_remembers_what_it_knew(make: Any) -> None:
    """Nothing of what is new; of squared gradients it has the mean of the others."""
    before = moved()
    after = larger(before, **LARGER)
    optimiser = make(before.parameters())
    before(BATCH).backward()
    optimiser.step()
    names = {parameter: name for name, parameter in before.named_parameters()}
    memory = {
        f"{key} of {names[parameter]}": torch.as_tensor(value)
        for parameter, state in optimiser.state.items()
        for key, value in state.items()
    }
    kept = grown_memory(memory, after)
    assert len(kept) == len(memory)
    for label, tensor in kept.items():
        key, _, name = label.partition(" of ")
        old = memory[f"{key} of {name.replace('coder.2', 'coder.1')}"]  # the last of three layers was that of two
        assert "coder.1" not in name
        torch.testing.assert_close(tensor[tuple(map(slice, old.shape))], old)
        if key != "step":
            assert tensor.shape == after.get_parameter(name).shape
            rest = old.mean() if key == "exp_avg_sq" else 0
            torch.testing.assert_close(tensor.sum(), old.sum() + rest * (tensor.numel() - old.numel()))


def test_weights_of_another_model_are_left_as_they_are() -> None:
    """A smaller one cannot take them, and one whose positions are others would not say the same."""
    before = moved()
    for other in ({"dim": 32, "heads": 8}, {"feed_forward": 16}, {"norm": "scale"}):
        weights = before.state_dict()
        assert grown(weights, model(**other)) is weights
