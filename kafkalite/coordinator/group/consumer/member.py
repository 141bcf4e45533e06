"""A member of a consumer group, as immutable values: its subscription, and how far it has come with its assignment.

Each value is one record of `__consumer_offsets`, so a change of a member is a new value and a record of it.
Source: org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember, modern.MemberState (4.3); KIP-848.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.group import Protocols
from kafkalite.coordinator.group.partition_sets import NOTHING_ASSIGNED, AssignedPartitions, assigned_in_epoch

JOINED_EPOCH = 0  # of a member that has not been answered yet
DELETED_EPOCH = -1
AWAY_EPOCH = -2  # of a static member that will return
NO_TIMEOUT_MS = -1


class MemberState(IntEnum):
    """The states of a member, by their numbers in records.

        STABLE -> UNREVOKED -> STABLE or UNRELEASED       it gives up before it gets
        UNRELEASED -> UNRELEASED, STABLE or UNREVOKED     it waits for others

    A newer broker may have written another number, which is read as UNKNOWN.
    """

    STABLE = 0  # it has what is meant for it in its epoch
    UNREVOKED = 1  # its client has partitions to give up
    UNRELEASED = 2  # other members have not given up what is meant for it
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in (0, 1, 2) else cls.UNKNOWN


class ClassicMember(NamedTuple):
    """A member that speaks the classic protocol in a consumer group. The first of `protocols` is the one it uses."""

    session_timeout_ms: int
    protocols: Protocols


class Subscription(NamedTuple):
    """The facts that a member gives of itself. An empty `topic_regex` is none, as is None."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    rebalance_timeout_ms: int = NO_TIMEOUT_MS
    server_assignor: str | None = None
    classic: ClassicMember | None = None  # None: it speaks the consumer protocol


class CurrentAssignment(NamedTuple):
    """How far a member has come. `pending_revocation` are partitions that it still has but must give up."""

    epoch: int = JOINED_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: AssignedPartitions = NOTHING_ASSIGNED
    pending_revocation: AssignedPartitions = NOTHING_ASSIGNED

    def advance(
        self,
        epoch: int,
        state: MemberState,
        assigned: AssignedPartitions,
        pending_revocation: AssignedPartitions = NOTHING_ASSIGNED,
    ) -> CurrentAssignment:
        """The next step of the member; its epoch before is accepted once more, for the answer may get lost."""
        return CurrentAssignment(epoch, self.epoch, state, assigned, pending_revocation)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def away(self) -> CurrentAssignment:
        """The static member left for a while. Commits under its old id are fenced by the epochs of its partitions."""
        return self._replace(
            epoch=AWAY_EPOCH, assigned=assigned_in_epoch(self.assigned, 0), pending_revocation=NOTHING_ASSIGNED
        )


DELETED = CurrentAssignment(DELETED_EPOCH, DELETED_EPOCH)
"""Of a member without a record of its assignment, which is about to be removed."""


class ConsumerMember(NamedTuple):
    """One member of a consumer group."""

    member_id: str
    subscription: Subscription = Subscription()
    current: CurrentAssignment = CurrentAssignment()

    @property
    def is_classic(self) -> bool:
        return self.subscription.classic is not None

    @property
    def instance_id(self) -> str | None:
        return self.subscription.instance_id

    @property
    def regex(self) -> str | None:
        """None without one."""
        return self.subscription.topic_regex or None


class ResolvedRegex(NamedTuple):
    """The topics that a regular expression of the group matched. `version` is that of the broker's view of topics, as
    Kafka's is the offset of its metadata log: no other broker reads it, since a group that was loaded resolves its
    expressions anew. `timestamp_ms` is a date."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int
