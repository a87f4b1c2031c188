"""What every operator has to do, asked of each row of the table."""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import os
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from qknorm import ops
from qknorm.ops import _build, _dispatch
from tests.ops.modes import Watch
from tests.ops.table import MODULES, ROWS, SEED, Arguments, Row

_dispatch.load_kernels()
needs_kernels = pytest.mark.skipif(_build.load() is None, reason="no C++ compiler: the kernels cannot be built")

# Rounding to a type, and what is lost on the way there in a sum of a hundred products.
TOLERANCES: dict[torch.dtype, dict[str, Any]] = {
    torch.float32: {"rtol": 1e-4, "atol": 2e-5},
    torch.float16: {"rtol": 2e-3, "atol": 2e-4},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-3},
}
CHEAP_CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


def run(row: Row, arguments: Sequence[Any], function: Callable[..., Any] | None = None) -> tuple[Tensor, ...]:
    """What the operator returns."""
    result = (function or row.operator)(*arguments)
    outputs: tuple[Tensor, ...] = result if isinstance(result, tuple) else (result,)
    return outputs


def inputs_of(row: Row, arguments: Sequence[Any]) -> list[Tensor]:
    """The arguments that have a gradient, which is from now on asked for."""
    return [arguments[i].requires_grad_() for i in row.differentiable if arguments[i] is not None]


