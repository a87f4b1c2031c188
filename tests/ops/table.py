"""One table of all operators: what each can be called with, and what it promises. `test_table.py` holds each to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from qknorm.ops import attention, cross_entropy, dropout, lp, shared_attention

# The modules that register operators: to import them is to have the operators.
MODULES = (attention, cross_entropy, dropout, lp, shared_attention)

Arguments = tuple[Any, ...]
Make = Callable[[torch.dtype], Arguments]

FLOAT32 = (torch.float32,)
WITH_HALF = (torch.float32, torch.bfloat16, torch.float16)
EPS = 1e-12
SEED = torch.tensor(2**62 + 12345)


@dataclass(frozen=True)
class Row:
    """An operator. Samples are functions of the type of floating-point numbers; the first one is an ordinary case."""

    name: str
    samples: Mapping[str, Make]
    differentiable: tuple[int, ...] = ()
    """The arguments whose gradient can be asked for."""
    dtypes: tuple[torch.dtype, ...] = FLOAT32
    """What the kernel takes; everything else is left to the twin."""
    twice: Callable[[Arguments], bool] | None = None
    """For which arguments a second derivative is promised; None where it is for none."""
    kinked: frozenset[str] = frozenset()
    """Samples at points without a derivative, where a difference quotient says nothing."""
    undifferentiated: frozenset[str] = frozenset()
    """Samples that are told not to make a gradient."""
    seed: int | None = None
    """The argument from which dropout is drawn."""
    probabilities: tuple[int, ...] = ()
    indices: tuple[int, ...] = ()
    """The arguments that hold the numbers of something, from 0 up."""
    refuses: bool = False
    """Whether a gradient is an error that says so."""
    converts: tuple[int, ...] = ()
    """The arguments that may be of another type than the rest."""
    wrong: Mapping[str, Callable[[], Arguments]] = field(default_factory=dict)
    """Shapes that do not belong together."""

    @property
    def operator(self) -> OpOverload[..., Any]:
        result: OpOverload[..., Any] = getattr(torch.ops.qknorm, self.name).default
        return result

    @property
    def twin(self) -> OpOverload[..., Any]:
        result: OpOverload[..., Any] = getattr(torch.ops.qknorm, f"{self.name}_plain").default
        return result

    def arguments(self, sample: str, dtype: torch.dtype = torch.float32) -> Arguments:
        """The same numbers every time."""
        with torch.random.fork_rng():
            torch.manual_seed(17)
            return self.samples[sample](dtype)

    @property
    def first(self) -> str:
        return next(iter(self.samples))

    def has_gradient(self, sample: str) -> bool:
        return bool(self.differentiable) and sample not in self.undifferentiated


def _drawn(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape).to(dtype)


def _by_position(batch: int, heads: int, length: int, row: int, dtype: torch.dtype) -> Tensor:
    """(batch, heads, length, row) as a projection leaves it: the heads of a position side by side."""
    return _drawn(batch, length, heads, row, dtype=dtype).transpose(1, 2)


# ---- Lp normalisation


def _with_zeros(dtype: torch.dtype) -> Tensor:
    x = _drawn(2, 3, 5, 16, dtype=dtype)
    x[0, 1, 2:4] = 0
    x[1, 0, 0, 3:9] = 0
    return x


def _angles(*shape: int, dtype: torch.dtype) -> Arguments:
    """cos and sin of any numbers: where they differ inside a pair, all routes have to agree as well."""
    angles = torch.randn(shape)
    return angles.cos().to(dtype), angles.sin().to(dtype)


_LP: dict[str, Make] = {
    "rows of 64, p = 2": lambda t: (_drawn(2, 2, 70, 64, dtype=t), None, 2.0, EPS),
    "by position, p = 3, a scale per head": lambda t: (
        _by_position(2, 3, 5, 32, t), _drawn(3, dtype=t), 3.0, EPS,
    ),
    "expanded, p = 1, one scale": lambda t: (
        _drawn(1, 2, 5, 16, dtype=t).expand(3, 2, 5, 16), _drawn(dtype=t), 1.0, EPS,
    ),
    "expanded heads, p = 2, a scale per head": lambda t: (
        _drawn(2, 1, 5, 16, dtype=t).expand(2, 3, 5, 16), _drawn(3, dtype=t), 2.0, EPS,
    ),
    "expanded inside a row, p = 2": lambda t: (_drawn(2, 1, 3, 1, dtype=t).expand(2, 4, 3, 8), None, 2.0, EPS),
    "columns as rows, p = 1.5": lambda t: (_drawn(2, 3, 16, 5, dtype=t).transpose(-1, -2), None, 1.5, EPS),
    "every second number, p = 2.5": lambda t: (_drawn(2, 3, 5, 32, dtype=t)[..., ::2], None, 2.5, EPS),
    "one row, p = infinity": lambda t: (_drawn(7, dtype=t), None, math.inf, EPS),
    "any exponent, one scale": lambda t: (_drawn(9, 20, dtype=t), _drawn(dtype=t), 3.7, EPS),
    "five dimensions, p = 3.5": lambda t: (_drawn(2, 3, 2, 4, 32, dtype=t), _drawn(2, dtype=t), 3.5, EPS),
    "five dimensions in another order, p = 4": lambda t: (
        _drawn(2, 3, 4, 2, 128, dtype=t).permute(1, 0, 3, 2, 4), None, 4.0, EPS,
    ),
    "three dimensions, p = infinity": lambda t: (_drawn(3, 66, 16, dtype=t), _drawn(3, dtype=t), math.inf, EPS),
    "one number, p = 2": lambda t: (_drawn(1, 1, dtype=t), None, 2.0, EPS),
    "no rows": lambda t: (_drawn(2, 0, 4, dtype=t), None, 3.0, EPS),
    "no batch": lambda t: (_drawn(0, 2, 3, 4, dtype=t), _drawn(2, dtype=t), 2.0, EPS),
    "rows of zeros, p = 3": lambda t: (_with_zeros(t), _drawn(3, dtype=t), 3.0, EPS),
    "rows of zeros, p = 2": lambda t: (_with_zeros(t), None, 2.0, EPS),
    "norms that count as zero": lambda t: (_drawn(4, 6, dtype=t), None, 2.0, 1e3),
    "a scale of shape (1,), p = 3": lambda t: (_drawn(2, 3, 5, 16, dtype=t), _drawn(1, dtype=t), 3.0, EPS),
    "two dimensions, a scale of shape (1,)": lambda t: (_drawn(5, 16, dtype=t), _drawn(1, dtype=t), 2.0, EPS),
    "turned, p = 2": lambda t: (_drawn(2, 2, 70, 64, dtype=t), None, 2.0, EPS, *_angles(70, 64, dtype=t), False),
    "turned, by position, p = 3, a scale per head": lambda t: (
        _by_position(2, 3, 5, 32, t), _drawn(3, dtype=t), 3.0, EPS, *_angles(5, 32, dtype=t), False,
    ),
    "turned with neighbours, angles per batch, p = 1.5": lambda t: (
        _by_position(2, 3, 5, 128, t), _drawn(1, dtype=t), 1.5, EPS, *_angles(2, 5, 128, dtype=t), True,
    ),
    "turned in part, angles of a batch of one, p = 4": lambda t: (
        _drawn(3, 2, 66, 16, dtype=t), _drawn(dtype=t), 4.0, EPS, *_angles(1, 66, 6, dtype=t), False,
    ),
    "turned in part with neighbours, any exponent": lambda t: (
        _drawn(2, 2, 3, 7, dtype=t), None, 3.7, EPS, *_angles(3, 4, dtype=t), True,
    ),
    "turned, columns as rows, p = infinity": lambda t: (
        _drawn(2, 3, 16, 5, dtype=t).transpose(-1, -2), None, math.inf, EPS, *_angles(5, 16, dtype=t), False,
    ),
    "turned by tables that lie apart, p = 2": lambda t: (
        _drawn(2, 3, 5, 8, dtype=t), None, 2.0, EPS, *(x.t() for x in _angles(8, 5, dtype=t)), True,
    ),
    "turned by float64, three dimensions, p = 1": lambda t: (
        _drawn(3, 5, 8, dtype=t), _drawn(3, dtype=t), 1.0, EPS, *_angles(5, 8, dtype=torch.float64), False,
    ),
    "turned, longer rows than the kernel turns": lambda t: (
        _drawn(2, 1030, dtype=t), None, 2.0, EPS, *_angles(2, 1030, dtype=t), False,
    ),
    "turned, rows of zeros, p = 2": lambda t: (
        _with_zeros(t), _drawn(3, dtype=t), 2.0, EPS, *_angles(5, 16, dtype=t), False,
    ),
    "turned, no rows": lambda t: (_drawn(2, 3, 0, 4, dtype=t), None, 3.0, EPS, *_angles(0, 4, dtype=t), False),
}  # fmt: skip


def _lp_backward(sample: str) -> Make:
    def make(dtype: torch.dtype) -> Arguments:
        x, scale, p, eps, *rotary = _LP[sample](dtype)
        norms = torch.ops.qknorm.lp_normalize_plain(x.double(), None, p, eps)[1]
        norms = norms.to(torch.promote_types(dtype, torch.float32))
        dy = (
            _drawn(*x.shape[:-2], *x.shape[:-3:-1], dtype=dtype).transpose(-1, -2)
            if x.dim() > 1
            else torch.ones_like(x)
        )
        return dy, x, scale, norms, p, eps, *rotary

    return make


_LP_KINKED = frozenset(sample for sample in _LP if "rows of zeros" in sample or sample == "norms that count as zero")


def _wrong_rotary(cos: Tensor | None, sin: Tensor | None) -> Callable[[], Arguments]:
    return lambda: (torch.randn(2, 3, 4, 8), None, 2.0, EPS, cos, sin, False)


_LP_WRONG_ROTARY = {
    "cos without sin": _wrong_rotary(torch.randn(4, 8), None),
    "sin without cos": _wrong_rotary(None, torch.randn(4, 8)),
    "cos and sin of different shapes": _wrong_rotary(torch.randn(4, 8), torch.randn(4, 6)),
    "angles of fewer positions": _wrong_rotary(torch.randn(3, 8), torch.randn(3, 8)),
    "angles of another batch": _wrong_rotary(torch.randn(3, 4, 8), torch.randn(3, 4, 8)),
    "angles of more entries than a row": _wrong_rotary(torch.randn(4, 10), torch.randn(4, 10)),
    "angles of an odd number of entries": _wrong_rotary(torch.randn(4, 5), torch.randn(4, 5)),
    "angles of no entries": _wrong_rotary(torch.randn(4, 0), torch.randn(4, 0)),
    "angles of one dimension": _wrong_rotary(torch.randn(8), torch.randn(8)),
    "angles of four dimensions": _wrong_rotary(torch.randn(2, 1, 4, 8), torch.randn(2, 1, 4, 8)),
}


def _backward_of(make: Callable[[], Arguments]) -> Callable[[], Arguments]:
    def arguments() -> Arguments:
        x, scale, p, eps, *rotary = make()
        return torch.randn_like(x), x, scale, torch.ones(x.shape[:-1]), p, eps, *rotary

    return arguments


def _smooth_twice(p: int) -> Callable[[Arguments], bool]:
    return lambda arguments: bool(arguments[p] >= 2)


_LP_ROWS = (
    Row(
        "lp_normalize",
        _LP,
        differentiable=(0, 1),
        dtypes=WITH_HALF,
        twice=_smooth_twice(2),
        kinked=_LP_KINKED,
        wrong={
            "scale of another number of heads": lambda: (torch.randn(2, 3, 4, 8), torch.ones(2), 2.0, EPS),
            "scale of two dimensions": lambda: (torch.randn(2, 3, 4, 8), torch.ones(3, 1), 2.0, EPS),
            "rows without numbers": lambda: (torch.randn(2, 3, 4, 0), None, 2.0, EPS),
            **_LP_WRONG_ROTARY,
        },
    ),
    Row(
        "lp_normalize_backward",
        {name: _lp_backward(name) for name in _LP},
        differentiable=(0, 2),
        dtypes=WITH_HALF,
        twice=_smooth_twice(4),
        kinked=_LP_KINKED,
        wrong={
            "gradient of another shape": lambda: (torch.randn(4, 7), torch.randn(4, 8), None, torch.ones(4), 2.0, EPS),
            "too few norms": lambda: (torch.randn(4, 8), torch.randn(4, 8), None, torch.ones(3), 2.0, EPS),
            "scale of another number of heads": lambda: (
                torch.randn(3, 4, 8), torch.randn(3, 4, 8), torch.ones(2), torch.ones(3, 4), 2.0, EPS,
            ),
            **{label: _backward_of(make) for label, make in _LP_WRONG_ROTARY.items()},
        },
    ),
)  # fmt: skip


# ---- attention


def _sides(batch: int, heads: int, key_heads: int, queries: int, keys: int, row: int, t: torch.dtype) -> Arguments:
    query = _by_position(batch, heads, queries, row, t)
    return query, _by_position(batch, key_heads, keys, row, t), _drawn(batch, key_heads, keys, row, dtype=t)


def _mask(*shape: int) -> Tensor:
    """Some may look at nothing."""
    return torch.rand(shape) < 0.4


_ATTENTION: dict[str, Make] = {
    "by position, dropout": lambda t: (*_sides(2, 4, 4, 70, 47, 16, t), 0.3, None, False, 0.3, SEED),
    "no dropout": lambda t: (*_sides(2, 2, 2, 9, 11, 32, t), 0.3, None, False, 0.0, SEED),
    "grouped heads, padding": lambda t: (*_sides(2, 4, 2, 6, 35, 8, t), 1.0, _mask(2, 1, 1, 35), False, 0.3, SEED),
    "causal, a mask per head, some see nothing": lambda t: (
        *_sides(2, 4, 1, 40, 40, 20, t), 0.5, _mask(2, 4, 40, 40), True, 0.2, SEED,
    ),
    "causal, fewer queries than keys": lambda t: (*_sides(1, 2, 2, 5, 20, 4, t), 0.5, None, True, 0.1, SEED),
    "causal, more queries than keys": lambda t: (*_sides(1, 2, 2, 37, 3, 7, t), 0.5, None, True, 0.1, SEED),
    "mask of pairs that lies apart": lambda t: (*_sides(2, 3, 3, 6, 10, 8, t), 1.0, _mask(10, 6).t(), False, 0.0, SEED),
    "mask of keys alone": lambda t: (*_sides(2, 3, 3, 6, 10, 8, t), 1.0, _mask(10), False, 0.5, SEED),
    "columns as rows": lambda t: (
        *(_drawn(2, 2, 8, 5, dtype=t).transpose(-1, -2) for _ in range(3)), 0.5, None, False, 0.2, SEED,
    ),
    "expanded": lambda t: (
        _drawn(1, 1, 5, 8, dtype=t).expand(2, 4, 5, 8),
        *(_drawn(1, 2, 6, 8, dtype=t).expand(2, 2, 6, 8) for _ in range(2)),
        0.5, _mask(1, 1, 1, 6).expand(2, 1, 5, 6), False, 0.2, SEED,
    ),
    "one of everything": lambda t: (*_sides(1, 1, 1, 1, 1, 1, t), 1.0, None, True, 0.0, SEED),
    "everything is dropped": lambda t: (*_sides(1, 2, 1, 3, 4, 8, t), 1.0, None, False, 1.0, SEED),
    "no queries": lambda t: (*_sides(2, 2, 2, 0, 4, 8, t), 1.0, None, False, 0.1, SEED),
    "no keys": lambda t: (*_sides(2, 2, 2, 3, 0, 8, t), 1.0, None, False, 0.1, SEED),
    "no batch": lambda t: (*_sides(0, 2, 2, 3, 4, 8, t), 1.0, None, False, 0.1, SEED),
}  # fmt: skip


def _attention_backward(sample: str) -> Make:
    def make(dtype: torch.dtype) -> Arguments:
        query, key, value, *rest = _ATTENTION[sample](dtype)
        sums = torch.ops.qknorm.attention_plain(query.double(), key.double(), value.double(), *rest)[1].to(dtype)
        return torch.randn_like(query), query, key, value, sums, *rest

    return make


def _ordinary(**changed: Any) -> Callable[[], Arguments]:
    """Attention of ordinary shapes, but for some."""

    def make() -> Arguments:
        query, key, value = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 6, 8), torch.randn(2, 2, 6, 8)
        ordinary = {"query": query, "key": key, "value": value, "scale": 1.0, "mask": None, "causal": False}
        return tuple((ordinary | {"dropout": 0.1, "seed": SEED} | changed).values())

    return make


def _ordinary_backward(**changed: Any) -> Callable[[], Arguments]:
    def make() -> Arguments:
        query, key, value, *rest = _ordinary()()
        given = {
            "d_out": torch.randn(2, 4, 5, 8),
            "query": query,
            "key": key,
            "value": value,
            "sums": torch.ones(2, 4, 5),
        }
        return *(given | changed).values(), *rest

    return make


_ATTENTION_ROWS = (
    Row(
        "attention",
        _ATTENTION,
        differentiable=(0, 1, 2),
        seed=7,
        probabilities=(6,),
        wrong={
            "heads that do not divide": _ordinary(key=torch.randn(2, 3, 6, 8), value=torch.randn(2, 3, 6, 8)),
            "another batch": _ordinary(key=torch.randn(3, 2, 6, 8), value=torch.randn(3, 2, 6, 8)),
            "a batch of one": _ordinary(key=torch.randn(1, 2, 6, 8), value=torch.randn(1, 2, 6, 8)),
            "a query for every batch": _ordinary(query=torch.randn(1, 4, 5, 8)),
            "values of another dimension": _ordinary(value=torch.randn(2, 2, 6, 7)),
            "fewer heads of values": _ordinary(value=torch.randn(2, 1, 6, 8)),
            "another head dimension": _ordinary(key=torch.randn(2, 2, 6, 7)),
            "fewer values than keys": _ordinary(value=torch.randn(2, 2, 5, 8)),
            "three dimensions": _ordinary(query=torch.randn(4, 5, 8)),
            "five dimensions": _ordinary(query=torch.randn(1, 2, 4, 5, 8)),
            "mask of another shape": _ordinary(mask=torch.ones(2, 1, 1, 5, dtype=torch.bool)),
            "mask of five dimensions": _ordinary(mask=torch.ones(1, 2, 1, 1, 6, dtype=torch.bool)),
            "mask of bytes": _ordinary(mask=torch.ones(2, 1, 1, 6, dtype=torch.uint8)),
            "mask of numbers": _ordinary(mask=torch.ones(2, 1, 1, 6)),
            "two seeds": _ordinary(seed=torch.tensor([1, 2])),
        },
    ),
    Row(
        "attention_backward",
        {name: _attention_backward(name) for name in _ATTENTION},
        seed=9,
        probabilities=(8,),
        refuses=True,
        wrong={
            "gradient of another shape": _ordinary_backward(d_out=torch.randn(2, 4, 5, 7)),
            "gradient of fewer queries": _ordinary_backward(d_out=torch.randn(2, 4, 4, 8)),
            "too few sums": _ordinary_backward(sums=torch.ones(2, 4, 4)),
            "sums of another type": _ordinary_backward(sums=torch.ones(2, 4, 5, dtype=torch.int16)),
        },
    ),
)


# ---- dropout


def _dropout_samples(rest: Callable[[Tensor, float], Arguments]) -> dict[str, Make]:
    return {
        "several rows of random bits": lambda t: rest(_drawn(3, 50, 211, dtype=t), 0.3),
        "columns as rows": lambda t: rest(_drawn(50, 30, dtype=t).t(), 0.5),
        "expanded": lambda t: rest(_drawn(1, 30, dtype=t).expand(40, 30), 0.1),
        "every second number": lambda t: rest(_drawn(7, 20, dtype=t)[:, ::2], 0.25),
        "a whole row": lambda t: rest(_drawn(1024, dtype=t), 0.3),
        "one number": lambda t: rest(_drawn(dtype=t), 0.3),
        "no numbers": lambda t: rest(_drawn(3, 0, dtype=t), 0.3),
        "nothing is dropped": lambda t: rest(_drawn(4, 5, dtype=t), 0.0),
        "everything is dropped": lambda t: rest(_drawn(4, 5, dtype=t), 1.0),
    }


def _relu_backward(x: Tensor, p: float) -> Arguments:
    out = torch.ops.qknorm.relu_dropout_plain(x, p, SEED)
    return torch.randn_like(x), out.t().contiguous().t() if x.dim() == 2 else out, p


def _always(_: Arguments) -> bool:
    return True


_DROPOUT_ROWS = (
    Row(
        "dropout",
        _dropout_samples(lambda x, p: (x, None, p, SEED))
        | {
            f"{name}, beside": make
            for name, make in _dropout_samples(lambda x, p: (x, torch.randn_like(x), p, SEED)).items()
        }
        | {"residual in another layout": lambda t: (_drawn(30, 50, dtype=t), _drawn(50, 30, dtype=t).t(), 0.3, SEED)},
        differentiable=(0, 1),
        dtypes=WITH_HALF,
        twice=_always,
        seed=3,
        probabilities=(2,),
        wrong={
            "residual of another shape": lambda: (torch.randn(4, 5), torch.randn(1, 5), 0.1, SEED),
            "two seeds": lambda: (torch.randn(4, 5), None, 0.1, torch.tensor([1, 2])),
        },
    ),
    Row(
        "relu_dropout",
        _dropout_samples(lambda x, p: (x, p, SEED)),
        differentiable=(0,),
        dtypes=WITH_HALF,
        twice=_always,
        seed=2,
        probabilities=(1,),
        wrong={"two seeds": lambda: (torch.randn(4, 5), 0.1, torch.tensor([1, 2]))},
    ),
    Row(
        "relu_dropout_backward",
        _dropout_samples(_relu_backward),
        differentiable=(0,),
        dtypes=WITH_HALF,
        twice=_always,
        probabilities=(2,),
        wrong={"gradient of another shape": lambda: (torch.randn(1, 5), torch.randn(4, 5), 0.1)},
    ),
)


# ---- the loss over a vocabulary


def _classes(rows: int, classes: int) -> Tensor:
    return torch.randint(classes, (rows,))


def _linear(rows: int, dim: int, classes: int, t: torch.dtype) -> Arguments:
    return _drawn(rows, dim, dtype=t), _drawn(classes, dim, dtype=t), _drawn(classes, dtype=t), _classes(rows, classes)


def _impossible(logits: Tensor) -> Tensor:
    """The last class cannot be."""
    logits[:, -1] = -torch.inf
    return logits


_LOSS_ROWS = (
    Row(
        "cross_entropy",
        {
            "label smoothing": lambda t: (_drawn(90, 200, dtype=t), _classes(90, 200), 0.1, 1 / 90),
            "no smoothing, sharp": lambda t: (_drawn(5, 33, dtype=t) * 30, _classes(5, 33), 0.0, 1.0),
            "only smoothing": lambda t: (_drawn(5, 33, dtype=t), _classes(5, 33), 1.0, 1.0),
            "columns as rows": lambda t: (_drawn(33, 5, dtype=t).t(), _classes(5, 33), 0.1, 0.5),
            "rows that lie apart": lambda t: (_drawn(6, 33, dtype=t)[::2], _classes(6, 33)[::2], 0.1, 0.5),
            "classes that are all the same": lambda t: (_drawn(4, 9, dtype=t), torch.tensor(3).expand(4), 0.1, 0.5),
            "logits that overlap": lambda t: (_drawn(1, 9, dtype=t).expand(4, 9), _classes(4, 9), 0.1, 0.5),
            "an impossible class": lambda t: (_impossible(_drawn(3, 9, dtype=t)), _classes(3, 8), 0.0, 0.5),
            "one class": lambda t: (_drawn(1, 1, dtype=t), _classes(1, 1), 0.1, 1.0),
            "no rows": lambda t: (_drawn(0, 5, dtype=t), _classes(0, 5), 0.1, 1.0),
        },
        refuses=True,
        probabilities=(2,),
        indices=(1,),
        wrong={
            "too few targets": lambda: (torch.randn(4, 5), torch.zeros(3, dtype=torch.int64), 0.1, 1.0),
            "three dimensions": lambda: (torch.randn(4, 5, 2), torch.zeros(4, dtype=torch.int64), 0.1, 1.0),
            "no classes": lambda: (torch.randn(4, 0), torch.zeros(4, dtype=torch.int64), 0.1, 1.0),
        },
    ),
    Row(
        "linear_cross_entropy",
        {
            "several blocks of rows": lambda t: (*_linear(1030, 6, 17, t), 0.1, True),
            "without a gradient": lambda t: (*_linear(30, 6, 17, t), 0.1, False),
            "states and weights that lie apart": lambda t: (
                _drawn(6, 20, dtype=t).t(), _drawn(6, 17, dtype=t).t(), _drawn(34, dtype=t)[::2],
                _classes(40, 17)[::2], 0.0, True,
            ),
            "one row": lambda t: (*_linear(1, 3, 1, t), 0.1, True),
        },
        differentiable=(0, 1, 2),
        twice=lambda _: True,
        probabilities=(4,),
        indices=(3,),
        undifferentiated=frozenset({"without a gradient"}),
        wrong={
            "more targets than rows": lambda: (
                *_linear(512, 3, 4, torch.float32)[:3], _classes(600, 4), 0.1, True,
            ),
            "a single bias": lambda: (
                torch.randn(5, 3), torch.randn(4, 3), torch.randn(1), _classes(5, 4), 0.1, False,
            ),
            "weights of another dimension": lambda: (
                torch.randn(5, 3), torch.randn(4, 2), torch.randn(4), _classes(5, 4), 0.1, True,
            ),
        },
    ),
)  # fmt: skip


# ---- decoding


def _cache(entries: int, heads: int, room: int, row: int, t: torch.dtype) -> Tensor:
    """(entries, heads, room, row) as the cache has it: the positions come first in memory."""
    return _drawn(room, entries, heads, row, dtype=t).permute(1, 2, 0, 3)


def _slots(rows: int, length: int, entries: int) -> Tensor:
    return torch.randint(entries, (rows, length))


def _caches(entries: int, heads: int, room: int, row: int, t: torch.dtype) -> Arguments:
    return _cache(entries, heads, room, row, t), _cache(entries, heads, room, row, t)


_HISTORY: dict[str, Make] = {
    "grouped heads": lambda t: (_drawn(40, 4, 1, 16, dtype=t), *_caches(5, 2, 9, 16, t), _slots(40, 7, 5), 0.5),
    "columns as queries": lambda t: (
        _drawn(6, 16, 1, 2, dtype=t).transpose(1, 3), *_caches(5, 2, 9, 16, t), _slots(7, 6, 5).t(), 0.5,
    ),
    "columns as keys": lambda t: (
        _drawn(3, 2, 1, 5, dtype=t), *(_drawn(4, 2, 5, 6, dtype=t).transpose(2, 3) for _ in range(2)),
        _slots(3, 6, 4), 1.0,
    ),
    "expanded": lambda t: (
        _drawn(1, 4, 1, 8, dtype=t).expand(6, 4, 1, 8),
        *(_drawn(1, 1, 7, 8, dtype=t).expand(5, 4, 7, 8) for _ in range(2)), _slots(1, 7, 5).expand(6, 7), 0.5,
    ),
    "one of everything": lambda t: (_drawn(1, 1, 1, 1, dtype=t), *_caches(1, 1, 1, 1, t), _slots(1, 1, 1), 1.0),
    "nothing to look at": lambda t: (_drawn(3, 2, 1, 8, dtype=t), *_caches(4, 2, 5, 8, t), _slots(3, 0, 4), 1.0),
    "no rows": lambda t: (_drawn(0, 2, 1, 8, dtype=t), *_caches(4, 2, 5, 8, t), _slots(0, 3, 4), 1.0),
}  # fmt: skip

_SHARED: dict[str, Make] = {
    "grouped heads": lambda t: (
        _drawn(40, 4, 1, 16, dtype=t), *_caches(3, 2, 9, 16, t), _classes(40, 3), torch.tensor([9, 4, 1]), 0.5,
    ),
    "some have nothing to look at": lambda t: (
        _drawn(4, 2, 1, 7, dtype=t), *_caches(3, 2, 5, 7, t), torch.tensor([0, 1, 2, 1]), torch.tensor([5, 0, 2]), 0.5,
    ),
    "columns as keys": lambda t: (
        _drawn(3, 2, 1, 5, dtype=t), *(_drawn(2, 2, 5, 6, dtype=t).transpose(2, 3) for _ in range(2)),
        torch.tensor([1, 0, 1]), torch.tensor([6, 3]), 1.0,
    ),
    "expanded": lambda t: (
        _drawn(1, 4, 1, 8, dtype=t).expand(6, 4, 1, 8),
        *(_drawn(1, 1, 7, 8, dtype=t).expand(3, 4, 7, 8) for _ in range(2)),
        torch.tensor(2).expand(6), torch.tensor(4).expand(3), 0.5,
    ),
    "numbers that lie apart": lambda t: (
        _drawn(6, 2, 1, 8, dtype=t), *_caches(3, 2, 9, 8, t), _classes(12, 3)[::2],
        torch.tensor([9, 0, 4, 0, 1, 0])[::2], 0.5,
    ),
    "one of everything": lambda t: (
        _drawn(1, 1, 1, 1, dtype=t), *_caches(1, 1, 1, 1, t), torch.tensor([0]), torch.tensor([1]), 1.0,
    ),
    "no rows": lambda t: (
        _drawn(0, 2, 1, 8, dtype=t), *_caches(2, 2, 5, 8, t), _classes(0, 2), torch.tensor([5, 2]), 1.0,
    ),
}  # fmt: skip

_QUERY, _KEYS = torch.randn(3, 4, 1, 8), torch.randn(2, 2, 6, 8)
_ZEROS = torch.zeros(3, 5, dtype=torch.int64)


def _wrong_sides(numbers: Tensor, *rest: Any) -> dict[str, Callable[[], Arguments]]:
    """Queries, keys and values that do not belong together, before the other arguments."""
    return {
        "heads that do not divide": lambda: (_QUERY[:, :3], _KEYS, _KEYS, numbers, *rest),
        "another head dimension": lambda: (_QUERY[..., :7], _KEYS, _KEYS, numbers, *rest),
        "fewer values than keys": lambda: (_QUERY, _KEYS, _KEYS[:, :, :4], numbers, *rest),
        "fewer entries of values": lambda: (_QUERY, _KEYS, _KEYS[:1], numbers + 1, *rest),
        "keys of two dimensions": lambda: (_QUERY, _KEYS[0, 0], _KEYS[0, 0], numbers, *rest),
    }


_DECODING_ROWS = (
    Row(
        "attend_to_history",
        _HISTORY,
        indices=(3,),
        refuses=True,
        converts=(1, 2),
        wrong={
            "history of other rows": lambda: (_QUERY, _KEYS, _KEYS, _ZEROS[:2], 1.0),
            "history beyond the room": lambda: (_QUERY, _KEYS, _KEYS, torch.zeros(3, 7, dtype=torch.int64), 1.0),
            "history of one dimension": lambda: (_QUERY, _KEYS, _KEYS, _ZEROS[:, 0], 1.0),
            **_wrong_sides(_ZEROS, 1.0),
        },
    ),
    Row(
        "attend_to_shared",
        _SHARED,
        indices=(3, 4),
        refuses=True,
        converts=(1, 2),
        wrong={
            "entries of other rows": lambda: (_QUERY, _KEYS, _KEYS, _ZEROS[:2, 0], torch.tensor([6, 6]), 1.0),
            "lengths of other entries": lambda: (_QUERY, _KEYS, _KEYS, _ZEROS[:, 0], torch.tensor([6, 6, 6]), 1.0),
            **_wrong_sides(_ZEROS[:, 0], torch.tensor([6, 6]), 1.0),
        },
    ),
)

ROWS = (*_LP_ROWS, *_ATTENTION_ROWS, *_DROPOUT_ROWS, *_LOSS_ROWS, *_DECODING_ROWS)
