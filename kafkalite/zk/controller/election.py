"""Elects the leader of a partition, and takes absent brokers out of its ISR. Pure.

    no state yet     all live replicas are in sync, and the first one leads
    from the ISR     a member that is present; the leader stays if it is
    from the ELR     a replica that left the ISR while it was below min.insync.replicas has every committed record
    unclean          any live replica, if that is allowed; it may lack committed records

A member of the ISR is *present* if it has been registered since before the state was written. A broker that registered
later was away in between (it "bounced") and may have lost the end of its log, so it leaves the ISR as a dead one does.
A state whose writer did not know of the bounce yet would hide it, so a broker whose log may have
lost its end leaves ISR and ELR by a write of its own before it registers ("A lost tail" in docs/replication.md).
Kafka's controller remembers broker epochs instead and treats a bounce as a death and a start (KIP-380), which a new
controller cannot do.

An ISR is never emptied. If no member is present, the absent ones stay: nothing was committed without any of them, and
the last one is unknown. Then a returned member is elected whose registration says `intact`: it lost neither a disk nor
the page cache. Without such a member the partition waits until all members are back, since an absent one may have
records that another one lost, and the former leader is elected. Kafka takes dead replicas out one after another, keeps
the last one, and elects any member that is back, which may have lost committed records.

A new controller takes the states of partitions with a single replica as it finds them, if the leader is there and
intact; for a moment it awaits leaders that it has not seen yet. So brokers of one machine that stop and start together
need no elections of partitions that one of them has alone. Kafka's new controller keeps leaders that live as well, and
elects the others when they register.

The leader epoch grows with every change of the leader, and when a leader that bounced is elected again. It stays when
only the ISR shrinks: a leader reads the new ISR from ZooKeeper, and counts removed members as not caught up. Kafka's
brokers ignore a state with an epoch that they know, so its controller raises it for every change.

Brokers that are about to stop are present, but are not elected while another member is, and leave the ISR early.
Source: kafka.api.LeaderAndIsr, kafka.controller.Election, PartitionLeaderElectionAlgorithms, ReplicaStateMachine
(OfflineReplica); org.apache.kafka.metadata.LeaderRecoveryState; KIP-380, KIP-704, KIP-841, KIP-966.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import Election
from kafkalite.metadata.partition_state import effective_min_isr, in_order, target_elr
from kafkalite.zk.znodes.znode_data import RECOVERED, RECOVERING


class LeaderAndIsr(NamedTuple):
    """A partition's leader and ISR as its state node has them. `elr` are replicas besides the ISR that may be elected.

    Invariant: `isr` is never empty; `leader` is in it or NO_LEADER; `leader_epoch` never goes back.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    recovery: int = RECOVERED
    elr: tuple[int, ...] = ()

    def would_be_unclean(self, leader: int) -> bool:
        """Whether `leader` may lack committed records: it is neither in sync nor eligible."""
        return leader not in (NO_LEADER, *self.isr, *self.elr)

    def with_leader(self, leader: int, isr: tuple[int, ...]) -> LeaderAndIsr:
        """The state after the election of `leader`."""
        return self._replace(leader=leader, leader_epoch=self.leader_epoch + 1, isr=isr)


class Brokers(NamedTuple):
    """The brokers of a cluster, for an election. `live` has the epoch of each: the transaction id of its registration.
    `stopping` ones are alive, and about to leave; `intact` ones had complete logs when they registered."""

    live: Mapping[int, int]
    stopping: Collection[int] = frozenset()
    intact: Collection[int] = frozenset()


class Members(NamedTuple):
    """The ISR of a state, divided by the present state of its members, each in the order of the ISR. `ready` members
    are present and stay; `stopping` ones are still present; `returned` ones are alive, but have been away; `absent`
    ones are not alive.
    """

    ready: tuple[int, ...]
    stopping: tuple[int, ...]
    returned: tuple[int, ...]
    absent: tuple[int, ...]


def members(replicas: Sequence[int], isr: Sequence[int], written_by: int, brokers: Brokers) -> Members:
    """`written_by` is the transaction that wrote the state. A member that is no replica any more does not count."""
    live, stopping, _ = brokers
    isr = [one for one in isr if one in replicas]
    present = [one for one in isr if one in live and live[one] < written_by]
    away = [one for one in isr if one not in present]
    return Members(
        tuple(one for one in present if one not in stopping),
        tuple(one for one in present if one in stopping),
        tuple(one for one in away if one in live),
        tuple(one for one in away if one not in live),
    )


