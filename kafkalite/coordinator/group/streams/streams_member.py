"""A member of a group of Kafka Streams, as immutable values: what it says of itself, and how far it has come.

Each value is one record of `__consumer_offsets`, so a change of a member is a new value and a record of it.
Source: org.apache.kafka.coordinator.group.streams.{StreamsGroupMember, MemberState} (4.3); KIP-1071.
"""

from __future__ import annotations

from enum import IntEnum

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.streams.tasks import NO_ASSIGNED_TASKS, AssignedTasks

JOINED_EPOCH = 0  # of a member that joins, or begins anew
LEAVING_EPOCH = -1
AWAY_EPOCH = -2  # of a static member that will return, which groups of Kafka Streams do not have yet
NO_TIMEOUT_MS = -1


class StreamsMemberState(IntEnum):
    """The states of a member, by their numbers in records.

        STABLE -> UNREVOKED -> STABLE or UNRELEASED       it gives up before it gets
        UNRELEASED -> UNRELEASED, STABLE or UNREVOKED     it waits for others

    A newer broker may have written another number, which is read as UNKNOWN.
    """

    STABLE = 1  # it has what is meant for it in its epoch
    UNREVOKED = 2  # its client has tasks to give up
    UNRELEASED = 3  # others have not given up what is meant for it
    UNKNOWN = 127

    @classmethod
    def of(cls, number: int) -> StreamsMemberState:
        return cls(number) if number in (1, 2, 3) else cls.UNKNOWN


class Endpoint(NamedTuple):
    """The address at which a client answers interactive queries."""

    host: str
    port: int


class StreamsMetadata(NamedTuple):
    """The facts that a member gives of itself. `process_id` is that of its client, which may have several members."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NO_TIMEOUT_MS
    topology_epoch: int = -1
    process_id: str = ""
    user_endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()  # sorted by key


class CurrentTasks(NamedTuple):
    """How far a member has come. `pending_revocation` are tasks that it still has but must give up."""

    epoch: int = JOINED_EPOCH
    previous_epoch: int = 0
    state: StreamsMemberState = StreamsMemberState.STABLE
    assigned: AssignedTasks = NO_ASSIGNED_TASKS
    pending_revocation: AssignedTasks = NO_ASSIGNED_TASKS

    def advance(
        self,
        epoch: int,
        state: StreamsMemberState,
        assigned: AssignedTasks,
        pending_revocation: AssignedTasks = NO_ASSIGNED_TASKS,
    ) -> CurrentTasks:
        """The next step of the member; its epoch before is accepted once more, for the answer may get lost."""
        return CurrentTasks(epoch, self.epoch, state, assigned, pending_revocation)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is StreamsMemberState.STABLE and self.epoch == epoch


DELETED = CurrentTasks(LEAVING_EPOCH, LEAVING_EPOCH)
"""Of a member without a record of its tasks, which is about to be removed."""


class StreamsMember(NamedTuple):
    """One member."""

    member_id: str
    metadata: StreamsMetadata = StreamsMetadata()
    current: CurrentTasks = CurrentTasks()
