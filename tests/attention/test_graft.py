from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import qknorm
from qknorm.attention.graft import GraftedNorm
from qknorm.data.batches import Batch
from qknorm.models.gpt import GPT, GPTConfig
from qknorm.models.translator import TranslatorConfig, TranslatorModel
from qknorm.ops.rotary import Pairing
from tests.attention.hugging_face import tiny

CONFIG = GPTConfig(8, context=24, layers=2, heads=2, dim=32, dropout=0.0, qk_norm="none")


def windows(batch: int = 16) -> tuple[Tensor, Tensor]:
    """The second half of each sequence repeats the first: attention has something to find."""
    numbers = torch.randint(8, (batch, 12)).repeat(1, 2)
    return numbers, numbers.roll(-1, 1)


def copying_loss(model: GPT) -> float:
    torch.manual_seed(1)
    with torch.no_grad():
        return float(model.eval()(*windows(64)))


@pytest.fixture(scope="module")
def trained() -> GPT:
    torch.manual_seed(0)
    model = GPT(CONFIG)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(250):
        optimizer.zero_grad()
        model(*windows()).backward()
        optimizer.step()
    return model.eval()


@pytest.fixture
def model(trained: GPT) -> GPT:
    return copy.deepcopy(trained)


def g_of(model: nn.Module) -> list[Tensor]:
    norms = [module for module in model.modules() if isinstance(module, GraftedNorm)]
    return [norm.log_scale.data for norm in norms if norm.log_scale is not None]


@torch.no_grad()
def test_strength_0_is_the_old_model_bit_for_bit(trained: GPT, model: GPT) -> None:
    numbers, _ = windows()
    qknorm.graft(model, [windows()], p=3.0)
    qknorm.strength_(model, 0.5)
    qknorm.strength_(model, 0.0)
    assert torch.equal(model.step(numbers, model.start()), trained.step(numbers, trained.start()))


@pytest.mark.parametrize("move", [0.0, 2.0])
def test_strength_1_is_query_key_normalisation(model: GPT, move: float) -> None:
    qknorm.graft(model, [windows()], move=move)
    for strength in (0.0, 0.5):
        qknorm.strength_(model, strength)
        with pytest.raises(AssertionError):
            qknorm.testing.assert_normalized(model, windows())
    qknorm.fold_(model)
    qknorm.testing.assert_normalized(model, windows())


def test_a_grafted_model_is_one_of_the_usual_kind(model: GPT) -> None:
    qknorm.graft(model, [windows()], move=0.0)
    usual = GPT(dataclasses.replace(CONFIG, qk_norm={"kind": "lp", "per_head_scale": True}))
    usual.load_state_dict(model.state_dict())
    assert copying_loss(usual) == pytest.approx(copying_loss(model), rel=1e-5)


class TestFolding:
    """A graft becomes part of the projections."""

    def test_nothing_changes_but_the_modules(self, model: GPT) -> None:
        qknorm.graft(model, [windows()], p=3.0)
        grafted = copying_loss(model)
        qknorm.strength_(model, 0.3)
        qknorm.fold_(model)  # at strength 1 whatever it was
        assert copying_loss(model) == pytest.approx(grafted, abs=1e-5)
        norms = [module for module in model.modules() if isinstance(module, qknorm.LpNorm)]
        assert {type(norm) for norm in norms} == {qknorm.LpNorm}
        assert [norm.p for norm in norms] == [3.0] * 4
        with pytest.raises(ValueError, match="no grafted attention"):
            qknorm.strength_(model, 0.0)

    @torch.no_grad()
    @pytest.mark.parametrize("bias", [False, True])
    def test_a_llama_is_folded(self, bias: bool) -> None:
        model, numbers = tiny("llama", attention_bias=bias), torch.randint(31, (2, 9))
        qknorm.graft(model, [numbers])
        grafted = model(numbers).logits
        qknorm.fold_(model)
        assert torch.allclose(model(numbers).logits, grafted, atol=1e-5)
        qknorm.testing.assert_normalized(model, numbers)


