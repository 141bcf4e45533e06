"""Bounds the memory of requests that are still on their way.

A connection may send 99 of the 100 MB that it announced and then be silent; a thousand of them may. All servers' large
unfinished requests together get `bytes_max`; when they have more, the one that was silent longest loses its
connection, so that who goes on sending is served. Apache Kafka's queued.max.request.bytes stops reading instead, for
everybody, until something is finished.
Source: org.apache.kafka.common.memory.SimpleMemoryPool, KIP-72, for the setting.
"""

from __future__ import annotations

from typing import Protocol


class Sending(Protocol):
    def give_way(self) -> None:
        """Close: others need the memory."""


class UnfinishedRequests:
    """`bytes_held` is what came of all large requests that are not whole. It may exceed the bound by one receive."""

    __slots__ = ("_by_sender", "bytes_held", "bytes_max")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._by_sender: dict[Sending, int] = {}  # the one that was silent longest comes first

    def note(self, sender: Sending, held_bytes: int) -> None:
        """So much of the request that `sender` is sending has come; 0: it sends none, or is gone."""
        self.bytes_held += held_bytes - self._by_sender.pop(sender, 0)
        if held_bytes:
            self._by_sender[sender] = held_bytes
            while self.bytes_held > self.bytes_max:
                next(iter(self._by_sender)).give_way()  # notes 0 for itself
