"""The memory of large requests that have arrived in part.

A connection may send 99 of the 100 MB that it announced and then be silent; a thousand connections may. All partial
requests together get `bytes_max`. Beyond that one connection is closed: the longest silent among those that have been
silent for `SILENT_S` or hold more than `FAIR_BYTES`. A few hundred producers that all send a megabyte at once are
neither silent nor large, and may have `BUSY_FACTOR` times as much. Apache Kafka's queued.max.request.bytes stops
reading from all clients instead, until a request is complete.
Source: org.apache.kafka.common.memory.SimpleMemoryPool, KIP-72, for the setting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkalite.common.clock import monotonic_s

SILENT_S = 1.0
FAIR_BYTES = 4 * 1024 * 1024
BUSY_FACTOR = 8


class Sender(Protocol):
    def close_to_free_memory(self) -> None:
        """Close the connection."""


class RequestMemoryPool:
    """`bytes_held` counts the bytes of all partial requests. It may exceed the bound by one receive."""

    __slots__ = ("_by_sender", "_now_s", "bytes_held", "bytes_max")

    def __init__(self, bytes_max: int, now_s: Callable[[], float] = monotonic_s) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._now_s = now_s
        self._by_sender: dict[Sender, tuple[int, float]] = {}  # (bytes, time of the last bytes); longest silent first

    def note(self, sender: Sender, held_bytes: int) -> None:
        """`held_bytes` of the request of `sender` have come; 0: it sends none, or is gone."""
        self.bytes_held += held_bytes - self._by_sender.pop(sender, (0, 0.0))[0]
        if held_bytes:
            now_s = self._now_s()
            self._by_sender[sender] = held_bytes, now_s
            while self.bytes_held > self.bytes_max and (last := self._dispensable(now_s)) is not None:
                last.close_to_free_memory()  # notes 0 for itself

    def _dispensable(self, now_s: float) -> Sender | None:
        for sender, (held_bytes, heard_s) in self._by_sender.items():
            if held_bytes > FAIR_BYTES or now_s - heard_s >= SILENT_S:
                return sender
        if self.bytes_held > BUSY_FACTOR * self.bytes_max:
            return next(iter(self._by_sender))
        return None
