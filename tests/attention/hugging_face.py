"""Tiny models of transformers, for tests that are skipped where it is not installed."""

from __future__ import annotations

from typing import Any


def tiny(family: str, **changes: Any) -> Any:
    """A causal language model of a family, such as "llama"."""
    from tests.hf.tiny import tiny_model

    return tiny_model(family, **changes)
