"""Who is in a group: its members, the ids that are spoken for, the leader, and what all of them can do.

Only bookkeeping: what follows from a change is decided in `group.py`.
Source: kafka.coordinator.group.{MemberMetadata, GroupMetadata} (3.9); KIP-345 (static members), KIP-394 (pending ids).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.join_results import JoinedMember, JoinWaiter, SyncWaiter
from kafkalite.protocol.records.group_records import GroupMetadataValue, MemberMetadata

Protocols = tuple[tuple[str, bytes], ...]  # (name, metadata), the member's favourite first

NEVER_MS = 1 << 62


class Member:
    """One consumer (or worker, or ...) as the group knows it."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
        "join_waiter",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_deadline_ms",
        "session_timeout_ms",
        "sync_waiter",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id  # a static member has one, and outlives its connections
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment  # opaque: the leader's words for this member
        self.join_waiter: JoinWaiter | None = None  # set: it has joined the generation that is being prepared
        self.sync_waiter: SyncWaiter | None = None
        self.session_deadline_ms = NEVER_MS  # of the monotonic clock
        self.is_new = False  # has never had an answer: it cannot heartbeat, so waiting does not prove that it lives

    @property
    def is_waiting(self) -> bool:
        return self.join_waiter is not None or self.sync_waiter is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What the member said under `protocol_name`; nothing if it does not know that protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""


class Members:
    """The members of one group, in the order in which they came."""

    __slots__ = ("_instances", "_supporters", "awaiting_join_count", "by_id", "leader_id", "pending")

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.pending: dict[str, int] = {}  # ids given out whose owners have not joined with them yet -> deadline
        self.leader_id: str | None = None  # Invariant: a member's id, or None without members
        self.awaiting_join_count = 0  # Invariant: how many members have a join_waiter
        self._instances: dict[str, str] = {}  # instance id -> member id
        self._supporters: Counter[str] = Counter()  # protocol -> how many members know it

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        """Over a copy: whoever iterates may remove."""
        return iter(list(self.by_id.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self.by_id

    # --- coming and going

    def add(self, member: Member) -> None:
        assert member.member_id not in self.by_id
        if member.instance_id is not None:
            assert member.instance_id not in self._instances
            self._instances[member.instance_id] = member.member_id
        self.by_id[member.member_id] = member
        self._count(member.protocols, 1)
        self.pending.pop(member.member_id, None)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Forget the member or the pending id; leads, if it led, whoever has been here longest."""
        self.pending.pop(member_id, None)
        member = self.by_id.pop(member_id, None)
        if member is None:
            return None
        self._count(member.protocols, -1)
        if member.join_waiter is not None:
            self.awaiting_join_count -= 1
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.by_id), None)
        return member

    def update(self, member: Member, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._count(member.protocols, -1)
        self._count(protocols, 1)
        member.protocols = protocols
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def _count(self, protocols: Protocols, step: int) -> None:
        for name in {name for name, _ in protocols}:
            count = self._supporters[name] + step
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back: the same instance under a new id. It keeps its place, and the lead."""
        assert member.instance_id is not None
        old_id = member.member_id
        member.member_id = member_id
        self.by_id = {each.member_id: each for each in self.by_id.values()}
        self._instances[member.instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id

    def park_join(self, member: Member, waiter: JoinWaiter) -> JoinWaiter | None:
        """Let `waiter` wait for the next generation; returns the one that it displaces."""
        displaced, member.join_waiter = member.join_waiter, waiter
        if displaced is None:
            self.awaiting_join_count += 1
        return displaced

    def take_join(self, member: Member) -> JoinWaiter | None:
        waiter, member.join_waiter = member.join_waiter, None
        if waiter is not None:
            self.awaiting_join_count -= 1
        return waiter

    # --- questions

    def id_of_instance(self, instance_id: str | None) -> str | None:
        return None if instance_id is None else self._instances.get(instance_id)

    def fault(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Why whoever says so may not speak for this member; NONE if it may."""
        if instance_id is not None:
            current_id = self._instances.get(instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def all_joined(self) -> bool:
        return self.awaiting_join_count == len(self.by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asked for."""
        return max((max(0, member.rebalance_timeout_ms) for member in self.by_id.values()), default=0)

    def share_one_of(self, protocols: Protocols) -> bool:
        """Whether every member knows one of these protocols."""
        return any(self._supporters[name] == len(self.by_id) for name, _ in protocols)

    def elect_leader(self) -> bool:
        """Keep the leader if it has joined, else take somebody who has. False if nobody has."""
        if self.leader_id is None or self.by_id[self.leader_id].join_waiter is None:
            joined = (member.member_id for member in self.by_id.values() if member.join_waiter is not None)
            leader_id = next(joined, None)
            if leader_id is None:
                return False
            self.leader_id = leader_id
        return True

    def vote(self) -> str:
        """The protocol with the most votes; each member votes for its favourite among those that all know.

        Ties go to the protocol that was voted for first.
        """
        common = {name for name, count in self._supporters.items() if count == len(self.by_id)}
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in self.by_id.values())
        return votes.most_common(1)[0][0]

    def described_to_leader(self, protocol_name: str | None) -> list[JoinedMember]:
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self.by_id.values()
        ]

    # --- on disk

    def as_records(self, protocol_name: str | None, assignments: Mapping[str, bytes]) -> list[MemberMetadata]:
        return [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(protocol_name),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in self.by_id.values()
        ]

    def restore(self, value: GroupMetadataValue) -> None:
        """Take in the members of `value`; one that is stored twice counts once."""
        for each in value.members:
            if each.member_id in self.by_id or each.group_instance_id in self._instances:
                continue
            member = Member(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_timeout,
                each.session_timeout,
                ((value.protocol or "", each.subscription),),
                each.assignment,
            )
            self.add(member)
        if value.leader in self.by_id:
            self.leader_id = value.leader
