"""Queries and keys as they meet in the softmax: of this library's layers, and of those of Hugging Face's transformers.

Tensors are (batch, heads, length, head_dim). Logits exist a few rows at a time, so memory is linear in length.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from qknorm.attention.core import AttentionCore, Call
from qknorm.attention.length import LengthScaling, is_visible, scaled_for_length
from qknorm.attention.norms import LpNorm
from qknorm.ops.attention import attention_weights, for_all_heads

_LOGITS_AT_ONCE = 2**21


class Rows(NamedTuple):
    """Some rows of an attention: logits without masks, what is added to them, and True where a query may attend."""

    span: slice
    logits: Tensor
    bias: Tensor | None
    visible: Tensor

    def weights(self, logits: Tensor | None = None) -> Tensor:
        """Return the probabilities, or those of other logits; zeros for a query that may attend to nothing."""
        logits = self.logits if logits is None else logits
        masked = (logits if self.bias is None else logits + self.bias).masked_fill(~self.visible, -math.inf)
        return masked.softmax(-1).masked_fill(~self.visible, 0.0)


class Attended(NamedTuple):
    """One call of an attention layer: softmax(scale · query keyᵀ), with fewer heads of keys if they are shared.

    projected: queries and keys before norms and positions; those of the softmax if they could not be seen, and of this
    call alone where a cache holds keys of earlier ones.
    """

    query: Tensor
    key: Tensor
    scale: float
    attn_mask: Tensor | None
    is_causal: bool
    projected: tuple[Tensor, Tensor]

    def lengths(self, vectors: Tensor, p: float = 2.0) -> Tensor:
        """(batch, heads, length): Lp norms of queries or keys, one for each query head."""
        norms: Tensor = torch.linalg.vector_norm(for_all_heads(vectors, self.query), p, -1, dtype=self._wide)
        return norms

    def visible_keys(self) -> Tensor:
        """(batch, heads, keys): whether a query may attend to a key; padding and rooms of caches have others."""
        batch, heads, queries, _ = self.query.shape
        positions = torch.arange(self.key.shape[-2], device=self.query.device)
        visible = positions < queries if self.is_causal else positions >= 0
        if self.attn_mask is not None:
            visible = visible & is_visible(self.attn_mask).any(-2)
        return visible.expand(batch, heads, -1)

    def length_factor(self, scaling: LengthScaling) -> float:
        """The largest factor, in absolute value, of a query for the number of keys that it may see."""
        ones = torch.ones(self.query.shape[-2], 1, dtype=self._wide, device=self.query.device)
        factors = scaled_for_length(ones, scaling, self.key.shape[-2], self.attn_mask, self.is_causal)
        return float(factors.abs().max())

    def rows(self) -> Iterator[Rows]:
        """All rows, as many at a time as let logits take a fixed amount of memory, or one row of each head."""
        batch, heads, queries, _ = self.query.shape
        keys = for_all_heads(self.key, self.query).to(self._wide)
        size = max(1, _LOGITS_AT_ONCE // (batch * heads * keys.shape[-2]))
        for start in range(0, queries, size):
            span = slice(start, min(start + size, queries))
            with torch.autocast(keys.device.type, enabled=False):  # it would multiply in half precision
                logits = self.query[:, :, span].to(self._wide) @ keys.transpose(-2, -1) * self.scale
            yield Rows(span, logits, *self._masks(span, logits))

    def weights(self) -> Tensor:
        """(batch, heads, queries, keys), for short texts: all rows at once."""
        return torch.cat([rows.weights() for rows in self.rows()], -2)

    @property
    def _wide(self) -> torch.dtype:
        return torch.promote_types(self.query.dtype, torch.float32)

    def _masks(self, span: slice, logits: Tensor) -> tuple[Tensor | None, Tensor]:
        bias, visible = None, torch.ones((), dtype=torch.bool, device=logits.device)
        if self.attn_mask is not None:
            mask = self.attn_mask.expand(*logits.shape[:2], self.query.shape[-2], logits.shape[-1])[:, :, span]
            bias, visible = (None if mask.dtype == torch.bool else mask), is_visible(mask)
        if self.is_causal:
            positions = torch.arange(span.start, span.stop, device=logits.device)
            visible = visible & (positions[:, None] >= torch.arange(logits.shape[-1], device=logits.device))
        return bias, visible.expand_as(logits)


Observer: TypeAlias = Callable[[str, nn.Module, Attended], None]
"""Is told the name of a layer, the layer, and what it attends to."""


@contextmanager
def observing(model: nn.Module, observer: Observer) -> Iterator[None]:
    """Show an observer each attention that the model computes meanwhile, as it is computed: nothing is called twice.

    It sees every layer with an `AttentionCore`, and every layer of transformers that uses its AttentionInterface; but
    not single decoding steps. What is compiled runs as it is written meanwhile: hooks would make it compile again.
    """
    observation = _Observation({module: name for name, module in model.named_modules()}, observer)
    with _EVERYWHERE.joined(observation), ExitStack() as hooks:
        for hook in observation.hooks():
            hooks.enter_context(hook)
        yield


@contextmanager
def weights_of_head(layer: nn.Module, head: int) -> Iterator[list[Tensor]]:
    """Collect the weights of one head of a layer, (batch, queries, keys), in each call, with their gradients."""
    collected: list[Tensor] = []

    def collect(_core: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], _output: Any) -> None:
        call = Call(*inputs, **options)
        key = for_all_heads(call.key, call.query)[:, [head]]
        mask = call.attn_mask
        if mask is not None and mask.dim() > 2 and mask.shape[-3] > 1:
            mask = mask[..., [head], :, :]
        weights = attention_weights(call.query[:, [head]], key, call.scale, mask, call.is_causal)
        collected.append(weights.squeeze(1))

    core = layer.get_submodule("core")
    assert isinstance(core, AttentionCore)
    with core.shown_to(collect):
        yield collected


def arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """How a model is called with a batch: a mapping holds arguments by name, a tuple or list in their order."""
    if isinstance(batch, Mapping):
        return (), dict(batch)
    return (tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)), {}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in eval mode without gradients; afterwards each module returns to its former mode."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


class _Observation:
    """An observer, the layers of its model, and what their projections gave since it was last shown it."""

    def __init__(self, names: Mapping[nn.Module, str], observer: Observer) -> None:
        self.names, self.observer = names, observer
        self.projected: dict[tuple[nn.Module, str], Tensor] = {}
        self.shown = 0

    def hooks(self) -> Iterator[AbstractContextManager[Any]]:
        """All that look on while the model is called."""
        for layer in self.names:
            cores = [child for child in layer.children() if isinstance(child, AttentionCore)]
            for side in ("q", "k"):
                yield from self._before_norm(layer, side, bool(cores))
            for core in cores:
                yield core.shown_to(functools.partial(self._of_core, layer))

    def _before_norm(self, layer: nn.Module, side: str, has_core: bool) -> Iterator[RemovableHandle]:
        """Keep what a projection gives; where it is not a module, or normalises by itself, what the norm is given."""
        projection, norm = getattr(layer, f"{side}_proj", None), getattr(layer, f"{side}_norm", None)
        grafted = getattr(projection, "norm", None)
        if isinstance(grafted, LpNorm):
            yield grafted.register_forward_pre_hook(lambda _norm, inputs: self._keep(layer, side, inputs[0]))
        elif isinstance(projection, nn.Module):
            yield projection.register_forward_hook(lambda _projection, _inputs, out: self._keep(layer, side, out))
        elif has_core and isinstance(norm, nn.Module):
            yield norm.register_forward_pre_hook(lambda _norm, inputs: self._keep(layer, side, inputs[0]))

    def _keep(self, layer: nn.Module, side: str, projected: Any) -> None:
        if isinstance(projected, Tensor):
            self.projected[layer, side] = projected.detach()

    def _of_core(
        self, layer: nn.Module, _core: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], _output: Any
    ) -> None:
        self.show(layer, Call(*inputs, **options))

    @torch.no_grad()
    def show(self, layer: nn.Module, call: Call) -> None:
        """Show the observer a call, with what its queries and keys were before norms and positions."""
        self.shown += 1
        if not call.query.numel() or not call.key.numel():
            return
        query, key = call.query.detach(), call.key.detach()
        projected = (
            _by_heads(self.projected.pop((layer, side), None), seen) for side, seen in (("q", query), ("k", key))
        )
        seen = Attended(query, key, call.scale, call.attn_mask, call.is_causal, (next(projected), next(projected)))
        self.observer(self.names[layer], layer, seen)


class _Everywhere:
    """What is in place while anybody observes: nothing is compiled, and transformers shows what it attends to.

    The last observation to leave, in any order, restores what the first found.
    """

    def __init__(self) -> None:
        self._observations: list[_Observation] = []
        self._places = ExitStack()

    @contextmanager
    def joined(self, observation: _Observation) -> Iterator[None]:
        if not self._observations:
            self._places.enter_context(torch.compiler.set_stance("force_eager"))
            if "transformers" in sys.modules:
                self._places.enter_context(self._looking_at_transformers())
        self._observations.append(observation)
        try:
            yield
        finally:
            self._observations.remove(observation)
            if not self._observations:
                self._places.close()

    @contextmanager
    def _looking_at_transformers(self) -> Iterator[None]:
        """Let `AttentionInterface.get_interface` return functions that show what they are called with."""
        from transformers import AttentionInterface

        before, choose = vars(AttentionInterface).get("get_interface"), AttentionInterface.get_interface
        AttentionInterface.get_interface = torch.compiler.disable(lambda *inputs: self._observed(choose(*inputs)))
        try:
            yield
        finally:
            if before is None:
                del AttentionInterface.get_interface
            else:
                AttentionInterface.get_interface = before

    def _observed(self, attend: Callable[..., Any]) -> Callable[..., Any]:
        def observed(
            layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, **options: Any
        ) -> Any:
            concerned = [observation for observation in self._observations if layer in observation.names]
            before = [observation.shown for observation in concerned]
            attended = attend(layer, query, key, value, attention_mask, **options)
            for observation, shown in zip(concerned, before, strict=True):
                if observation.shown == shown and query.shape[-2] > 1:  # a function with a core has shown it already
                    observation.show(layer, _of_transformers(layer, query, key, value, attention_mask, **options))
            return attended

        return observed


def _of_transformers(
    layer: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Any,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **_others: Any,
) -> Call:
    """A call as transformers' sdpa understands its arguments."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if isinstance(mask, Tensor) and mask.dim() == 4:
        return Call(query, key, value, scale, mask)
    causal = getattr(layer, "is_causal", True) if is_causal is None else is_causal
    return Call(query, key, value, scale, is_causal=bool(causal))


def _by_heads(given: Tensor | None, seen: Tensor) -> Tensor:
    """What a projection gave, by heads; what was seen in the softmax where it gave nothing, or more than that."""
    if given is None:
        return seen
    heads, dim = seen.shape[1], seen.shape[-1]
    if given.dim() == 3 and given.shape[-1] == heads * dim:
        given = given.unflatten(-1, (heads, dim)).transpose(1, 2)
    fits = given.dim() == 4 and (given.shape[1], given.shape[-1]) == (heads, dim)
    return given if fits else seen


_EVERYWHERE = _Everywhere()