def cotangents_of(outputs: Sequence[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """A gradient for each output that can take one, the same numbers in every type that `dtype` can hold."""
    torch.manual_seed(5)
    return [torch.randn(x.shape).to(dtype).to(x.dtype) for x in outputs if x.requires_grad]


def gradients(
    row: Row,
    arguments: Sequence[Any],
    function: Callable[..., Any] | None = None,
    dtype: torch.dtype = torch.float32,
    changed: Callable[[Tensor], Tensor] = lambda gradient: gradient,
) -> tuple[Tensor, ...]:
    inputs = inputs_of(row, arguments)
    outputs = run(row, arguments, function)
    given = [changed(gradient) for gradient in cotangents_of(outputs, dtype)]
    return torch.autograd.grad([x for x in outputs if x.requires_grad], inputs, given)


def widened(arguments: Sequence[Any]) -> Arguments:
    return tuple(
        x.detach().double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in arguments
    )  # fmt: skip


def defaults_after(row: Row) -> Arguments:
    """The last arguments, which the first sample leaves out."""
    schema = row.operator._schema.arguments
    return tuple(argument.default_value for argument in schema[len(row.arguments(row.first)) :])


def own_memory(arguments: Sequence[Any]) -> Arguments:
    """A place in memory for every element: what is expanded cannot be changed one by one."""
    return tuple(x.clone() if isinstance(x, Tensor) and 0 in x.stride() else x for x in arguments)


def assert_same_bits(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    torch.testing.assert_close(list(actual), list(expected), rtol=0, atol=0, equal_nan=True)


def each(
    *,
    with_gradient: bool = False,
    dtypes: bool = False,
    where: Callable[[Row, str], bool] = lambda *_: True,
) -> pytest.MarkDecorator:
    """Every sample of every row, or of those with a gradient, in every type that the kernel takes."""
    names = ("row", "sample", "dtype")[: 2 + dtypes]
    cases = [
        parameter(row, sample, dtype, names)
        for row in ROWS
        for sample in row.samples
        for dtype in (row.dtypes if dtypes else (torch.float32,))
        if (row.has_gradient(sample) or not with_gradient) and where(row, sample)
    ]
    return pytest.mark.parametrize(names, cases)


def parameter(row: Row, sample: str, dtype: torch.dtype, names: Sequence[str]) -> Any:
    label = f"{row.name}-{sample}" + (f"-{str(dtype)[6:]}" if "dtype" in names else "")
    return pytest.param(*(row, sample, dtype)[: len(names)], id=label)


def is_smooth(row: Row, sample: str) -> bool:
    return sample not in row.kinked


def is_smooth_twice(row: Row, sample: str) -> bool:
    return is_smooth(row, sample) and row.twice is not None and row.twice(row.arguments(sample))


each_row = pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
each_row_with_gradient = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.differentiable], ids=[row.name for row in ROWS if row.differentiable]
)


for module in pkgutil.iter_modules(ops.__path__):
    importlib.import_module(f"qknorm.ops.{module.name}")
SHORT_WAYS = {
    operator.overload.name().removeprefix("qknorm::"): operator
    for module in MODULES
    for operator in vars(module).values()
    if isinstance(operator, _dispatch.Operator)
}
# As the package registers them: the example of docs/operators.md adds one more when it is run.
REGISTERED = frozenset(name for name in torch._C._dispatch_get_all_op_names() if name.startswith("qknorm::"))
# What runs a whole model, from lists of tensors to lists of hypotheses: tests/decoding/test_engine.py has its twin.
WITHOUT_TWIN = {"qknorm::beam_search"}


def test_every_operator_is_in_the_table() -> None:
    in_table = {f"qknorm::{row.name}" for row in ROWS}
    assert {name for name in REGISTERED if not name.endswith("_plain")} == in_table | WITHOUT_TWIN
    assert {name for name in REGISTERED if name.endswith("_plain")} == {f"{name}_plain" for name in in_table}


@needs_kernels
class TestKernel:
    """Against the twin in float64, which is given the same numbers."""

    @each(dtypes=True)
    def test_values_are_those_of_the_twin(self, row: Row, sample: str, dtype: torch.dtype) -> None:
        actual = run(row, row.arguments(sample, dtype))
        expected = run(row, widened(row.arguments(sample, dtype)), row.twin)
        torch.testing.assert_close(actual, expected, check_dtype=False, **TOLERANCES[dtype])

    @each(with_gradient=True, dtypes=True)
    def test_gradients_are_those_of_the_twin(self, row: Row, sample: str, dtype: torch.dtype) -> None:
        actual = gradients(row, row.arguments(sample, dtype), dtype=dtype)
        expected = gradients(row, widened(row.arguments(sample, dtype)), row.twin, dtype=dtype)
        torch.testing.assert_close(actual, expected, check_dtype=False, **TOLERANCES[dtype])

    @each()
    def test_layout_is_that_of_the_twin(self, row: Row, sample: str) -> None:
        actual = run(row, row.arguments(sample))
        expected = run(row, row.arguments(sample), row.twin)
        for ours, theirs in zip(actual, expected, strict=True):
            assert (ours.dtype, ours.shape, ours.stride()) == (theirs.dtype, theirs.shape, theirs.stride())

    @pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.999, 1.0])
    @pytest.mark.parametrize("seed", [0, 1, -1, 2**63 - 1, -(2**63)])
    def test_the_very_same_elements_are_dropped(self, p: float, seed: int) -> None:
        ones, operators = torch.ones(100, 257), torch.ops.qknorm
        for name, rest in (("dropout", (None, p, torch.tensor(seed))), ("relu_dropout", (p, torch.tensor(seed)))):
            kernel, twin = getattr(operators, name), getattr(operators, f"{name}_plain")
            assert torch.equal(kernel(ones, *rest) == 0, twin(ones, *rest) == 0)

    @pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.999, 1.0])
    def test_the_very_same_attention_weights_are_dropped(self, p: float) -> None:
        """Values that are the unit vectors show them."""
        query, key, units = torch.randn(2, 3, 20, 40), torch.randn(2, 3, 40, 40), torch.eye(40).expand(2, 3, 40, 40)
        arguments = (query, key, units, 0.1, None, False, p, SEED)
        kernel, twin = torch.ops.qknorm.attention(*arguments)[0], torch.ops.qknorm.attention_plain(*arguments)[0]
        assert torch.equal(kernel == 0, twin == 0)

    # The matrix products of linear_cross_entropy are torch's, which may add in another order.
    @pytest.mark.parametrize(
        "row", [row for row in ROWS if row.name != "linear_cross_entropy"], ids=lambda row: row.name
    )
    def test_the_number_of_threads_changes_no_bit(self, row: Row) -> None:
        def all_there_is() -> tuple[Tensor, ...]:
            actual = run(row, row.arguments(row.first))
            return (*actual, *gradients(row, row.arguments(row.first))) if row.differentiable else actual

        expected = all_there_is()
        try:
            torch.set_num_threads(2)
            assert_same_bits(all_there_is(), expected)
        finally:
            torch.set_num_threads(1)

    @each_row
    def test_the_short_way_computes_the_same(self, row: Row) -> None:
        """What this package calls where nobody traces; `torch.ops.qknorm` is for everybody else."""
        short = SHORT_WAYS[row.name]
        filled = (*row.arguments(row.first), *defaults_after(row))
        assert_same_bits(run(row, filled, short), run(row, row.arguments(row.first)))
        if row.differentiable:
            result = gradients(row, (*row.arguments(row.first), *defaults_after(row)), short)
            assert_same_bits(result, gradients(row, row.arguments(row.first)))

    @each_row
    def test_a_call_in_float64_is_left_to_the_twin(self, row: Row) -> None:
        result = run(row, row.arguments(row.first, torch.float64))
        assert_same_bits(result, run(row, row.arguments(row.first, torch.float64), row.twin))


