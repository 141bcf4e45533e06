"""Who holds descriptors now, and who has to give some back.

A broker has more segments than a process may have files. Whoever opens one too many makes the least recently used give
theirs back; all of them open again by themselves when they are needed.
Source: none in Apache Kafka, which keeps every segment open.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class Openable(Protocol):
    """Something that holds descriptors and can do without them for a while."""

    used: bool

    def release(self) -> None:
        """Give back every descriptor and mapping; all of them open again by themselves."""
        ...


class DescriptorCache:
    """Those that hold descriptors now, at most `capacity` of them.

    Who is used sets its own `used` flag, which costs nothing on the way of a request; the one at the front loses the
    flag on its first turn and its descriptors on its second (the clock algorithm).
    """

    __slots__ = ("_capacity", "_ring")

    def __init__(self, capacity: int) -> None:
        self._capacity = max(1, capacity)
        self._ring: OrderedDict[Openable, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ring)

    def opened(self, segment: Openable) -> None:
        """`segment` holds descriptors from now on."""
        segment.used = True
        ring = self._ring
        if segment in ring:
            return
        while len(ring) >= self._capacity:
            oldest, _ = ring.popitem(last=False)
            if oldest.used:
                oldest.used = False
                ring[oldest] = None
            else:
                oldest.release()
        ring[segment] = None

    def closed(self, segment: Openable) -> None:
        """`segment` has given its descriptors back by itself."""
        self._ring.pop(segment, None)


def capacity_for_limit(descriptors: int) -> int:
    """How many segments may be open in a process that may have `descriptors` files: each takes up to three."""
    return max(16, descriptors // 2 // 3)
