"""Operators registered with torch (`torch.ops.qknorm.*`): each has a kernel for the CPU and a twin for all the rest.

One operator is one Python file and one C++ file of the same name; docs/operators.md says how to add one.
"""

from qknorm.ops._dispatch import has_values, is_left_to_torch, is_traced, load_kernels

__all__ = ["has_values", "is_left_to_torch", "is_traced", "load_kernels"]
