"""Memory that a program keeps once it has it."""

from __future__ import annotations

import ctypes

# Of glibc's malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4
_NEVER = 2**31 - 1


def keep_freed_memory() -> None:
    """Let this program reuse large blocks instead of returning them to the system after each operation.

    glibc maps and unmaps every large tensor, and each of its pages is then zeroed and faulted in anew, which took up to
    a fifth of the time of decoding. A decision for a whole program, so commands make it, and the library does not.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_MMAP_MAX, 0)
    mallopt(_TRIM_THRESHOLD, _NEVER)
