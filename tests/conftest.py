"""Settings for all tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from hypothesis import settings

from qknorm.data.phrasebook import pairs
from qknorm.data.textfiles import write_lines
from tests.caches import new_cache

# The first example of a property may compile a kernel, and the machine may be busy: time is measured elsewhere. The
# examples are the same wherever the tests run; --hypothesis-profile=explore draws others.
settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile("qknorm", deadline=None, derandomize=True)
settings.load_profile("qknorm")

# There are as many workers as cores, so each has one thread, and so has what it starts. A test that runs alone gets the
# same, and so the same numbers; models as small as these are slowed down by more.
os.environ["OMP_NUM_THREADS"] = "1"
torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first, so that no worker is left alone with one at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _same_threads() -> Iterator[None]:
    """A test that leaves another number of threads behind would change the numbers of those after it."""
    yield
    left = torch.get_num_threads()
    torch.set_num_threads(1)
    assert left == 1


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """A folder of this name that the first worker that wants it makes for all."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    with FileLock(shared / f"{name}.lock"):
        if not (shared / name / "whole").exists():
            (shared / name).mkdir(exist_ok=True)
            make(shared / name)
            (shared / name / "whole").touch()
    return shared / name


def train(folder: Path, *settings: str) -> None:
    """By `folder`'s recipe.yaml, in a process of its own."""
    environment = os.environ | {"QKNORM_CACHE": new_cache(folder / "cache")}
    command = [sys.executable, "-m", "qknorm", "train", "recipe.yaml", *settings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small translator of phrases that has learned enough to have opinions; one for all workers."""
    return made_once(tmp_path_factory, "trained", _train_phrases) / "runs" / "phrases"


def _train_phrases(folder: Path) -> None:
    phrases = pairs(8000)
    for name, chosen in {"train": phrases[200:], "dev": phrases[:100], "test": phrases[100:200]}.items():
        for side in (0, 1):
            write_lines(folder / f"{name}.{side}", (pair[side] for pair in chosen))
    recipe = {
        "name": "phrases",
        "data": {"source": "train.0", "target": "train.1", "dev": ["dev.0", "dev.1"], "test": ["test.0", "test.1"]},
    }
    (folder / "recipe.yaml").write_text(json.dumps(recipe))
    settings = (
        "merges=300 dim=64 feed_forward=128 encoder_layers=1 decoder_layers=2 heads=4 dropout=0 attention_dropout=0 "
        "relu_dropout=0 embedding_dropout=0 word_dropout=0 label_smoothing=0 budget=1024 schedule=cosine peak=0.006 "
        "warmup=30 max_updates=160 validate_every=160 validation_beam_size=1"
    )
    train(folder, *settings.split())
