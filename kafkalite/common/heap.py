"""glibc's heap in processes that handle large blocks now and then: what is freed goes back to the system.

A block above the threshold is a mapping of its own, which ends when it is freed. By default the threshold grows to the
size of the largest freed block, up to 32 MiB; then blocks of many MB come from the heap, whose top a small block pins.
Each thread may have a heap of its own, so there are few. No effect with other C libraries.
Source: mallopt(3), malloc_trim(3).
"""

from __future__ import annotations

import ctypes
from typing import Any

_MMAP_THRESHOLD, _ARENA_MAX = -3, -8
_THRESHOLD_BYTES = 256 << 10
_ARENAS = 2


def _function(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None)


def bound_heap() -> None:
    """Fixes the threshold, and the number of heaps; before a process has threads."""
    if (mallopt := _function("mallopt")) is not None:
        mallopt(_MMAP_THRESHOLD, _THRESHOLD_BYTES)
        mallopt(_ARENA_MAX, _ARENAS)


def trim_memory() -> None:
    """Returns freed memory to the system."""
    if (trim := _function("malloc_trim")) is not None:
        trim(0)
