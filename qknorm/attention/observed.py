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

from qknorm.attention.cache import KeyValueCache, KeyValues
from qknorm.attention.length import LengthScaling, is_visible, scaled_for_length
from qknorm.attention.module import QKNormAttention
from qknorm.attention.multihead import MultiheadAttention
from qknorm.attention.norms import LpNorm
from qknorm.attention.rotary import RotaryTables
from qknorm.attention.torch_masks import merged_mask

_LOGITS_AT_ONCE = 2**21
PROJECTIONS = ("q_proj", "k_proj")
INTERFACE_NORMS = ("lp_q_norm", "lp_k_norm")
"""Norms that `qknorm.hf.add_lp_norms` gives layers of transformers, for the attention function to apply."""


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
        return per_query_head(torch.linalg.vector_norm(vectors, p, -1, dtype=self._wide), self.query.shape[1])

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
        keys = per_query_head(self.key, heads).to(self._wide)
        size = max(1, _LOGITS_AT_ONCE // (batch * heads * keys.shape[-2]))
        for start in range(0, queries, size):
            span = slice(start, min(start + size, queries))
            with torch.autocast(keys.device.type, enabled=False):  # it would multiply in half precision
                logits = self.query[:, :, span].to(self._wide) @ keys.transpose(-2, -1) * self.scale
            yield Rows(span, logits, *self._masks(span, logits))

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

    It sees `QKNormAttention`, `MultiheadAttention` of this library with a norm, and every layer of transformers that
    uses its AttentionInterface; but not single decoding steps. What is compiled runs as it is written meanwhile: hooks
    would make it compile again.
    """
    observation = _Observation({module: name for name, module in model.named_modules()}, observer)
    with ExitStack() as stack:
        stack.enter_context(_UNCOMPILED)
        for context in observation.contexts():
            stack.enter_context(context)
        yield


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


def per_query_head(keys: Tensor, heads: int) -> Tensor:
    """One of each key head for every query head that shares it."""
    return keys if keys.shape[1] == heads else keys.repeat_interleave(heads // keys.shape[1], 1)


class _Observation:
    """An observer, the layers of its model, and what their projections and norms gave since it was last shown it."""

    def __init__(self, names: Mapping[nn.Module, str], observer: Observer) -> None:
        self.names, self.observer = names, observer
        self.kept: dict[Any, Tensor] = {}

    def contexts(self) -> Iterator[AbstractContextManager[Any]]:
        """All that has to be in place while the model is called."""
        for layer in self.names:
            for name in (*PROJECTIONS, *INTERFACE_NORMS):
                if isinstance(module := getattr(layer, name, None), nn.Module):
                    yield self._keeping(module)
            if isinstance(layer, QKNormAttention):
                yield _wrapping(layer, "_inputs", functools.partial(self._ours, layer))
            if isinstance(layer, MultiheadAttention):
                yield _wrapping(layer, "_attend", functools.partial(self._multihead, layer))
        if "transformers" in sys.modules:
            from transformers import AttentionInterface

            yield _wrapping(AttentionInterface, "get_interface", self._theirs)

    def _keeping(self, module: nn.Module) -> RemovableHandle:
        """Keep what a module gives; of a projection that normalises by itself, as after a graft, what it normalises."""
        if isinstance(norm := getattr(module, "norm", None), LpNorm):
            return norm.register_forward_pre_hook(lambda _norm, inputs: self._keep(module, inputs[0]))
        return module.register_forward_hook(lambda _module, _inputs, output: self._keep(module, output))

    def _keep(self, module: nn.Module, given: Any) -> None:
        if isinstance(given, Tensor):
            self.kept[module] = given.detach()

    def _taken(self, layer: nn.Module, names: tuple[str, str]) -> tuple[Tensor | None, Tensor | None]:
        """What two modules of a layer gave, if they gave something new."""
        query, key = (self.kept.pop(getattr(layer, name, None), None) for name in names)
        return query, key

    @torch.no_grad()
    def _show(
        self,
        layer: nn.Module,
        query: Tensor,
        key: Tensor,
        scale: float,
        mask: Tensor | None,
        causal: bool,
        projected: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        if not query.numel() or not key.numel():
            return
        given = projected or self._taken(layer, PROJECTIONS)
        query_before, key_before = map(_by_heads, given, (query, key))
        seen = Attended(query.detach(), key.detach(), scale, mask, causal, (query_before, key_before))
        self.observer(self.names[layer], layer, seen)

    def _ours(
        self,
        layer: QKNormAttention,
        inputs: Callable[..., Any],
        query: Tensor,
        memory: Tensor | KeyValues | None,
        attn_mask: Tensor | None,
        is_causal: bool,
        cache: KeyValueCache | None,
        rotary: RotaryTables | None,
    ) -> Any:
        """Around `QKNormAttention._inputs`, which makes all that meets in the softmax."""
        q, k, _, mask, causal = given = inputs(query, memory, attn_mask, is_causal, cache, rotary)
        is_step = query.shape[1] == 1 and (cache is not None or isinstance(memory, KeyValues))
        if not is_step:
            self._show(layer, q, k, layer.softmax_scale, mask, causal)
        return given

    def _multihead(
        self,
        layer: MultiheadAttention,
        attend: Callable[..., Any],
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        attn_mask: Tensor | None,
        is_causal: bool,
    ) -> Any:
        """Around `MultiheadAttention._attend`, whose `_heads` makes what meets in the softmax."""
        made: list[tuple[Tensor, ...]] = []

        def keep(heads: Callable[..., tuple[Tensor, ...]], *sides: Tensor) -> tuple[Tensor, ...]:
            made.append(heads(*sides))
            return made[-1]

        with _wrapping(layer, "_heads", keep):
            attended = attend(query, key, value, key_padding_mask, need_weights, attn_mask, is_causal)
        shape = (query.shape[0], layer.num_heads, query.shape[1], key.shape[1])
        mask = merged_mask(attn_mask, key_padding_mask, shape, layer._added_keys, query.dtype)
        q, k, _ = made.pop()
        self._show(layer, q, k, layer.softmax_scale, mask, False, (query.detach(), key.detach()))
        return attended

    def _theirs(self, choose: Callable[..., Any], *inputs: Any) -> Callable[..., Any]:
        """Around `AttentionInterface.get_interface`: the function it chooses, which shows what it is called with."""
        attend = choose(*inputs)

        def observed(
            layer: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Any = None, **options: Any
        ) -> Any:
            attended = attend(layer, query, key, value, attention_mask, **options)
            if layer in self.names and query.shape[-2] > 1:
                scale, mask, causal = _of_transformers(layer, query, attention_mask, **options)
                q, k = self._taken(layer, INTERFACE_NORMS)
                if q is None or k is None:
                    self._show(layer, query, key, scale, mask, causal)
                else:
                    self._show(layer, q, k, 1.0, mask, causal)
            return attended

        return observed


def _of_transformers(
    layer: nn.Module,
    query: Tensor,
    mask: Any,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **_others: Any,
) -> tuple[float, Tensor | None, bool]:
    """Softmax scale, mask and is_causal, as transformers' sdpa understands its arguments."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if isinstance(mask, Tensor) and mask.dim() == 4:
        return scale, mask, False
    causal = getattr(layer, "is_causal", True) if is_causal is None else is_causal
    return scale, None, bool(causal) and query.shape[-2] > 1


def _by_heads(given: Tensor | None, seen: Tensor) -> Tensor:
    """What a projection gave, by heads; what was seen in the softmax where it gave nothing, or more than that."""
    if given is None:
        return seen
    heads, dim = seen.shape[1], seen.shape[-1]
    if given.dim() == 3 and given.shape[-1] == heads * dim:
        given = given.unflatten(-1, (heads, dim)).transpose(1, 2)
    fits = given.dim() == 4 and (given.shape[1], given.shape[-1]) == (heads, dim)
    return given if fits else seen


class _Uncompiled:
    """A context without torch.compile; whoever is the last to leave it, in any order, restores what the first found."""

    def __init__(self) -> None:
        self._inside, self._stance = 0, ExitStack()

    def __enter__(self) -> None:
        if not self._inside:
            self._stance.enter_context(torch.compiler.set_stance("force_eager"))
        self._inside += 1

    def __exit__(self, *_error: object) -> None:
        self._inside -= 1
        if not self._inside:
            self._stance.close()


class _Wrapped:
    """A method of a layer or a class, with wrappers around it that are called with the method and its arguments."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name, self.before = owner, name, vars(owner).get(name)
        self.wrappers: list[Callable[..., Any]] = []
        method = getattr(owner, name)

        def wrapped(*inputs: Any, **options: Any) -> Any:
            call = method
            for wrapper in self.wrappers:
                call = functools.partial(wrapper, call)
            return call(*inputs, **options)

        setattr(owner, name, torch.compiler.disable(wrapped))  # somebody may have compiled what calls the model

    def restore(self) -> None:
        """Leave the owner as it was: without the name, if the method is that of its class."""
        if self.before is None:
            delattr(self.owner, self.name)
        else:
            setattr(self.owner, self.name, self.before)


_UNCOMPILED = _Uncompiled()
_WRAPPED: dict[tuple[Any, str], _Wrapped] = {}


@contextmanager
def _wrapping(owner: Any, name: str, wrapper: Callable[..., Any]) -> Iterator[None]:
    """Put a wrapper around a method; the last to be taken away, in any order, leaves the method as it was."""
    if (owner, name) not in _WRAPPED:
        _WRAPPED[owner, name] = _Wrapped(owner, name)
    wrapped = _WRAPPED[owner, name]
    wrapped.wrappers.append(wrapper)
    try:
        yield
    finally:
        wrapped.wrappers.remove(wrapper)
        if not wrapped.wrappers:
            _WRAPPED.pop((owner, name)).restore()
