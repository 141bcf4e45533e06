"""Limits of a decoder process, and of how many there are."""

from __future__ import annotations

MEMORY_BYTES_MAX = 512 << 20
EXCHANGE_CPU_S, CPU_S_A_BYTE = 1.0, 0.25e-6
"""For the records of one exchange, or the compilation of a schema. A megabyte of honest ones takes 0.1 to 0.3 s."""
ANSWER_S_MAX = 60.0
"""For one frame; a process that was stopped, or starves, may not hold a search for ever."""
PROCESSES_MAX = 4
ENDS_MAX = 5
"""Ends of a process that one search may cause, each of which costs 0.2 s; behind them its records are not decoded."""
WAIT_S, WAIT_S_A_RECORD, WAIT_S_A_BYTE = 30.0, 0.01, 1e-6
"""How long one search may wait for decoders; records that take a second each would hold it, and others, for hours."""


def exchange_cpu_s(size_bytes: int) -> float:
    return EXCHANGE_CPU_S + CPU_S_A_BYTE * size_bytes
