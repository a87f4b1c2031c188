from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from qknorm.errors import InputError
from qknorm.experiments.gpus import chosen_gpus, gpu_of_its_own


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """What was taken, in order, on a machine that pretends to have three GPUs."""
    found: list[int] = []
    monkeypatch.setenv("QKNORM_CACHE", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", found.append)
    return found


def test_runs_side_by_side_have_different_gpus_of_those_that_were_chosen(taken: list[int]) -> None:
    with gpu_of_its_own(None), gpu_of_its_own(None):
        for _ in range(2):
            with pytest.raises(RuntimeError), gpu_of_its_own(None):
                raise RuntimeError("a run that fails gives it back")
    with gpu_of_its_own(chosen_gpus("2, 1")), gpu_of_its_own(chosen_gpus("1,2")):
        pass
    assert taken == [0, 1, 2, 2, 1, 2]


def test_who_finds_all_of_them_taken_waits(taken: list[int]) -> None:
    def another() -> None:
        with gpu_of_its_own([1]):
            pass

    thread = threading.Thread(target=another)
    with gpu_of_its_own([1]):
        thread.start()
        thread.join(0.2)
        assert taken == [1]
    thread.join()
    assert taken == [1, 1]


def test_two_processes_that_see_different_gpus_do_not_wait(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4")
    with gpu_of_its_own(None):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
        with gpu_of_its_own(None):
            assert taken == [0, 0]


def test_without_a_gpu_nothing_is_taken(taken: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with gpu_of_its_own(None):
        assert taken == []
    assert chosen_gpus(None) == []


@pytest.mark.parametrize(
    ("present", "listed", "message"),
    [
        (2, "2", "there is no GPU '2' on this machine; its GPUs are 0, 1"),
        (2, "0,one", "there is no GPU 'one' on this machine; its GPUs are 0, 1"),
        (2, "-1", "there is no GPU '-1' on this machine"),
        (0, "0", "there is no GPU '0' on this machine; it has none"),
    ],
)
def test_a_gpu_that_is_not_there_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, present: int, listed: str, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: present)
    with pytest.raises(InputError, match=message):
        chosen_gpus(listed)
