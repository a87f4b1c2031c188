"""Kernels in C++ for the CPU, each with a twin in torch's own operations elsewhere."""
