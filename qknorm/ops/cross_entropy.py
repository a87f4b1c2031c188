"""The loss over a vocabulary without the logits of a whole batch (`cross_entropy.cpp`).

torch passes over the logits (tokens × vocabulary, the largest tensor of all) six times; here they are made, turned into
their gradient and used up in blocks that stay in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from qknorm.ops import _dispatch, checks
from qknorm.ops.products import product

# Rows of logits at a time: with 8,000 classes 16 MB, few enough to be still in the cache when they are used.
_ROWS_OF_LOGITS = 512
# torch would leave out rows that want class −100; here no number stands for a row without a class.
_NO_CLASS = -(2**62)
_HALF = (torch.bfloat16, torch.float16)


def linear_cross_entropy(
    states: Tensor, weight: Tensor, bias: Tensor, target: Tensor, label_smoothing: float
) -> Tensor:
    """F.cross_entropy(F.linear(states, weight, bias), target): states (rows, dim), weight (classes, dim).

    Products have the type of the states: if these are bfloat16, all else is still as exact as the weight.
    """
    checks.loss(states, weight, bias, target, label_smoothing)
    tensors = (states, weight, bias)
    is_exact = all(tensor.dtype is torch.float32 or tensor.dtype is torch.float64 for tensor in (weight, bias))
    is_known = is_exact and states.dtype is not torch.float16
    is_served = states.shape[0] and is_known and _dispatch.on_cpu(*tensors) and not torch.is_autocast_enabled("cpu")
    if not is_served or _dispatch.is_left_to_torch(*tensors):
        # On another device looking would wait for it.
        if target.is_cpu and _dispatch.has_values(target) and not _dispatch.is_left_to_torch(target):
            checks.classes(target, weight.shape[0])
        logits = _logits(states, weight, bias)
        return F.cross_entropy(logits, target, label_smoothing=label_smoothing, ignore_index=_NO_CLASS)
    loss: Tensor = _LINEAR(states, weight, bias, target, label_smoothing, _dispatch.is_differentiated(*tensors))[0]
    return loss


def _logits(states: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """F.linear, but that states in half precision halve the weight for the product."""
    return product(states, _factor(states, weight).t()).to(bias.dtype) + bias


def _factor(states: Tensor, weight: Tensor) -> Tensor:
    return weight.to(states.dtype) if states.dtype in _HALF else weight


def _plain_linear(
    states: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float, with_gradient: bool
) -> tuple[Tensor, ...]:
    """The mean loss and, if they are wanted, its gradients, which are made while the logits are at hand."""
    checks.loss(states, weight, bias, target, smoothing)
    checks.has_memory(bias)
    rows, factor = states.shape[0], _factor(states, weight)
    losses = weight.new_empty(rows)
    d_states, d_weight, d_bias = _gradients(states, weight, bias, with_gradient)
    for start in range(0, rows, _ROWS_OF_LOGITS):
        block = slice(start, start + _ROWS_OF_LOGITS)
        logits = product(states[block], factor.t()).to(bias.dtype).add_(bias)
        losses[block], d_logits = _CROSS_ENTROPY(logits, target[block], smoothing, 1 / rows)
        if with_gradient:
            d_bias += d_logits.sum(0)
            d_logits = d_logits.to(states.dtype)
            product(d_logits, factor, out=d_states[block])
            d_weight += product(d_logits.t(), states[block])
    return losses.mean(), d_states, d_weight, d_bias


def _fake_linear(
    states: Tensor, weight: Tensor, bias: Tensor, target: Tensor, smoothing: float, with_gradient: bool
) -> tuple[Tensor, ...]:
    return weight.new_empty(()), *_gradients(states, weight, bias, with_gradient)


def _gradients(states: Tensor, weight: Tensor, bias: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Room for the gradients, or for none."""
    if not with_gradient:
        return states.new_empty(0), weight.new_empty(0), bias.new_empty(0)
    return states.new_empty(states.shape), weight.new_zeros(weight.shape), bias.new_zeros(bias.shape)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:], *inputs[:4])
    ctx.smoothing = inputs[4]


def _backward(ctx: Any, d_loss: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    if d_loss is None:
        return (None,) * 6
    gradients, inputs, target = ctx.saved_tensors[:3], ctx.saved_tensors[3:6], ctx.saved_tensors[6]
    if not torch.is_grad_enabled():
        return *(gradient * d_loss for gradient in gradients), None, None, None
    # create_graph: the gradient itself is to be differentiated, so it is computed in plain operations.
    views = [tensor.view_as(tensor) for tensor in inputs]
    needed = [view for view in views if view.requires_grad]
    loss = F.cross_entropy(_logits(*views), target, label_smoothing=ctx.smoothing, ignore_index=_NO_CLASS)
    of_views = iter(torch.autograd.grad(loss, needed, d_loss, create_graph=True))
    return *(next(of_views) if view.requires_grad else None for view in views), None, None, None


def _plain(logits: Tensor, target: Tensor, smoothing: float, weight: float) -> tuple[Tensor, Tensor]:
    """The losses of the rows, and the gradient of `weight` times their sum."""
    checks.classes(target, logits.shape[1])
    logarithms = logits.log_softmax(-1)
    of_target = logarithms.gather(1, target[:, None])[:, 0]
    losses = -(1 - smoothing) * of_target
    if smoothing > 0:
        losses = losses - smoothing * logarithms.mean(-1)
    gradient = logarithms.exp() - smoothing / logits.shape[1]
    whole = torch.full_like(target[:, None], -(1 - smoothing), dtype=logits.dtype)
    return losses, gradient.scatter_add(1, target[:, None], whole).mul(weight).contiguous()


def _fake(logits: Tensor, target: Tensor, smoothing: float, weight: float) -> tuple[Tensor, Tensor]:
    return logits.new_empty(logits.shape[0]), torch.empty_like(logits, memory_format=torch.contiguous_format)


_CROSS_ENTROPY = _dispatch.operator(
    "cross_entropy(Tensor logits, Tensor target, float smoothing, float weight) -> (Tensor, Tensor)", _plain, _fake
)
_LINEAR = _dispatch.operator(
    "linear_cross_entropy(Tensor states, Tensor weight, Tensor bias, Tensor target, float smoothing, "
    "bool with_gradient) -> (Tensor, Tensor, Tensor, Tensor)",
    _plain_linear,
    _fake_linear,
    _backward,
    _setup,
)
