"""The in-sync and the eligible replicas of a partition as its state node has them, and a leader's conditional write.

    state = await states.read_isr("orders", 3)
    outcome = await states.write_isr("orders", 3, WriteIsr(isr, elr, state.partition_epoch, registrations))

Eligible leader replicas (ELR) are those besides the ISR that may be elected: they hold every committed record. While
the ISR is smaller than min.insync.replicas, the high watermark does not advance. So a replica that left it then still
holds everything below the high watermark, and may lead when the others are gone or have lost the end of their logs.
Kafka keeps these replicas from 4.0 on (KRaft); with ZooKeeper it drops them, and the log of the last member of the ISR
alone decides which records survive.

Invariant: each replica in ISR or ELR holds every record below the high watermark, unless it lost the end of its log
after it joined. A broker that may have lost it leaves both lists, by its own write, before it registers again.
Source: kafka.api.LeaderAndIsr, kafka.server.ZkAlterPartitionManager, KIP-497, KIP-841, KIP-903;
org.apache.kafka.controller.PartitionChangeBuilder, KIP-966.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from enum import Enum
from itertools import chain
from typing import Protocol

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER


class IsrState(NamedTuple):
    """A partition's state node. `partition_epoch` is the node's version.

    Invariant: `isr` is never empty (KAFKA-15353) and has no member in common with `elr`; `leader` is in `isr` or
    NO_LEADER.
    """

    leader: int
    leader_epoch: int
    isr: frozenset[int]
    elr: frozenset[int]
    partition_epoch: int


class WriteIsr(NamedTuple):
    """Write the partition's state node if its version is `expected_epoch`; leader and leader epoch stay.

    `registrations`: brokers that join, each with the registration under which it fetched. In one transaction with the
    write, ZooKeeper checks that each is registered under it and not stopping (KIP-841, KIP-903). An equal write may
    follow after an unknown outcome.
    """

    isr: frozenset[int]
    elr: frozenset[int]
    expected_epoch: int
    registrations: Mapping[int, int]


class WriteOutcome(Enum):
    """The end of a conditional write. REFUSED: a broker that was to join is not registered as it was."""

    WRITTEN = "written"
    BAD_VERSION = "bad version"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class IsrStates(Protocol):
    """The state nodes of a cluster's partitions."""

    async def write_isr(self, name: str, partition: int, write: WriteIsr) -> WriteOutcome:
        """Write the ISR of a partition that this broker leads. Raises nothing: a lost connection is UNKNOWN, a
        partition that is gone BAD_VERSION. After WRITTEN the listeners have been notified."""
        ...

    async def read_isr(self, name: str, partition: int) -> IsrState | None:
        """The state of a partition as it is now, after every write that has been answered; None if there is none.
        Raises KafkaError(REQUEST_TIMED_OUT) without ZooKeeper."""
        ...


def in_order(members: Collection[int], *orders: Iterable[int]) -> tuple[int, ...]:
    """The members as they first stand in one of `orders`; those that stand in none come last, by number."""
    return tuple(one for one in dict.fromkeys(chain(*orders, sorted(members))) if one in members)


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """min.insync.replicas, but not more than there are replicas (KAFKA-15583)."""
    return min(min_insync_replicas, replica_count)


def target_elr(before: Set[int], isr: Set[int], min_isr: int, lost: Collection[int] = ()) -> frozenset[int]:
    """The ELR to be written with the new `isr`. `before` are the replicas that were in ISR or ELR; `lost` may have lost
    the end of their logs."""
    return frozenset() if len(isr) >= min_isr else frozenset(before - isr).difference(lost)


def leave_with_lost_tail(broker_id: int, state: IsrState, min_isr: int) -> IsrState | None:
    """The state that a broker writes before it registers, if the end of its log may be lost; None: nothing to write.

    It leaves ISR and ELR, so that no election considers it before it has caught up (KIP-380 leaves that to the
    controller, which may be late). The last member of both stays, but leads under a new epoch: its old one may have had
    other records.
    """
    before = state.isr | state.elr
    others = before - {broker_id}
    led = state.leader == broker_id
    if not others or broker_id not in before:
        if not led:
            return None
        return state._replace(leader=NO_LEADER, leader_epoch=state.leader_epoch + 1)
    isr = state.isr - {broker_id} or others
    state = state._replace(isr=isr, elr=target_elr(before, isr, min_isr, lost=[broker_id]))
    return state._replace(leader=NO_LEADER, leader_epoch=state.leader_epoch + 1) if led else state
