"""Carries out the changes of the ISR that leaders decide on: writes and reads of state nodes, in tasks.

A write is reported with its outcome, which may be unknown; a read is repeated until it succeeds. A partition that is
not led here any more gets no report.
Source: kafka.server.ZkAlterPartitionManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import KafkaError
from kafkalite.metadata.partition_state import WriteOutcome

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.metadata.partition_state import IsrStates, WriteIsr
    from kafkalite.replication.leader_partition import LeaderPartition
    from kafkalite.replication.replica.effects import ReadIsr

logger = logging.getLogger(__name__)

_RETRY_MS = 100  # while ZooKeeper cannot be reached


class IsrWriter:
    """The `IsrStore` of a broker's partitions. `close` ends its tasks. `shrinks`, `expands` and `failures` count the
    writes that were carried out, or refused."""

    def __init__(self, states: IsrStates, clock: Clock) -> None:
        self._states = states
        self._clock = clock
        self.shrinks = self.expands = self.failures = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def write(self, partition: LeaderPartition, change: WriteIsr) -> None:
        self._start(self._write(partition, change))

    def read(self, partition: LeaderPartition, read: ReadIsr) -> None:
        self._start(self._read(partition, read))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, partition: LeaderPartition, change: WriteIsr) -> None:
        if partition.is_retired:  # since this task was made; the next topic of that name may be there already
            return
        size_before = len(partition.replica.in_sync.isr)
        outcome = await self._states.write_isr(partition.topic, partition.index, change)
        logger.debug("%s-%d: %s: %s", partition.topic, partition.index, change, outcome.value)
        if outcome is WriteOutcome.WRITTEN:
            self.shrinks += len(change.isr) < size_before
            self.expands += len(change.isr) > size_before
        elif outcome is not WriteOutcome.UNKNOWN:
            self.failures += 1
        partition.on_write(change, outcome)

    async def _read(self, partition: LeaderPartition, read: ReadIsr) -> None:
        while not partition.is_retired:
            try:
                state = await self._states.read_isr(partition.topic, partition.index)
            except KafkaError as error:
                logger.debug("%s-%d: its state cannot be read: %s", partition.topic, partition.index, error)
                await self._pause()
                continue
            if state is not None:  # else its topic is deleted
                partition.on_read(read, state)
            return

    async def _pause(self) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(_RETRY_MS, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()
