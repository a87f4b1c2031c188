"""The layer in several processes: sharded by FSDP2 and FSDP1, and split by heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module
from torch.multiprocessing.spawn import spawn

from qknorm import QKNormAttention, parameter_groups

pytestmark = pytest.mark.slow

PROCESSES, DIM, HEADS = 2, 32, 4
KINDS: list[dict[str, Any]] = [{"p": 3.0}, {"per_head_scale": True, "log_scale": True}, {"qk_norm": "rms"}]


def in_processes(work: Callable[..., None], folder: Path, *arguments: Any) -> None:
    """Run work(rank, *arguments) in two processes that know of each other."""
    spawn(_process, (work, str(folder / "meeting"), arguments), nprocs=PROCESSES)


def _process(rank: int, work: Callable[..., None], meeting: str, arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=PROCESSES)
    try:
        work(rank, *arguments)
    finally:
        dist.destroy_process_group()


def layer(kind: dict[str, Any]) -> QKNormAttention:
    torch.manual_seed(0)
    return QKNormAttention(DIM, HEADS, **kind)


def groups_of(model: nn.Module) -> list[dict[str, Any]]:
    return parameter_groups(model, 0.1, scale_lr=0.1)


def trained(model: nn.Module, rows: slice, groups: list[dict[str, Any]] | None = None) -> nn.Module:
    """Three updates, each with these rows of a batch of four."""
    optimizer = torch.optim.AdamW(groups or groups_of(model), lr=0.01)
    generator = torch.Generator().manual_seed(1)
    for _ in range(3):
        x, target = torch.randn(2, 4, 6, DIM, generator=generator)
        (model(x[rows], is_causal=True) - target[rows]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model


def assert_same(actual: dict[str, Tensor], model: nn.Module) -> None:
    expected = model.state_dict()
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.allclose(actual[name], tensor, rtol=1e-4, atol=1e-5), name


def full(state: dict[str, Any]) -> dict[str, Tensor]:
    return {name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for name, tensor in state.items()}


def fsdp2(rank: int, kind: dict[str, Any], folder: str) -> None:
    mine = slice(2 * rank, 2 * rank + 2)
    mesh = init_device_mesh("cpu", (PROCESSES,))
    sharded = layer(kind)
    fully_shard(sharded, mesh=mesh)
    trained(sharded, mine)
    whole = trained(layer(kind), slice(0, 4))
    assert_same(full(sharded.state_dict()), whole)
    checkpoint = str(Path(folder, *kind))
    save(get_model_state_dict(sharded), checkpoint_id=checkpoint)
    again = QKNormAttention(DIM, HEADS, **kind)
    fully_shard(again, mesh=mesh)
    state = get_model_state_dict(again)
    load(state, checkpoint_id=checkpoint)
    set_model_state_dict(again, state)
    assert_same(full(again.state_dict()), whole)


def fsdp1(rank: int, kind: dict[str, Any]) -> None:
    mine = slice(2 * rank, 2 * rank + 2)
    attention = layer(kind)
    groups = groups_of(attention)  # before FSDP1 makes every parameter flat
    wrapped = FullyShardedDataParallel(attention, use_orig_params=True, device_id=torch.device("cpu"))
    sharded = trained(wrapped, mine, groups)
    with FullyShardedDataParallel.summon_full_params(sharded):
        result = {name.removeprefix("_fsdp_wrapped_module."): tensor for name, tensor in sharded.state_dict().items()}
        assert_same(result, trained(layer(kind), slice(0, 4)))


def split_by_heads(_: int, kind: dict[str, Any]) -> None:
    attention = layer(kind)
    plan: dict[str, ParallelStyle] = {name: ColwiseParallel() for name in ("q_proj", "k_proj", "v_proj")}
    plan["out_proj"] = RowwiseParallel()
    parallelize_module(attention, init_device_mesh("cpu", (PROCESSES,)), plan)
    for norm in (attention.q_norm, attention.k_norm):
        for parameter in norm.parameters():  # every process has it whole, and sees the gradient of its own heads
            parameter.register_post_accumulate_grad_hook(lambda parameter: dist.all_reduce(parameter.grad))
    trained(attention, slice(0, 4))
    assert_same(full(attention.state_dict()), trained(layer(kind), slice(0, 4)))


def all_ways(rank: int, folder: str) -> None:
    for kind in KINDS:
        fsdp2(rank, kind, folder)
        fsdp1(rank, kind)
    for kind in ({"p": 3.0, "num_kv_heads": 2}, {"log_scale": True}, {"qk_norm": "rms"}):
        split_by_heads(rank, kind)


def test_layers_in_parts_train_and_save_what_one_process_would(tmp_path: Path) -> None:
    """All ways in the same two processes, which take longer to start than to train."""
    in_processes(all_ways, tmp_path, str(tmp_path / "checkpoint"))
