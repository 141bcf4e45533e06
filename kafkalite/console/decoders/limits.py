"""Limits of a decoder process, and of how many there are."""

from __future__ import annotations

MEMORY_BYTES_MAX = 512 << 20
RECORD_CPU_S_MAX = 2.0
"""For one record, or the compilation of a schema. Honest ones of a megabyte take some ten milliseconds."""
ANSWER_S_MAX = 60.0
"""For one frame; a process that was stopped, or starves, may not hold a search for ever."""
PROCESSES_MAX = 4
ENDS_MAX = 5
"""Ends of a process that one search may cause, each of which costs 0.2 s; behind them its records are not decoded."""
