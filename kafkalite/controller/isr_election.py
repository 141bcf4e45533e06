"""Elects leaders among the in-sync replicas of a partition, and takes absent ones out of the ISR. Pure.

A member of the ISR is *present* if it has been registered since before the state was written. A broker that registered
later was away in between (it "bounced") and may have lost the end of its log, so it leaves the ISR as a dead one does.
A state that was written by somebody who did not know of the bounce yet would hide it, so a broker whose log may have
lost its end leaves the ISR by a write of its own before it registers ("A lost tail" in docs/replication.md). Kafka's
controller remembers broker epochs instead and treats a bounce as a death and a start (KIP-380), which a new controller
cannot do.

An ISR is never emptied. If no member is present, the absent ones stay: nothing was committed without any of them, and
nobody knows who was the last. A member is elected then that is back and vouches for its log: it is `intact`, neither a
disk nor the page cache was lost. Without such a member the partition waits until all members are back, since one that
is away may have what another one lost, and the former leader is elected. Kafka takes dead replicas out one after
another, keeps the one that comes last, and elects whoever is back, which may have lost committed records.

The leader epoch grows with every change of the leader, and when a leader that bounced is elected again. It stays when
only the ISR shrinks: a leader reads the new ISR from ZooKeeper, and counts who was taken out as not caught up. Kafka's
brokers ignore a state with an epoch that they know, so its controller raises it for every change.

Brokers that are about to stop are present, but are not elected while another member is, and leave the ISR early.
Source: kafka.controller.Election, PartitionLeaderElectionAlgorithms, ReplicaStateMachine (OfflineReplica),
KafkaController.checkAndTriggerAutoLeaderRebalance; KIP-380, KIP-841.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from kafkalite.common.names import TopicPartition
from kafkalite.controller.leader_and_isr import LeaderAndIsr, LiveBrokers
from kafkalite.metadata.cluster_metadata import NO_LEADER
from kafkalite.zk.znodes.znode_data import RECOVERING


class Members(NamedTuple):
    """The ISR of a state, sorted by what is known of its members now, each in the order of the ISR. `ready` members
    are present and stay; `stopping` ones are present still; `returned` ones live, but have been away; `absent` ones do
    not live."""

    ready: tuple[int, ...]
    stopping: tuple[int, ...]
    returned: tuple[int, ...]
    absent: tuple[int, ...]


def members(
    replicas: Sequence[int], state: LeaderAndIsr, written_by: int, live: LiveBrokers, stopping: Collection[int] = ()
) -> Members:
    """`written_by` is the transaction that wrote `state`. A member that is no replica any more does not count."""
    isr = [one for one in state.isr if one in replicas]
    present = [one for one in isr if one in live and live[one] < written_by]
    away = [one for one in isr if one not in present]
    return Members(
        tuple(one for one in present if one not in stopping),
        tuple(one for one in present if one in stopping),
        tuple(one for one in away if one in live),
        tuple(one for one in away if one not in live),
    )


def initial_leader(
    replicas: Sequence[int], live: LiveBrokers, leader_epoch: int = 0, stopping: Collection[int] = ()
) -> LeaderAndIsr | None:
    """For a partition that has no state: all live replicas are in sync, for there are no records yet. None if no
    replica lives; nothing is written then."""
    isr = tuple(replica for replica in replicas if replica in live and replica not in stopping)
    return LeaderAndIsr(isr[0], leader_epoch, isr) if isr else None


def next_leader(
    replicas: Sequence[int],
    state: LeaderAndIsr,
    written_by: int,
    live: LiveBrokers,
    unclean: bool = False,
    stopping: Collection[int] = (),
    intact: Collection[int] = (),
) -> LeaderAndIsr | None:
    """The state to be written because brokers came, went, or are about to stop; None if it may stay as it is. `intact`
    brokers have vouched at their registration that their logs are as they left them. With `unclean` a live replica that
    may lack committed records is better than none; one that is not in sync is marked as recovering."""
    known = members(replicas, state, written_by, live, stopping)
    if state.leader in known.ready or (state.leader in known.stopping and not known.ready):
        isr = tuple(one for one in state.isr if one in known.ready or one == state.leader)
        return None if isr == state.isr else state._replace(isr=isr)
    if known.ready:
        return _elected(_first(replicas, known.ready), state, known.ready)
    if known.stopping:  # better than none until it is gone
        return _elected(_first(replicas, known.stopping), state, known.stopping)
    vouching = tuple(one for one in known.returned if one in intact)
    if vouching:
        return _elected(_first(replicas, [one for one in vouching if one not in stopping] or vouching), state, vouching)
    if known.returned and (unclean or not known.absent):
        leader = state.leader if state.leader in known.returned else known.returned[0]
        return _elected(leader, state, (leader,))
    if unclean:
        anyone = [one for one in replicas if one in live and one not in stopping]
        if anyone:
            return LeaderAndIsr(anyone[0], state.leader_epoch + 1, (anyone[0],), RECOVERING)
    if state.leader == NO_LEADER:
        return None
    # this write is later than the registrations of those who are back, so they would count as present if they stayed
    stay = known.absent or state.isr
    former_first = sorted(stay, key=lambda one: one != state.leader)  # it had the longest log
    return _elected(NO_LEADER, state, tuple(former_first))


def preferred_leader(
    replicas: Sequence[int], state: LeaderAndIsr, written_by: int, live: LiveBrokers, stopping: Collection[int] = ()
) -> LeaderAndIsr | None:
    """The first replica leads, if it does not yet and is a ready member of the ISR; else None."""
    preferred = replicas[0] if replicas else NO_LEADER
    ready = members(replicas, state, written_by, live, stopping).ready
    return None if preferred == state.leader or preferred not in ready else _elected(preferred, state, ready)


def imbalanced(
    leaders: Mapping[TopicPartition, tuple[Sequence[int], int]], live: Collection[int], percentage: int
) -> Iterator[TopicPartition]:
    """The partitions that are to be led by their preferred replicas again: those of each live broker of whose preferred
    partitions more than `percentage` are led by others (leader.imbalance.per.broker.percentage). `leaders` has the
    replicas and the leader of each partition; whether the preferred one is in sync shows at its election."""
    preferring: dict[int, list[TopicPartition]] = {}
    for key, (replicas, _) in leaders.items():
        if replicas:
            preferring.setdefault(replicas[0], []).append(key)
    for broker_id, keys in preferring.items():
        elsewhere = [key for key in keys if leaders[key][1] != broker_id]
        if broker_id in live and len(elsewhere) * 100 > percentage * len(keys):
            yield from elsewhere


def _first(replicas: Sequence[int], candidates: Collection[int]) -> int:
    return next(replica for replica in replicas if replica in candidates)


def _elected(leader: int, state: LeaderAndIsr, isr: tuple[int, ...]) -> LeaderAndIsr:
    return LeaderAndIsr(leader, state.leader_epoch + 1, isr, state.recovery)