def initial_state(replicas: Sequence[int], brokers: Brokers, leader_epoch: int) -> LeaderAndIsr | None:
    """For a partition that has no state: all live replicas are in sync, for there are no records yet. None if no
    replica lives; nothing is written then."""
    isr = tuple(replica for replica in replicas if replica in brokers.live and replica not in brokers.stopping)
    return LeaderAndIsr(isr[0], leader_epoch, isr) if isr else None


def is_kept_by_new_controller(
    replicas: Sequence[int], state: LeaderAndIsr, brokers: Brokers, first_epochs: Mapping[int, int], *, awaits: bool
) -> bool:
    """Whether the state may stay though its leader was away: the leader is the only replica, so no other has copied a
    record, and this controller has seen no other life of it. The leader is there with all of its log, or the controller
    `awaits` it. `first_epochs` has the epochs under which the controller has seen brokers first."""
    leader = state.leader
    if len(replicas) != 1 or replicas[0] != leader or state.isr != (leader,) or state.elr:
        return False
    if leader in brokers.live:
        return leader in brokers.intact and first_epochs.get(leader) == brokers.live[leader]
    return awaits and leader not in first_epochs


def elect(
    replicas: Sequence[int],
    state: LeaderAndIsr,
    written_by: int,
    brokers: Brokers,
    min_insync_replicas: int,
    election: Election | None = None,
) -> LeaderAndIsr | None:
    """The state to be written because brokers have registered, failed, or are about to stop; None if it may stay.

    UNCLEAN prefers a live replica that may lack committed records to none, and marks it as recovering (KIP-704).
    PREFERRED is None unless the first replica becomes the leader.
    """
    known = members(replicas, state.isr, written_by, brokers)
    preferred = replicas[0] if replicas else NO_LEADER
    if election is Election.PREFERRED and preferred in known.ready:
        after = state.with_leader(preferred, known.ready) if preferred != state.leader else None
    else:
        after = _from_isr(replicas, state, known, brokers, is_unclean=False)
    if (after or state).leader == NO_LEADER:
        live = [one for one in replicas if one in brokers.live and one not in brokers.stopping]
        eligible = next((one for one in live if one in state.elr), None)
        if eligible is not None:
            after = state.with_leader(eligible, (eligible,))
        elif election is Election.UNCLEAN:
            after = _from_isr(replicas, state, known, brokers, is_unclean=True) or after
    if after is None:
        return None
    if election is Election.PREFERRED and (after.leader == state.leader or after.leader not in replicas[:1]):
        return None
    lost = [one for one, epoch in brokers.live.items() if epoch > written_by and one not in brokers.intact]
    least = effective_min_isr(min_insync_replicas, len(replicas))
    elr = target_elr({*state.isr, *state.elr}, {*after.isr}, least, lost)
    return after._replace(
        elr=in_order(elr, state.isr, state.elr, replicas),
        recovery=RECOVERING if state.would_be_unclean(after.leader) else state.recovery,
    )


def _from_isr(
    replicas: Sequence[int], state: LeaderAndIsr, known: Members, brokers: Brokers, *, is_unclean: bool
) -> LeaderAndIsr | None:
    if state.leader in known.ready or (state.leader in known.stopping and not known.ready):
        isr = tuple(one for one in state.isr if one in known.ready or one == state.leader)
        return None if isr == state.isr else state._replace(isr=isr)
    vouching = tuple(one for one in known.returned if one in brokers.intact)
    if candidates := (*known.ready, *known.stopping) or vouching:
        stay = tuple(one for one in candidates if one not in brokers.stopping)
        leader = _first(replicas, stay or candidates)  # a stopping one is better than none until it is gone
        return state.with_leader(leader, stay or (leader,))
    if known.returned and (is_unclean or not known.absent):
        leader = state.leader if state.leader in known.returned else known.returned[0]
        return state.with_leader(leader, (leader,))
    if is_unclean:
        live = [one for one in replicas if one in brokers.live and one not in brokers.stopping]
        if live:
            return state.with_leader(live[0], (live[0],))
    if state.leader == NO_LEADER:
        return None
    # this write is later than the registrations of returned members, so they would count as present if they stayed
    absent = known.absent or state.isr
    former_first = sorted(absent, key=lambda one: one != state.leader)  # it had the longest log
    return state.with_leader(NO_LEADER, tuple(former_first))


def _first(replicas: Sequence[int], candidates: Collection[int]) -> int:
    return next(replica for replica in replicas if replica in candidates)
