"""A partition of a running broker that gets other replicas, though the broker is alone: the others are requests of a
test.

    leader = lead(broker, "t", isr=(2, 3), min_isr=2)     # this broker leads t-0, with brokers 2 and 3 in sync
    follow(broker, "t", leader_epoch=5)                   # broker 2 leads t-0, and this one follows
"""

from __future__ import annotations

from typing import Any

from kafkalite.metadata.cluster_metadata import PartitionRecord
from kafkalite.metadata.partition_state import WriteIsr
from kafkalite.replication.follower_partition import FollowerPartition
from kafkalite.replication.leader_partition import LeaderPartition
from kafkalite.replication.replica.effects import ReadIsr
from kafkalite.server.broker import Broker

OTHERS = (2, 3)
REGISTRATIONS = {2: 12, 3: 13}
LAG_TIME_MAX_MS = 30_000


class WantedChanges:
    """An `IsrStore` that carries nothing out."""

    def __init__(self) -> None:
        self.asked: list[WriteIsr | ReadIsr] = []

    def write(self, partition: LeaderPartition, change: WriteIsr) -> None:
        self.asked.append(change)

    def read(self, partition: LeaderPartition, read: ReadIsr) -> None:
        self.asked.append(read)


def lead(
    broker: Broker, name: str, index: int = 0, *, isr: tuple[int, ...] = OTHERS, min_isr: int = 1
) -> LeaderPartition:
    """The partition gets the replicas `OTHERS`, of which those of `isr` are in sync with this broker."""
    running: Any = broker._running
    topic = running.replica_manager.by_name[name]
    former = topic.partitions[index]
    me = running.broker_id
    record = PartitionRecord((me, *OTHERS), me, former.leader_epoch, (me, *isr), 1)
    partition = LeaderPartition(
        name, index, former.log, record, me, {me: 11, **REGISTRATIONS}, WantedChanges(), running.clock,
        min_insync_replicas=min_isr, lag_time_max_ms=LAG_TIME_MAX_MS,
    )  # fmt: skip
    partition.begin()
    _put(running, name, index, record)
    topic.partitions[index] = partition
    partition.take_over(former)
    return partition


def resign(broker: Broker, name: str, index: int = 0, *, leader: int = 2) -> None:
    """Broker `leader` is elected."""
    running: Any = broker._running
    topic = running.replica_manager.by_name[name]
    state = topic.states[index]
    epoch = state.leader_epoch + 1
    _put(running, name, index, state._replace(leader=leader, leader_epoch=epoch))
    topic.partitions.pop(index).retire()


def follow(broker: Broker, name: str, index: int = 0, *, leader: int = 2) -> FollowerPartition:
    """Broker `leader` is elected, and this one follows it, with the high watermark that it has."""
    running: Any = broker._running
    topic = running.replica_manager.by_name[name]
    log = topic.partitions[index].log
    resign(broker, name, index, leader=leader)
    epoch = topic.states[index].leader_epoch
    follower = FollowerPartition(name, index, topic.topic_id, log, epoch, leader, backoff_ms=1_000)
    topic.followers[index] = follower
    return follower


def _put(running: Any, name: str, index: int, state: PartitionRecord) -> None:
    record = running.metadata.topics[name]
    states = {**record.partitions, index: state}
    running.metadata.topics[name] = record._replace(partitions=states)
    running.replica_manager.by_name[name].states = states
