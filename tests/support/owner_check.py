"""Refuses writes to objects that the event loop owns from any other thread, in all tests.

An object belongs to the thread that made it. A thread with a running event loop may take it over, as the loop does with
logs that the threads of a recovery have loaded, and so may anyone when its thread has ended; no other thread may.
Brokers in service run without this.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from kafkalite.log.index.sparse_index import OffsetIndex, TimeIndex
from kafkalite.log.index.transaction_index import TransactionIndex
from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.segment.segment import Segment
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.replication.follower_partition import FollowerPartition
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.replication.partition import Partition

OWNED = (
    Segment, OffsetIndex, TimeIndex, TransactionIndex, SegmentList, Flusher, ProducerState, PartitionLog, Partition,
    LeaderPartition, FollowerPartition,
)  # fmt: skip


class NotTheOwner(AssertionError):
    """A thread has written to an object of another one."""


def install() -> None:
    """Check each write of an attribute from now on."""
    for owned in OWNED:
        _check(owned)


def _check(owned: Any) -> None:
    """A thread's ident is no owner: the next thread may be given that of one that has ended."""
    owners: dict[int, threading.Thread] = {}  # by id: objects with slots have no room for their owner
    init = owned.__init__
    set_attribute, owner_of, current = object.__setattr__, owners.get, threading.current_thread

    def claim(self: Any, *arguments: Any, **named: Any) -> None:
        if type(self) is owned:
            owners[id(self)] = threading.current_thread()
        init(self, *arguments, **named)

    def write(self: Any, name: str, value: Any) -> None:
        me = current()
        owner = owner_of(id(self), me)
        if owner is not me and type(self) is owned:
            if asyncio._get_running_loop() is None and owner.is_alive():
                raise NotTheOwner(f"the thread {me.name} writes {name} of {self!r}, which another one owns")
            owners[id(self)] = me
        set_attribute(self, name, value)

    owned.__init__ = claim
    owned.__setattr__ = write
