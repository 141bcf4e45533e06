"""The members of a group: their ids and pending ids, the leader, and the protocols that they support.

Data only: `classic_group.py` decides the consequences of a change.
Source: kafka.coordinator.group.{MemberMetadata, GroupMetadata} (3.9); KIP-345 (static members), KIP-394 (pending ids).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping

from kafkalite.common.errors import ErrorCode
from kafkalite.coordinator.group.group import JoinedMember, JoinRequest, MemberDescription, Protocols, SyncResult
from kafkalite.coordinator.runtime.effects import Waiter
from kafkalite.protocol.records import GroupMetadataValue, MemberMetadata

NEVER_MS = 1 << 62


class Member:
    """One member of a group: a consumer, or a worker of another protocol type."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "instance_id",
        "is_new",
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
        self.instance_id = instance_id  # of a static member, which outlives its connections; else None
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment  # opaque bytes that the leader computed
        self.sync_waiter: Waiter[SyncResult] | None = None
        self.session_deadline_ms = NEVER_MS  # of the monotonic clock
        self.is_new = False  # its first join is not answered yet: until then it cannot heartbeat

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for `protocol_name`; empty if it does not support that protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def describe(self, protocol_name: str | None) -> MemberDescription:
        began_ms = None if self.session_deadline_ms == NEVER_MS else self.session_deadline_ms - self.session_timeout_ms
        return MemberDescription(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            self.metadata(protocol_name),
            self.assignment,
            began_ms,
        )


class Members:
    """The members of one group, in the order in which they were added."""

    __slots__ = ("_instances", "_supporters", "by_id", "leader_id", "pending")

    def __init__(self) -> None:
        self.by_id: dict[str, Member] = {}
        self.pending: dict[str, int] = {}  # id given to a client that has not joined with it yet -> deadline
        self.leader_id: str | None = None  # Invariant: a member's id, or None without members
        self._instances: dict[str, str] = {}  # instance id -> member id
        self._supporters: Counter[str] = Counter()  # protocol -> how many members support it

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[Member]:
        """Over a copy: members may be removed during the iteration."""
        return iter(list(self.by_id.values()))

    def __contains__(self, member_id: object) -> bool:
        return member_id in self.by_id

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
        """Remove the member or the pending id. If it was the leader, the oldest member becomes leader."""
        self.pending.pop(member_id, None)
        member = self.by_id.pop(member_id, None)
        if member is None:
            return None
        self._count(member.protocols, -1)
        if member.instance_id is not None:
            del self._instances[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.by_id), None)
        return member

    def update(self, member: Member, request: JoinRequest | Member) -> None:
        """Copy the protocols and timeouts of `request`, or of an earlier copy of the member."""
        self._count(member.protocols, -1)
        self._count(request.protocols, 1)
        member.protocols = request.protocols
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms

    def _count(self, protocols: Protocols, step: int) -> None:
        for name in {name for name, _ in protocols}:
            count = self._supporters[name] + step
            if count:
                self._supporters[name] = count
            else:
                del self._supporters[name]

    def rename(self, member: Member, member_id: str) -> None:
        """Give a returning static member its new id. It keeps its place, and leadership if it was the leader."""
        assert member.instance_id is not None
        old_id = member.member_id
        member.member_id = member_id
        self.by_id = {each.member_id: each for each in self.by_id.values()}
        self._instances[member.instance_id] = member_id
        if self.leader_id == old_id:
            self.leader_id = member_id

    def id_of_instance(self, instance_id: str | None) -> str | None:
        return None if instance_id is None else self._instances.get(instance_id)

    def validate(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """The error for a request that names this member; NONE if the member exists and is not fenced."""
        if instance_id is not None:
            current_id = self._instances.get(instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.by_id else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member."""
        return max((max(0, member.rebalance_timeout_ms) for member in self.by_id.values()), default=0)

    def support_one_of(self, protocols: Protocols) -> bool:
        """Whether all members support one of these protocols."""
        return any(self._supporters[name] == len(self.by_id) for name, _ in protocols)

    def elect_leader(self, joined: Container[str]) -> bool:
        """Keep the leader if it has joined, else elect the oldest member that has. False if none has."""
        if self.leader_id not in joined:
            leader_id = next((member_id for member_id in self.by_id if member_id in joined), None)
            if leader_id is None:
                return False
            self.leader_id = leader_id
        return True

    def select_protocol(self) -> str:
        """The protocol with the most votes: each member votes for its most preferred one that all members support.

        With equal votes, the protocol that was voted for first.
        """
        common = {name for name, count in self._supporters.items() if count == len(self.by_id)}
        votes = Counter(next(name for name, _ in member.protocols if name in common) for member in self.by_id.values())
        return votes.most_common(1)[0][0]

    def metadata(self, protocol_name: str | None) -> list[JoinedMember]:
        return [
            JoinedMember(member.member_id, member.instance_id, member.metadata(protocol_name))
            for member in self.by_id.values()
        ]

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
        """Add the members of `value`. A member that is stored twice is added once."""
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
