"""Bounds the memory of requests that are still on their way.

A connection may send 99 of the 100 MB that it announced and then be silent; a thousand of them may. All servers' large
unfinished requests together get `bytes_max`. When they have more, one loses its connection: the one that was heard of
longest ago, among those that have been silent for `SILENT_S` or hold more than `FAIR_BYTES`. A few hundred producers
that all send a megabyte at once are neither, and may have `BUSY_FACTOR` times as much. Apache Kafka's
queued.max.request.bytes stops reading instead, for everybody, until something is finished.
Source: org.apache.kafka.common.memory.SimpleMemoryPool, KIP-72, for the setting.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol

SILENT_S = 1.0
FAIR_BYTES = 4 * 1024 * 1024
BUSY_FACTOR = 8


class Sending(Protocol):
    def give_way(self) -> None:
        """Close: others need the memory."""


class RequestMemoryPool:
    """`bytes_held` is what came of all large requests that are not whole. It may exceed the bound by one receive."""

    __slots__ = ("_by_sender", "_now_s", "bytes_held", "bytes_max")

    def __init__(self, bytes_max: int, now_s: Callable[[], float] = monotonic) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._now_s = now_s
        self._by_sender: dict[Sending, tuple[int, float]] = {}  # (bytes, heard of at); the longest silent comes first

    def note(self, sender: Sending, held_bytes: int) -> None:
        """So much of the request that `sender` is sending has come; 0: it sends none, or is gone."""
        self.bytes_held += held_bytes - self._by_sender.pop(sender, (0, 0.0))[0]
        if held_bytes:
            now_s = self._now_s()
            self._by_sender[sender] = held_bytes, now_s
            while self.bytes_held > self.bytes_max and (last := self._dispensable(now_s)) is not None:
                last.give_way()  # notes 0 for itself

    def _dispensable(self, now_s: float) -> Sending | None:
        for sender, (held_bytes, heard_s) in self._by_sender.items():
            if held_bytes > FAIR_BYTES or now_s - heard_s >= SILENT_S:
                return sender
        if self.bytes_held > BUSY_FACTOR * self.bytes_max:
            return next(iter(self._by_sender))
        return None
