"""Bounded clock cache of open segment descriptors.

A broker has more segments than a process may have open files. When one too many is opened, the least recently used
releases its descriptors; it opens them again when they are needed.
Source: none in Apache Kafka, which keeps every segment open.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Protocol


class DescriptorHolder(Protocol):
    """Holds descriptors, and sets `used` whenever it uses them."""

    used: bool

    def release(self) -> None:
        """Closes every descriptor and mapping; they are opened again when they are needed."""
        ...


class DescriptorCache:
    """The holders with open descriptors, at most `capacity` of them.

    A use only sets a flag on the holder, which costs a request nothing. When room is needed, the holder at the front
    loses the flag on its first turn and its descriptors on its second (the clock algorithm).
    """

    __slots__ = ("_capacity", "_ring")

    def __init__(self, capacity: int) -> None:
        self._capacity = max(1, capacity)
        self._ring: OrderedDict[DescriptorHolder, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._ring)

    def add(self, holder: DescriptorHolder) -> None:
        """`holder` has opened descriptors."""
        holder.used = True
        ring = self._ring
        if holder in ring:
            return
        while len(ring) >= self._capacity:
            oldest, _ = ring.popitem(last=False)
            if oldest.used:
                oldest.used = False
                ring[oldest] = None
            else:
                oldest.release()
        ring[holder] = None

    def remove(self, holder: DescriptorHolder) -> None:
        """`holder` has closed its descriptors."""
        self._ring.pop(holder, None)


def capacity_for_limit(descriptors: int) -> int:
    """How many segments may be open in a process that may have `descriptors` files: each takes up to three."""
    return max(16, descriptors // 2 // 3)
