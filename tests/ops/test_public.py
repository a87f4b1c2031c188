"""The public functions where torch takes code apart, and where several threads and processes use them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import hessian
from torch.utils.data import DataLoader, Dataset

import qknorm
from qknorm.ops.cross_entropy import linear_cross_entropy
from qknorm.ops.dropout import add_dropped, dropout, relu_dropout


def by_definition(x: Tensor, p: float) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, p, -1, keepdim=True)
    return x / norm


class Functions(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return qknorm.qk_attention(x, x, qknorm.lp_normalize(x, p=3.0), 5.0, p=2.0, is_causal=True)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (Functions(), (2, 3, 5, 8)),
        (qknorm.QKNormAttention(16, 4, num_kv_heads=2, dropout=0.1).eval(), (2, 5, 16)),
    ],
    ids=["functions", "QKNormAttention"],
)
def test_what_is_exported_needs_torch_alone(module: nn.Module, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    exported = torch.export.export(module, (x,))
    targets = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert targets
    assert all(target.startswith("aten.") for target in targets)
    torch.testing.assert_close(exported.module()(x), module(x))


class TestTransforms:
    P = pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, torch.inf])

    @pytest.mark.parametrize("p", [2.0, 3.0])
    def test_hessian(self, p: float) -> None:
        x, weight = torch.randn(2, 5, dtype=torch.float64).unbind()
        result = hessian(lambda y: (qknorm.lp_normalize(y, p) * weight).sum())(x)
        torch.testing.assert_close(result, hessian(lambda y: (by_definition(y, p) * weight).sum())(x))

    @P
    def test_forward_mode(self, p: float) -> None:
        x, direction = torch.randn(2, 4, 5, dtype=torch.float64).unbind()
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, direction)
            actual = forward_ad.unpack_dual(qknorm.lp_normalize(dual, p))
            expected = forward_ad.unpack_dual(by_definition(dual, p))
        torch.testing.assert_close(tuple(actual), tuple(expected))


DROPPING: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout": lambda x: dropout(x, 0.3, True),
    "relu_dropout": lambda x: relu_dropout(x, 0.3, True),
    "add_dropped": lambda x: add_dropped(torch.zeros_like(x), x, 0.3, True),
    "qk_attention": lambda x: qknorm.qk_attention(x, x, torch.eye(64).expand(2, 4, 64, 64), 1.0, dropout_p=0.3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DROPPING)
def test_compiled_dropout_drops_its_share_anew_every_time(name: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(DROPPING[name], fullgraph=True)
    first, second = ((compiled(torch.rand(2, 4, 64, 64) + 0.1) == 0) for _ in range(2))
    spread = (0.3 * 0.7 / first.numel()) ** 0.5
    assert abs(float(first.float().mean()) - 0.3) < 5 * spread
    assert abs(float((first & second).float().mean()) - 0.09) < 5 * spread


def test_a_class_that_cannot_be_leaves_the_loss_finite() -> None:
    states, weight, target = torch.randn(4, 3), torch.randn(5, 3), torch.tensor([0, 1, 2, 3])
    bias = torch.tensor([0.0, 0.0, 0.0, 0.0, -torch.inf])
    expected = F.cross_entropy(F.linear(states, weight, bias), target)
    torch.testing.assert_close(linear_cross_entropy(states, weight, bias, target, 0.0), expected)


_THREADS = """
import threading
import torch
from tests.ops.table import ROWS

def outputs(row, function, sample):
    arguments = row.arguments(sample)
    found = function(*arguments)
    return found if isinstance(found, tuple) else (found,)

calls = [(row, sample) for row in ROWS for sample in list(row.samples)[:4]]
expected = [outputs(row, row.twin, sample) for row, sample in calls]
made = [[row.arguments(sample) for row, sample in calls] for _ in range(16)]
gate, failures, done = threading.Barrier(16), [], []

def work(number):
    gate.wait()
    for i in range(len(calls)):
        place = (i + 3 * number) % len(calls)
        row, sample = calls[place]
        try:
            found = row.operator(*made[number][place])
            found = found if isinstance(found, tuple) else (found,)
            for ours, theirs in zip(found, expected[place], strict=True):
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)
        except BaseException as error:
            failures.append((row.name, sample, repr(error)))
    done.append(number)

threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not failures, failures[:3]
assert len(done) == 16
"""


def test_sixteen_threads_may_make_the_first_call_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _THREADS], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


class Normalized(Dataset[Tensor]):
    """Rows of ones, normalised by whichever process asks."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        return qknorm.lp_normalize(torch.full((3, 64, 64), float(index + 1)), p=2.0)


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_workers_that_are_forks_normalise_too() -> None:
    """After two threads have been at work, of which a fork has one."""
    try:
        torch.set_num_threads(2)
        expected = qknorm.lp_normalize(torch.ones(3, 64, 64))
        loader = DataLoader(Normalized(), batch_size=4, num_workers=2, multiprocessing_context="fork", timeout=60)
        for batch in loader:
            torch.testing.assert_close(batch, expected.expand(4, -1, -1, -1))
    finally:
        torch.set_num_threads(1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_forks_before_its_first_call_has_kernels_on_both_sides() -> None:
    code = """
import os, torch, qknorm
from qknorm.ops import _build
child = os.fork()
torch.testing.assert_close(qknorm.lp_normalize(torch.ones(4, 4)), torch.full((4, 4), 0.5))
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