# A form of a gradient, and the same numbers one by one.
FORMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "zeros without memory": (lambda gradient: torch._efficientzerotensor(gradient.shape), torch.zeros_like),
    "negated in name only": (lambda gradient: torch._neg_view(-gradient), torch.clone),
    "one number everywhere": (
        lambda gradient: torch.tensor(0.5).expand(gradient.shape),
        lambda gradient: torch.full_like(gradient, 0.5),
    ),
}


class TestDerivatives:
    @each(with_gradient=True, where=is_smooth)
    def test_a_gradient_is_the_limit_of_differences(self, row: Row, sample: str) -> None:
        arguments = own_memory(row.arguments(sample, torch.float64))
        inputs_of(row, arguments)
        assert torch.autograd.gradcheck(row.operator, arguments, fast_mode=True)

    @each(with_gradient=True, where=is_smooth_twice)
    def test_so_is_the_gradient_of_a_gradient(self, row: Row, sample: str) -> None:
        arguments = own_memory(row.arguments(sample, torch.float64))
        inputs_of(row, arguments)
        assert torch.autograd.gradgradcheck(row.operator, arguments, fast_mode=True)

    def test_a_second_derivative_that_is_not_there_is_an_error(self) -> None:
        """A gradient penalty whose own gradient was silently left out would train something else."""
        row = next(row for row in ROWS if row.name == "attention")
        arguments = row.arguments(row.first)
        inputs = inputs_of(row, arguments)
        out = run(row, arguments)[0].sum()
        (first,) = torch.autograd.grad(out, inputs[:1], create_graph=True)
        with pytest.raises(RuntimeError, match="differentiated"):
            (out + first.square().sum()).backward()

    @pytest.mark.parametrize("row", [row for row in ROWS if row.refuses], ids=lambda row: row.name)
    def test_what_cannot_be_differentiated_says_so(self, row: Row) -> None:
        arguments = row.arguments(row.first)
        arguments[0].requires_grad_()
        out = run(row, arguments)[0]
        with pytest.raises(RuntimeError, match=f"qknorm::{row.name} cannot be differentiated"):
            out.sum().backward()

    @each_row_with_gradient
    @pytest.mark.parametrize("form", FORMS)
    def test_a_gradient_may_lie_in_memory_in_any_form_or_not_at_all(self, row: Row, form: str) -> None:
        actual, expected = (gradients(row, row.arguments(row.first), changed=changed) for changed in FORMS[form])
        assert_same_bits([x + 0.0 for x in actual], [x + 0.0 for x in expected])

    @each_row
    def test_an_argument_may_be_negated_in_name_only(self, row: Row) -> None:
        arguments = list(row.arguments(row.first))
        for i, x in enumerate(arguments):
            if isinstance(x, Tensor) and x.is_floating_point():
                arguments[i] = torch._neg_view(-x)
        assert_same_bits(run(row, arguments), run(row, row.arguments(row.first)))


