"""Dropout that is drawn again instead of being stored: whether an element is dropped is a hash of a seed and its place.

`kernels.h` has the same in C++, bit for bit: with one seed, kernel and twin drop the same elements.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF


def new_seed() -> Tensor:
    """A number from torch's generator, on the CPU: a run with a given seed can be repeated and resumed."""
    return torch.randint(2**63 - 1, (), device="cpu")


def kept(seed: Tensor, rows: int, length: int, p: float, device: torch.device) -> Tensor:
    """(rows, length): True where an element is kept, which happens with probability 1 − p."""
    key = _row_keys(seed.to(device), torch.arange(rows, device=device))[:, None]
    bits = (torch.arange(length, device=device) + (key & _LOW)) & _LOW
    bits = bits ^ (bits >> 16)
    bits = (bits * 0x7FEB352D) & _LOW
    bits = bits ^ (bits >> 15) ^ _shifted(key, 32)
    bits = (bits * 0x846CA68B) & _LOW
    bits = bits ^ (bits >> 16)
    return bits < min(int((1.0 - _as_float32(p)) * 2.0**32), _LOW)


def factor(p: float) -> float:
    """What is kept is multiplied by this."""
    p = _as_float32(p)
    return 1.0 / (1.0 - p) if p < 1 else 0.0


def _row_keys(seed: Tensor, row: Tensor) -> Tensor:
    """64 bits for every row: the finaliser of splitmix64. Products wrap, as whole numbers do in torch."""
    z = seed + (row + 1) * _signed(0x9E3779B97F4A7C15)
    z = (z ^ _shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ _shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ _shifted(z, 31)


def _shifted(z: Tensor, bits: int) -> Tensor:
    """z >> bits, zeros coming in from the left."""
    shifted: Tensor = (z >> bits) & (2 ** (64 - bits) - 1)
    return shifted


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _as_float32(p: float) -> float:
    return float(torch.tensor(p, dtype=torch.float32))
