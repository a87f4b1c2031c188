"""How an operator is registered, and who does its work.

torch's dispatcher chooses between kernel and twin: the twin, in torch's operations, is registered for every device, and
the library of kernels, once it is loaded, registers itself for the CPU on top. Whoever watches (a profiler, a dispatch
mode, a compiler) sees the operator, and what it sees is what runs. The first call on a CPU loads the library.

`is_left_to_torch` is the one other decision: where torch rewrites code, plain operations serve better than an operator.
Checks that read numbers ask `has_values` first; they are all that shapes without values, or a tracer, go without.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from qknorm.ops import _build

_LIBRARY = torch.library.Library("qknorm", "FRAGMENT")
_PLAIN_TENSORS = (Tensor, torch.nn.Parameter)
_lock = threading.Lock()
# What the CPU has before its kernels are loaded: one function per operator, which loads them.
_loaders: torch.library.Library | None = torch.library.Library("qknorm", "IMPL")

Backward = Callable[..., Any]
Setup = Callable[..., None]


class Operator:
    """An operator that has been registered, called by the shortest way.

    Whoever calls `torch.ops.qknorm.NAME`, a compiler above all, finds the derivative that is registered there. An
    `autograd.Function` with the same derivative takes 15 µs less forwards and 25 µs less backwards.
    """

    def __init__(self, name: str, backward: Backward, setup: Setup | None) -> None:
        self.overload: OpOverload[..., Any] = getattr(torch.ops.qknorm, name).default
        self._differentiated = _function(self.overload, backward, setup)

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling():
            return self.overload(*arguments)
        if torch.is_grad_enabled() and _any_requires_grad(arguments):
            return self._differentiated.apply(*arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return self.overload(*arguments)


def operator(
    schema: str,
    plain: Callable[..., Any],
    fake: Callable[..., Any],
    backward: Backward | None = None,
    setup: Setup | None = None,
) -> Operator:
    """Register an operator: its schema, its twin for any device and type, what shapes it returns, and its derivative.

    Without a derivative, to ask for one is an error that says so; it is never silently cut. The twin is an operator of
    its own too, `NAME_plain`: a kernel leaves to it what it does not do.
    """
    name, signature = schema.split("(", 1)
    backward = backward or _refusal(name)
    for form in (name, f"{name}_plain"):
        _LIBRARY.define(f"{form}({signature}", tags=(torch.Tag.pt2_compliant_tag,))
        _LIBRARY.impl(form, plain, "CompositeExplicitAutograd")
        torch.library.register_fake(f"qknorm::{form}", fake, lib=_LIBRARY)
        torch.library.register_autograd(f"qknorm::{form}", backward, setup_context=setup, lib=_LIBRARY)
    registered = Operator(name, backward, setup)
    _load_at_first_call(name, registered.overload)
    return registered


def define_kernel(schema: str) -> None:
    """Register an operator that is a kernel alone; whoever calls it asks `has_kernel` first, and has another way."""
    _LIBRARY.define(schema)


def has_kernel(name: str) -> bool:
    """Whether an operator has a kernel for the CPU, once the library was looked for."""
    load_kernels()
    return torch._C._dispatch_has_kernel_for_dispatch_key(f"qknorm::{name}", "CPU")


def _function(overload: OpOverload[..., Any], backward: Backward, setup: Setup | None) -> type[torch.autograd.Function]:
    def forward(ctx: Any, *arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            output = overload(*arguments)
        if setup is not None:
            setup(ctx, arguments, output)
        return output

    members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(f"Derivative of {overload}", (torch.autograd.Function,), members)


def keep(ctx: Any, *values: Any) -> None:
    """Keep arguments of an operator for its derivative: tensors where autograd watches them, all others beside."""
    ctx.save_for_backward(*(value if isinstance(value, Tensor) else None for value in values))
    ctx.others = [None if isinstance(value, Tensor) else value for value in values]


def kept(ctx: Any) -> list[Any]:
    """Return what `keep` was given, in its order."""
    return [other if saved is None else saved for saved, other in zip(ctx.saved_tensors, ctx.others, strict=True)]


def _refusal(name: str) -> Backward:
    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise RuntimeError(f"qknorm::{name} cannot be differentiated: it is a derivative itself, or for inference only")

    return backward


def _load_at_first_call(name: str, overload: OpOverload[..., Any]) -> None:
    def load_and_call(*arguments: Any) -> Any:
        load_kernels()
        return overload(*arguments)

    if _loaders is not None:
        _loaders.impl(name, load_and_call, "CPU")


def _any_requires_grad(arguments: tuple[Any, ...]) -> bool:
    return any(isinstance(argument, Tensor) and argument.requires_grad for argument in arguments)


def load_kernels() -> None:
    """Build and load the library of kernels unless that has been tried; without it, twins do all the work."""
    global _loaders
    with _lock:
        if _loaders is not None:
            _loaders = None
            _build.load()


def is_left_to_torch(*tensors: Tensor | None) -> bool:
    """Whether plain differentiable operations should be used in place of an operator.

    That is where torch takes the code apart and can make more of plain operations, or knows nothing else: transforms of
    `torch.func`, forward-mode derivatives, tracing, `torch.export` (what is exported has to run without this package),
    tensors that are wrappers of others, and compiled code for any device but a CPU, where operations are fused.
    """
    if torch.compiler.is_compiling():
        if torch.compiler.is_exporting():
            return True
        return not all(tensor is None or tensor.is_cpu for tensor in tensors)
    return (
        torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()  # type: ignore[attr-defined]
        or any(type(tensor) not in _PLAIN_TENSORS and is_traceable_wrapper_subclass(tensor) for tensor in tensors)
    )


def is_traced() -> bool:
    """Whether operations are written down to be run later, by a compiler or by `make_fx`."""
    return torch.compiler.is_compiling() or get_proxy_mode() is not None


def has_values(*tensors: Tensor) -> bool:
    """Whether numbers can be read from tensors: on "meta", under `FakeTensorMode` and while traced there are none."""
    if is_traced() or torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        return False
    return not any(tensor.is_meta or isinstance(tensor, FakeTensor) for tensor in tensors)


def is_differentiated(*tensors: Tensor) -> bool:
    """Whether a gradient may be asked of what is computed from these."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def on_cpu(*tensors: Tensor | None) -> bool:
    return all(tensor is None or tensor.is_cpu for tensor in tensors)


def rows_like(x: Tensor) -> Tensor:
    """An empty tensor in the layout of x, with contiguous rows even where x is a view that overlaps itself."""
    four = x.flatten(0, -4) if x.dim() > 4 else x[(None,) * (4 - x.dim())]
    four = four if four.stride(3) == 1 else four.contiguous()
    y = torch.empty_like(four)
    y = y if y.stride(3) == 1 else torch.empty_like(four, memory_format=torch.contiguous_format)
    return y if x.dim() == 4 else y.view(x.shape)