class TestTorch:
    """What watches, checks or compiles code finds an operator like torch's own."""

    @each()
    def test_schema_and_shapes_are_true(self, row: Row, sample: str) -> None:
        arguments = row.arguments(sample)
        if row.has_gradient(sample):
            inputs_of(row, arguments)
        torch.library.opcheck(row.operator, arguments, test_utils=CHEAP_CHECKS)

    @pytest.mark.slow
    @each()
    def test_lengths_may_be_unknown_to_a_compiler(self, row: Row, sample: str) -> None:
        """Of second derivatives too, but that is asked above: here it would take as long as all the rest."""
        arguments = row.arguments(sample)
        if row.has_gradient(sample) and not row.name.endswith("_backward"):
            inputs_of(row, arguments)
        torch.library.opcheck(row.operator, arguments, test_utils="test_aot_dispatch_dynamic")

    @each_row
    def test_traced_code_computes_the_same(self, row: Row) -> None:
        """All samples at once, since tracing takes its time."""
        assert_compiled_is_the_same(row, list(row.samples), "aot_eager")

    @pytest.mark.slow
    @each_row
    def test_compiled_code_computes_the_same(self, row: Row) -> None:
        assert_compiled_is_the_same(row, [row.first], "inductor")

    @each_row
    def test_modes_see_the_operator_that_runs_and_change_no_bit(self, row: Row) -> None:
        expected = run(row, row.arguments(row.first))
        arguments = row.arguments(row.first)
        with Watch() as watch:
            actual = run(row, arguments)
        assert watch.seen[0] == f"qknorm::{row.name}"
        assert_same_bits(actual, expected)
        with FlopCounterMode(display=False):
            assert_same_bits(run(row, arguments), expected)


def assert_compiled_is_the_same(row: Row, samples: list[str], backend: str) -> None:
    """Values of all samples and their gradients, in one graph; second derivatives, which take long, of the first."""
    torch._dynamo.reset()

    def compute(calls: list[list[Any]]) -> list[tuple[Tensor, ...]]:
        return [run(row, arguments) for arguments in calls]

    def values_and_gradients(function: Callable[..., Any]) -> Iterator[Tensor]:
        calls = [list(row.arguments(sample)) for sample in samples]
        inputs = [
            x
            for sample, arguments in zip(samples, calls, strict=True)
            if row.has_gradient(sample) and (sample == row.first or not row.name.endswith("_backward"))
            for x in inputs_of(row, arguments)
        ]
        outputs = [x for actual in function(calls) for x in actual]
        yield from outputs
        if inputs:
            given = cotangents_of(outputs, torch.float32)
            yield from torch.autograd.grad([x for x in outputs if x.requires_grad], inputs, given)

    compiled = torch.compile(compute, fullgraph=True, backend=backend)
    actual, expected = list(values_and_gradients(compiled)), list(values_and_gradients(compute))
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


# ---- wrong arguments

WRONG = ("shapes", "probabilities", "indices", "seeds", "types", "freed memory")


def wrong_calls(row: Row, kind: str) -> Iterator[tuple[str, Sequence[Any]]]:
    """Names and arguments, in float32 for the kernel and in float64 for the twin."""
    # Whether torch notices that memory is gone depends on the size: all samples are tried.
    samples = row.samples if kind == "freed memory" else (row.first,)
    for sample, dtype in itertools.product(samples, (torch.float32, torch.float64)):
        ordinary = row.arguments(sample, dtype)
        for label, position, value in _REPLACED[kind](row, ordinary):
            named = f"{sample}: {label}, {str(dtype)[6:]}"
            yield named, (*ordinary[:position], value, *ordinary[position + 1 :])
    if kind == "shapes":
        for label, make in row.wrong.items():
            yield label, make()
            if not any(isinstance(x, Tensor) and 0 in x.stride() for x in make()):
                yield f"{label}, float64", widened(make())


Replaced = Iterator[tuple[str, int, Any]]


def _wrong_probabilities(row: Row, ordinary: Arguments) -> Replaced:  # noqa: ARG001
    for i in row.probabilities:
        for p in (-0.1, 1.5, float("nan")):
            yield f"{p}", i, p


