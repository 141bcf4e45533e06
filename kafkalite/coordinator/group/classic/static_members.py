"""The return of a static member: one with a group.instance.id, whose assignment outlives its process.

It gets a new member id, and requests that wait under the old one are fenced. In a stable group it also gets its old
assignment without a rebalance, once the record with the new id is stored; if the record is refused, the old member is
restored.
Source: kafka.coordinator.group.GroupCoordinator (updateStaticMemberAndRebalance, 3.9); KIP-345, KIP-814.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.classic.group_state import COMPLETING, STABLE, ReplacementStored
from kafkalite.coordinator.group.group import JoinResult, SyncResult

if TYPE_CHECKING:
    from kafkalite.common.clock import Moment
    from kafkalite.coordinator.group.classic.members import Member
    from kafkalite.coordinator.group.classic.rebalance import Rebalance
    from kafkalite.coordinator.group.group import JoinRequest
    from kafkalite.coordinator.runtime.effects import Waiter


def replace(
    rebalance: Rebalance,
    member: Member,
    member_id: str,
    request: JoinRequest,
    waiter: Waiter[JoinResult],
    now: Moment,
) -> None:
    """Gives a static member that has returned the new id `member_id`; `waiter` waits for its join."""
    before, leader_id = copy(member), rebalance.members.leader_id or ""
    rebalance.answer_join(member, JoinResult(ErrorCode.FENCED_INSTANCE_ID, before.member_id))
    rebalance.answer_sync(member, SyncResult(ErrorCode.FENCED_INSTANCE_ID))
    rebalance.rename(member, member_id)
    rebalance.members.update(member, request)
    rebalance.barrier.waiters[member_id] = waiter
    rebalance.renew_session(member, now.monotonic_ms)
    if rebalance.state is COMPLETING:  # the leader is assigning partitions to the old id
        rebalance.prepare(now, f"static member {request.instance_id} came back while partitions are assigned")
    elif rebalance.state is STABLE and rebalance.members.select_protocol() != rebalance.protocol_name:
        rebalance.prepare(now, f"static member {request.instance_id} came back with another protocol")
    elif rebalance.state is STABLE:
        then = ReplacementStored(
            rebalance.generation_id, before, member_id, leader_id, request.supports_skipping_assignment
        )
        rebalance.store({each.member_id: each.assignment for each in rebalance.members}, then)


def on_replacement_stored(rebalance: Rebalance, then: ReplacementStored, error: ErrorCode, now_ms: int) -> None:
    """Answers the join of the returned member; with `error` nothing is stored, and it keeps its old id."""
    member = rebalance.members.by_id.get(then.member_id)
    if member is None:
        return
    result = rebalance.join_result(member)
    if error:
        before = then.before
        rebalance.answer_join(member, result._replace(error=error, member_id="", leader_id=then.leader_id, members=()))
        rebalance.rename(member, before.member_id)
        rebalance.members.update(member, before)
    elif then.supports_skipping_assignment:
        leads = member.member_id == rebalance.members.leader_id
        rebalance.answer_join(member, result._replace(skip_assignment=leads))
    else:  # given the old leader's id, an old client does not act as leader and sends no assignment
        rebalance.answer_join(member, result._replace(leader_id=then.leader_id, members=()))
    rebalance.renew_session(member, now_ms)
