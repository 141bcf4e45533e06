"""The records of a topic as they come: each partition is read on from where the last look has ended.

A look follows as soon as a partition has more. What tells nobody, such as a new topic or more partitions, is looked for
every few milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.replication.delayed_operations import DelayedOperation
from kafkalite.testing.records.stored_record import READ_COMMITTED, StoredRecord, end_offset, stored_records

if TYPE_CHECKING:
    from kafkalite.server.broker_server import BrokerServer

_LOOK_AGAIN_S = 0.005


class RecordWatch:
    """Reads one topic of a broker, on its loop."""

    def __init__(self, server: BrokerServer, topic: str, isolation: str) -> None:
        self._server = server
        self._topic = topic
        self._isolation = isolation
        self._read_to: dict[int, int] = {}
        self._records: dict[int, list[StoredRecord]] = {}
        self._topic_id: object = None

    def take(self) -> list[StoredRecord]:
        """All records by partition and offset; none if there is no such topic. Raises StorageError."""
        topic = self._server.replica_manager.by_name.get(self._topic)
        topic_id = None if topic is None else topic.topic_id
        if topic_id != self._topic_id:  # deleted, perhaps made again
            self._read_to.clear()
            self._records.clear()
            self._topic_id = topic_id
        for index, partition in sorted(topic.partitions.items()) if topic is not None else ():
            end = end_offset(partition, self._isolation)
            start = self._read_to.get(index, 0)
            if end > start:
                self._records.setdefault(index, []).extend(stored_records(partition, start, self._isolation))
                self._read_to[index] = end
        return [record for index in sorted(self._records) for record in self._records[index]]

    async def until(
        self, is_enough: Callable[[list[StoredRecord]], object], timeout_s: float
    ) -> list[StoredRecord] | None:
        """The records when they are enough; None if they are not within that time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            records = self.take()
            if is_enough(records):
                return records
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                return None
            await self._more(min(left_s, _LOOK_AGAIN_S if self._topic_id is None else 10 * _LOOK_AGAIN_S))

    async def _more(self, wait_s: float) -> None:
        """Wait until a partition has more, at most so long."""
        changed = asyncio.Event()
        waiting = DelayedOperation(
            1, changed.set, asyncio.get_running_loop().call_soon, self._isolation == READ_COMMITTED
        )
        topic = self._server.replica_manager.by_name.get(self._topic)
        for partition in topic.partitions.values() if topic is not None else ():
            if not partition.is_offline:
                partition.watch(waiting)
        try:
            await asyncio.wait_for(changed.wait(), wait_s)
        except TimeoutError:
            pass
        finally:
            waiting.withdraw()