def _wrong_indices(row: Row, ordinary: Arguments) -> Replaced:
    for i in row.indices:
        for number in (-1, 10**9):
            yield f"argument {i} holds {number}", i, torch.full_like(ordinary[i], number)
        for other in (torch.int32, torch.float32):
            yield f"argument {i} of {other}", i, ordinary[i].to(other)


def _wrong_seeds(row: Row, ordinary: Arguments) -> Replaced:  # noqa: ARG001
    if row.seed is not None:
        for other in (torch.float32, torch.int32, torch.bool):
            yield f"{other}", row.seed, torch.tensor(1, dtype=other)
        yield "none", row.seed, torch.tensor([], dtype=torch.int64)


def _wrong_types(row: Row, ordinary: Arguments) -> Replaced:
    for i, x in enumerate(ordinary):
        if isinstance(x, Tensor) and x.is_floating_point() and i not in row.converts:
            yield f"argument {i} of whole numbers", i, x.long()


def _freed(row: Row, ordinary: Arguments) -> Replaced:
    if any(isinstance(x, Tensor) and not x.numel() for x in ordinary):
        return  # then no memory is needed
    for i, x in enumerate(ordinary):
        drops_nothing = i == row.seed and ordinary[row.probabilities[0]] == 0
        if not isinstance(x, Tensor) or drops_nothing:
            continue
        yield f"argument {i}", i, without_memory(x.clone(memory_format=torch.contiguous_format))
        if x.dim() > 1:
            columns = x.mT.clone(memory_format=torch.contiguous_format).mT
            yield f"argument {i}, columns as rows", i, without_memory(columns)


def without_memory(x: Tensor) -> Tensor:
    x.untyped_storage().resize_(0)
    return x


_REPLACED: dict[str, Callable[[Row, Arguments], Replaced]] = {
    "shapes": lambda *_: iter(()),
    "probabilities": _wrong_probabilities,
    "indices": _wrong_indices,
    "seeds": _wrong_seeds,
    "types": _wrong_types,
    "freed memory": _freed,
}


def outcomes(row: Row, calls: Sequence[tuple[str, Sequence[Any]]]) -> dict[str, str]:
    """What becomes of each call, in copies of this process that may die of it: the next copy goes on from there."""
    result: list[str] = []
    while len(result) < len(calls):
        remaining = [arguments for _, arguments in calls[len(result) :]]
        reported = [{"e": "an exception", "a": "an answer"}[letter] for letter in reports(row, remaining)]
        result += reported if len(reported) == len(remaining) else [*reported, "a crash"]
    return dict(zip((label for label, _ in calls), result, strict=True))


def reports(row: Row, calls: Sequence[Sequence[Any]]) -> str:
    """A letter for each call, from a copy of this process, as far as it lived."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        faulthandler.disable()
        for arguments in calls:
            try:
                row.operator(*arguments)
                os.write(writing, b"a")
            except Exception:
                os.write(writing, b"e")
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as report:
        letters = report.read()
    os.waitpid(child, 0)
    return letters


def _wrong_parameters() -> Iterator[Any]:
    for row in ROWS:
        for kind in WRONG:
            if any(True for _ in wrong_calls(row, kind)):
                yield pytest.param(row, kind, id=f"{row.name}-{kind}")


@needs_kernels
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a crash has to be survived, which needs fork")
@pytest.mark.parametrize(("row", "kind"), list(_wrong_parameters()))
def test_wrong_arguments_are_an_exception(row: Row, kind: str) -> None:
    result = outcomes(row, list(wrong_calls(row, kind)))
    assert {label: end for label, end in result.items() if end != "an exception"} == {}


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kernel_refuses_what_its_twin_would_fail_at(dtype: torch.dtype) -> None:
    """An error of the twin would reach the caller as a number: the kernel looks before it hands arguments on."""
    query, keys = torch.randn(2, 3, 4, 8, dtype=dtype), torch.randn(2, 3, 5, 7, dtype=dtype)
    with pytest.raises(ValueError, match=r"query, key and value must be .*, not \(2, 3, 4, 8\), \(2, 3, 5, 7\)"):
        torch.ops.qknorm.attention(query, keys, keys, 1.0, None, False, 0.0, SEED)
