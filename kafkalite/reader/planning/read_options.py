"""Values of a read: its topics, offsets and limits. `kafkalite.reader.options` makes them from text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

EARLIEST = -2
LATEST = -1

Offsets = int | Mapping[str, Mapping[int, int]]
"""EARLIEST or LATEST for all partitions, or offset (or one of these) by topic and partition."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read: its topics, offsets and limits."""

    path: str
    topics: tuple[str, ...] | None
    topic_pattern: str | None
    assigned: Mapping[str, tuple[int, ...]] | None
    starting_offsets: Offsets
    ending_offsets: Offsets
    include_headers: bool
    min_partitions: int
    fail_on_data_loss: bool
    read_committed: bool
