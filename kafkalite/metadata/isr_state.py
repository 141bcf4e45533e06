"""A partition's in-sync replicas as its state node has them, and a leader's conditional write of them, as values.

    state = await metadata.read_isr("orders", 3)
    outcome = await metadata.write_isr("orders", 3, WriteIsr(isr, elr, state.partition_epoch, registrations))

Source: kafka.api.LeaderAndIsr, kafka.server.ZkAlterPartitionManager; KIP-497, KIP-841, KIP-903, KIP-966 (`elr`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from itertools import chain
from typing import NamedTuple


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


def in_order(members: Collection[int], *orders: Iterable[int]) -> tuple[int, ...]:
    """The members as they first stand in one of `orders`; those that stand in none come last, by number."""
    return tuple(one for one in dict.fromkeys(chain(*orders, sorted(members))) if one in members)