class TestMoves:
    """Constant vectors, in directions that a head does not use, keep what lengths say."""

    def test_the_longer_they_are_the_closer_is_the_old_model(self, trained: GPT) -> None:
        losses = []
        for move in (0.0, 1.0, 2.0, 4.0):
            model = copy.deepcopy(trained)
            qknorm.graft(model, [windows(64)], move=move)
            losses.append(copying_loss(model))
        old = copying_loss(trained)
        assert losses == sorted(losses, reverse=True)
        assert losses[2] - old < 0.2 * (losses[0] - old)

    @torch.no_grad()
    @pytest.mark.parametrize("p", [1.5, 2.0, 4.0])
    def test_long_ones_give_the_old_attention_where_two_directions_are_free(self, p: float) -> None:
        attention = qknorm.QKNormAttention(32, 2, qk_norm=None).double()
        turned = torch.linalg.qr(torch.randn(16, 16, dtype=torch.float64))[0]
        turned[0] = turned[1] = 0  # heads of 16 with vectors in 14 dimensions, which no axis shows
        for projection in (attention.q_proj, attention.k_proj):
            heads = turned.T @ turned @ projection.weight.view(2, 16, 32)
            projection.weight.copy_(heads.flatten(0, 1))
            projection.bias.zero_()
        x = torch.randn(2, 7, 32, dtype=torch.float64)
        old = attention(x)
        (g,) = qknorm.graft(attention, [x], p, move=1000.0).values()
        assert torch.allclose(attention(x), old, atol=1e-4)
        assert (g > 1000).all()

    @torch.no_grad()
    @pytest.mark.parametrize("pairing", ["half", "interleaved"])
    @pytest.mark.parametrize("rotary_dim", [16, 8])
    def test_they_lie_in_planes_that_positions_rotate(self, pairing: Pairing, rotary_dim: int) -> None:
        attention = qknorm.QKNormAttention(64, 4, num_kv_heads=2, qk_norm=None, bias=False).double()
        free = [1, 2, 1 + rotary_dim // 2, 2 + rotary_dim // 2] if pairing == "half" else [2, 3, 6, 7]
        for projection in (attention.q_proj, attention.k_proj):
            projection.weight.view(-1, 16, 64)[:, free] = 0.0
        angles = torch.arange(9.0, dtype=torch.float64)[:, None] / 10 ** torch.linspace(0, 2, rotary_dim // 2)
        angles = angles.repeat(1, 2) if pairing == "half" else angles.repeat_interleave(2, 1)
        rotary = qknorm.Rotary(angles.cos(), angles.sin(), pairing)
        x = torch.randn(2, 9, 64, dtype=torch.float64)
        old = attention(x, rotary=rotary)
        qknorm.graft(attention, [{"query": x, "rotary": rotary}], move=1000.0)
        assert torch.allclose(attention(x, rotary=rotary), old, atol=1e-4)

    def test_a_head_that_has_none_to_spare_gets_none(self) -> None:
        attention = qknorm.QKNormAttention(8, 2, qk_norm=None)
        qknorm.graft(attention, [torch.randn(2, 5, 8)])
        assert [name for name, _ in attention.named_parameters() if name.endswith("added")] == []


@pytest.mark.parametrize("p", [2.0, 3.0])
def test_fitted_g_is_where_the_divergence_is_least(trained: GPT, p: float) -> None:
    attention = copy.deepcopy(trained.get_submodule("blocks.1").attention)
    assert isinstance(attention, qknorm.QKNormAttention)
    x = torch.randn(4, 12, 32)
    with torch.no_grad():
        old = attention.weights(x, is_causal=True)
        (fitted,) = qknorm.graft(_Causal(attention), [x], p).values()
        (log_g,) = g_of(attention)

        def divergence(factor: float) -> Tensor:
            log_g.copy_((fitted * factor).log())
            new = attention.weights(x, is_causal=True)
            divergences: Tensor = torch.special.xlogy(old, old) - torch.special.xlogy(old, new)
            return divergences.sum((0, 2, 3))

        assert (divergence(1.0) <= divergence(0.98)).all()
        assert (divergence(1.0) <= divergence(1.02)).all()


class _Causal(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.attention(x, is_causal=True)
        return out


def test_vectors_of_equal_lengths_are_found_again() -> None:
    """Where all queries and keys have one length, the graft is the old attention at every strength."""
    attention = qknorm.QKNormAttention(16, 2, qk_norm=None, bias=False)
    for projection in (attention.q_proj, attention.k_proj):
        projection.weight.data = torch.block_diag(*(torch.linalg.qr(torch.randn(8, 8))[0] * 3 for _ in range(2)))
    x = qknorm.lp_normalize(torch.randn(2, 9, 2, 8)).flatten(2)
    old = attention(x)
    (g,) = qknorm.graft(attention, [x], move=0.0).values()
    assert g.tolist() == pytest.approx([9 / 8**0.5] * 2, rel=1e-4)
    for strength in (0.3, 1.0):
        qknorm.strength_(attention, strength)
        assert torch.allclose(attention(x), old, atol=1e-5)


def test_logits_in_between_are_geometric_means() -> None:
    attention = qknorm.QKNormAttention(16, 2, qk_norm=None)
    x = torch.randn(1, 5, 16)
    q, k = (projection(x).view(1, 5, 2, 8).transpose(1, 2) for projection in (attention.q_proj, attention.k_proj))
    (g,) = qknorm.graft(attention, [x], move=0.0).values()
    qknorm.strength_(attention, 0.25)
    plain, cosine = q @ k.mT / 8**0.5, qknorm.lp_normalize(q) @ qknorm.lp_normalize(k).mT
    logits = plain.abs() ** 0.75 * (g.view(-1, 1, 1) * cosine.abs()) ** 0.25 * plain.sign()
    assert torch.allclose(attention.weights(x), logits.softmax(-1), atol=1e-5)


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_g_and_the_moves_learn(model: GPT, strength: float) -> None:
    qknorm.graft(model, [windows()])
    qknorm.strength_(model, strength)
    model(*windows()).backward()
    new = {name: p.grad for name, p in model.named_parameters() if name.endswith(("log_scale", "norm.added"))}
    assert len(new) == 2 + 4
    assert all(gradient is not None and gradient.abs().max() > 0 for gradient in new.values())


@torch.no_grad()
def test_a_cache_decodes_a_grafted_model(model: GPT) -> None:
    qknorm.graft(model, [windows()])
    qknorm.strength_(model, 0.5)
    numbers, _ = windows(2)
    caches = model.start()
    for column in numbers.split(1, 1):
        logits = model.step(column, caches)
    assert torch.allclose(logits, model.step(numbers, model.start()), atol=1e-4)


def test_a_translator_takes_a_graft() -> None:
    config = TranslatorConfig(dim=16, feed_forward=16, encoder_layers=1, decoder_layers=1, heads=2, qk_norm="none")
    model = TranslatorModel(config, {("en", "gl"): torch.ones(20, dtype=torch.bool)}).eval()
    batch = Batch.of([[5, 6, 7], [8, 9]], [[10, 11], [12, 13, 14]], 0)
    old = model(batch)
    result = qknorm.graft(model, [batch])
    assert list(result) == ["encoder.0.attention", "decoder.0.attention", "decoder.0.source_attention"]
    qknorm.strength_(model, 0.0)
    assert torch.equal(model(batch), old)
    qknorm.fold_(model)
    qknorm.testing.assert_normalized(model, batch)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_llama_takes_a_graft(implementation: str) -> None:
    model = tiny("llama", attention_bias=True)
    model.set_attn_implementation(implementation)
    numbers = torch.randint(31, (2, 9))
    old = model(numbers).logits
    names = [name for name, _ in model.named_parameters()]
    qknorm.graft(model, [{"input_ids": numbers}])
    assert {name for name, _ in model.named_parameters()} - set(names) == {
        f"model.layers.{layer}.self_attn.{new}"
        for layer in range(2)
        for new in ("q_proj.norm.log_scale", "q_proj.norm.added", "k_proj.norm.added")
    }
    qknorm.strength_(model, 0.0)
    assert torch.equal(model(numbers).logits, old)


def test_the_bound_is_shown_once_the_graft_holds(model: GPT) -> None:
    result = qknorm.graft(model, [windows()])
    with qknorm.watch(model, every=1) as watched:
        model(*windows())
        qknorm.strength_(model, 0.5)
        model(*windows())
    held, between = (look.layers["blocks.0.attention"] for look in watched.looks)
    assert held["bound"] == pytest.approx(result["blocks.0.attention"].tolist(), rel=1e-5)
    assert between["bound"] is None


def test_what_cannot_be_is_a_sentence(model: GPT) -> None:
    wrong: list[tuple[Callable[[], object], str]] = [
        (lambda: qknorm.graft(model, [windows()], move=-1.0), "move must not be negative"),
        (lambda: qknorm.graft(tiny("qwen3"), []), "no attention layer without query-key normalisation"),
        (lambda: qknorm.graft(GPT(CONFIG), []), r"do not reach blocks\.0\.attention, blocks\.1\.attention"),
        (lambda: qknorm.strength_(model, -0.1), "from 0 to 1"),
        (lambda: qknorm.strength_(model, 1.1), "from 0 to 1"),
        (lambda: qknorm.strength_(model, 1.0), "no grafted attention; call graft"),
        (lambda: qknorm.fold_(model), "no grafted attention"),
    ]
    for call, sentence in wrong:
        with pytest.raises(ValueError, match=sentence):
            call()
