"""The rules by which leaders are elected: THE SWITCH.

As long as `REPLICATES` (metadata.replica_assignment) is false, brokers do not copy records, each partition has one
replica with the records, and the rules are those of `leader_election`; then those of `isr_election`. They may be turned
on when every writer of a state checks the registrations of the members that it keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkalite.controller import isr_election, leader_election
from kafkalite.controller.leader_election import LeaderAndIsr, LiveBrokers
from kafkalite.metadata.replica_assignment import REPLICATES

Replicas = Sequence[int]


class Elections(NamedTuple):
    """The functions of that name in the two modules."""

    initial_leader: Callable[[Replicas, LiveBrokers, int], LeaderAndIsr | None]
    next_leader: Callable[[Replicas, LeaderAndIsr, int, LiveBrokers, bool], LeaderAndIsr | None]
    preferred_leader: Callable[[Replicas, LeaderAndIsr, int, LiveBrokers], LeaderAndIsr | None]


ONE_REPLICA = Elections(leader_election.initial_leader, leader_election.next_leader, leader_election.preferred_leader)
IN_SYNC_REPLICAS = Elections(isr_election.initial_leader, isr_election.next_leader, isr_election.preferred_leader)

ELECTIONS = IN_SYNC_REPLICAS if REPLICATES else ONE_REPLICA
