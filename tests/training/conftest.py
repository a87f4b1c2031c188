"""A small corpus in files, and the content of a recipe for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.caches import new_cache
from tests.phrases import write_phrases


@pytest.fixture
def content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A recipe of two validations for a corpus of 300 pairs, en → gl; files in `tmp_path`."""
    monkeypatch.setenv("QKNORM_CACHE", new_cache(tmp_path / "cache"))
    write_phrases(tmp_path, train=300, held_out=8)
    return {
        "data": {
            "source": str(tmp_path / "train.en"),
            "target": str(tmp_path / "train.gl"),
            "dev": [str(tmp_path / "dev.en"), str(tmp_path / "dev.gl")],
            "test": [str(tmp_path / "test.en"), str(tmp_path / "test.gl")],
            "languages": ["en", "gl"],
            "merges": 100,
        },
        "model": {"dim": 16, "feed_forward": 32, "encoder_layers": 1, "decoder_layers": 1, "heads": 2},
        "training": {
            "budget": 256,
            "schedule": "cosine",
            "peak": 0.01,
            "warmup": 4,
            "validate_every": 8,
            "max_updates": 16,
        },
        "decoding": {"beam_size": 1, "validation_beam_size": 1, "extra_length": 2},
    }
