"""Producer ids, handed out one by one from blocks that the registry reserved.

A block is recorded as used before its first id leaves, so no id is ever given twice; after a restart the rest of the
old block is skipped. A block that lies below what the logs have met was given before: ZooKeeper was restored from a
copy, or its count taken away. Then the count goes on above what is known here.
Source: kafka.coordinator.transaction.ProducerIdManager, KIP-98.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_BELIEVED_AHEAD = 1 << 48  # a client may write under any id, and is not to use up all there are


class ProducerIdManager:
    """Gives out ids. `reserve` brings the next block from the registry, `skip` has it go on above an id, if
    that may be needed, and `highest_met` is the greatest id in any log."""

    __slots__ = ("_block", "_highest_met", "_last", "_reserve", "_reserving", "_skip")

    def __init__(
        self,
        reserve: Callable[[], Awaitable[range]],
        skip: Callable[[int], Awaitable[None]] | None = None,
        highest_met: Callable[[], int] = lambda: -1,
    ) -> None:
        self._reserve = reserve
        self._skip = skip
        self._highest_met = highest_met
        self._block = iter(range(0))
        self._last = -1  # of the block
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
                self._block = iter(await self._new_block())
        return producer_id

    async def _new_block(self) -> range:
        block, highest = await self._reserve(), max(self._highest_met(), self._last)
        if self._skip is not None and block.start <= highest < block.start + _BELIEVED_AHEAD:
            logger.warning(
                "producer ids would begin again at %d, and %d is in use: going on there", block.start, highest
            )
            await self._skip(highest)
            block = await self._reserve()
        self._last = block.stop - 1
        return block
