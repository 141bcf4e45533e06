"""Producer ids, handed out one by one from blocks that the registry reserved.

A block is recorded as used before its first id leaves, so no id is ever given twice; after a restart the rest of the
old block is skipped. Source: kafka.coordinator.transaction.ProducerIdManager, KIP-98.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """Gives out ids. `reserve` brings the next block from the registry."""

    __slots__ = ("_block", "_reserve", "_reserving")

    def __init__(self, reserve: Callable[[], Awaitable[range]]) -> None:
        self._reserve = reserve
        self._block = iter(range(0))
        self._reserving = asyncio.Lock()

    def take(self) -> int | None:
        """The next id, or None if the block is used up: then `await next()`."""
        return next(self._block, None)

    async def next(self) -> int:
        """The next id, from a new block if need be."""
        while (producer_id := self.take()) is None:
            async with self._reserving:
                producer_id = self.take()  # somebody may have brought a block meanwhile
                if producer_id is not None:
                    break
                self._block = iter(await self._reserve())
        return producer_id
