"""What watches the operators that run."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Watch(TorchDispatchMode):
    """Notes the names of the operators that run, what types of numbers they get, and the largest memory they take."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.types: list[set[Any]] = []
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.seen.append(func.name())
        self.types.append({x.dtype for x in tree_leaves(args) if isinstance(x, Tensor)})
        self.largest = max(self.largest, *(bytes_of(x) for x in tree_leaves(out)), 0)
        return out


def bytes_of(x: object) -> int:
    return x.untyped_storage().nbytes() if isinstance(x, Tensor) else 0
