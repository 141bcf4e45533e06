"""Producer ids, allocated one by one from blocks that the cluster metadata reserves.

A block is recorded as used before its first id is allocated, so no id is allocated twice; after a restart the rest of
the last block is skipped. A new block at or below an id in a log was allocated before: ZooKeeper was restored from a
backup, or its counter was deleted. Then the counter is moved above the highest id known here.
Source: kafka.coordinator.transaction.ProducerIdManager, KIP-98.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

logger = logging.getLogger(__name__)

_AHEAD_MAX = 1 << 48  # ids further ahead are ignored: a client may write any id, and must not exhaust all of them


class ProducerIdManager:
    """Allocates producer ids.

    `reserve` reserves the next block, `skip` moves the counter above an id (None: the counter is never behind), and
    `highest_in_logs` is the highest id in any log, or -1.
    """

    __slots__ = ("_block", "_highest_in_logs", "_last", "_reserve", "_reserving", "_skip")

    def __init__(
        self,
        reserve: Callable[[], Awaitable[range]],
        skip: Callable[[int], Awaitable[None]] | None = None,
        highest_in_logs: Callable[[], int] = lambda: -1,
    ) -> None:
        self._reserve = reserve
        self._skip = skip
        self._highest_in_logs = highest_in_logs
        self._block = iter(range(0))
        self._last = -1  # id of the last block
        self._reserving = asyncio.Lock()

    def take(self) -> int | None:
        """The next id, or None if the block is used up; then `await next()`."""
        return next(self._block, None)

    async def next(self) -> int:
        """The next id, from a new block if the last one is used up."""
        while (producer_id := self.take()) is None:
            async with self._reserving:
                producer_id = self.take()  # another caller may have reserved a block meanwhile
                if producer_id is not None:
                    break
                self._block = iter(await self._new_block())
        return producer_id

    async def _new_block(self) -> range:
        block, highest = await self._reserve(), max(self._highest_in_logs(), self._last)
        if self._skip is not None and block.start <= highest < block.start + _AHEAD_MAX:
            logger.warning(
                "producer ids would begin again at %d, and %d is in use: going on there", block.start, highest
            )
            await self._skip(highest)
            block = await self._reserve()
        self._last = block.stop - 1
        return block
