"""The values of elections: a partition's leader and ISR as its state node has them, and the brokers of a cluster.

`IsrState` (metadata) is the same without an order of the members and without recovery: decisions about an ISR are
made in it.
Source: kafka.api.LeaderAndIsr, org.apache.kafka.metadata.LeaderRecoveryState.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.metadata.isr_state import IsrState, in_order
from kafkalite.zk.client.operations import ANY_VERSION
from kafkalite.zk.znodes.znode_data import RECOVERED, RECOVERING

LiveBrokers = Mapping[int, int]
"""The live brokers by id, each with its epoch: the transaction id of its registration."""


class LeaderAndIsr(NamedTuple):
    """Invariant: `isr` is never empty; `leader` is in it or NO_LEADER; `leader_epoch` never goes back."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery: int = RECOVERED
    elr: tuple[int, ...] = ()  # replicas besides the ISR that may be elected (KIP-966)

    @property
    def isr_state(self) -> IsrState:
        return IsrState(self.leader, self.leader_epoch, frozenset(self.isr), frozenset(self.elr), ANY_VERSION)

    def followed_by(self, after: IsrState, replicas: Sequence[int]) -> LeaderAndIsr:
        """`after` as the next state. Members keep their places. A leader that may lack committed records has to recover
        (KIP-704)."""
        order = (*self.isr, *self.elr, *replicas)
        return LeaderAndIsr(
            after.leader,
            after.leader_epoch,
            in_order(after.isr, order),
            RECOVERING if self.would_be_unclean(after.leader) else self.recovery,
            in_order(after.elr, order),
        )

    def would_be_unclean(self, leader: int) -> bool:
        """Whether `leader` may lack committed records: it is neither in sync nor eligible."""
        return leader not in (NO_LEADER, *self.isr, *self.elr)


class Brokers(NamedTuple):
    """The brokers of a cluster as an election sees them. `stopping` ones live, and are about to leave; `intact` ones
    have vouched at their registration that their logs are as they left them."""

    live: LiveBrokers
    stopping: frozenset[int] = frozenset()
    intact: frozenset[int] = frozenset()
