"""Matrix products of bfloat16 numbers on any processor.

Where oneDNN has none of them for a processor, as for those with AVX2 alone, torch multiplies numbers one by one, over
fifty times slower than in float32. There the same numbers are multiplied in float32 and the result is rounded, so that
what was planned on one machine goes on on another.
"""

from __future__ import annotations

import torch
from torch import Tensor

HAS_HALF_PRODUCTS: bool = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a @ b; numbers in half precision are added up in float32, whichever processor it is."""
    if HAS_HALF_PRODUCTS or a.dtype is not torch.bfloat16 or not a.is_cpu:
        return torch.matmul(a, b, out=out)
    rounded = (a.float() @ b.float()).bfloat16()
    return rounded if out is None else out.copy_(rounded)
