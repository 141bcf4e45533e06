"""Share groups (KIP-932) of a test's broker: `broker.share_group("workers")`.

    group = broker.share_group("workers")
    group.acquired                      # records that members hold, with their delivery counts and the ends of locks
    group.expire_locks()                # as if the members had kept them for too long: they become available again
    assert (group.acknowledged, group.archived) == (10, 1)

A broker knows the groups that it coordinates and the partitions that it leads; `cluster.share_group("workers")` takes
each from the broker that knows it. Records are counted since the broker leads their partition, and no further back than
its start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kafkalite.common.clock import Moment
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.group.group import SHARE
from kafkalite.coordinator.share_coordinator import text_of
from kafkalite.replication.share.durable_state import UNKNOWN_OFFSET, SharePartitionKey
from kafkalite.replication.share.in_flight import ACQUIRED, TERMINAL, Run, ShareCounts, is_pending, state_name
from kafkalite.replication.share.share_partitions import LATEST
from kafkalite.testing.maintenance import GroupDescription, MemberDescription, describe_groups
from kafkalite.testing.records.stored_record import stored_records

if TYPE_CHECKING:
    from uuid import UUID

    from kafkalite.replication.share.share_partitions import SharePartitions
    from kafkalite.server.broker_server import BrokerServer

NO_GROUP = "Dead"
_NEVER_MS = -1 << 63


class InFlightRecord(NamedTuple):
    """One offset from the start offset of a share partition up to the last that was acquired.

    `state` is available, acquired, acknowledged or archived. `member_id`, `acquired_at` and `locked_until` (by the
    broker's clock, in UTC) are None unless a member holds it. An offset without a record, such as that of a
    transaction marker, is in flight as any other.
    """

    topic: str
    partition: int
    offset: int
    state: str
    delivery_count: int
    member_id: str | None
    acquired_at: datetime | None
    locked_until: datetime | None


class SharePartitionDescription(NamedTuple):
    """One partition as the group reads it. `start_offset` is None before the first fetch; `in_flight` is by offset.
    `acknowledged`, `archived` and `lock_timeouts` are numbers of records: accepted, given up for any reason, and those
    whose lock was over before their member acknowledged them."""

    start_offset: int | None
    in_flight: tuple[InFlightRecord, ...]
    acknowledged: int
    archived: int
    lock_timeouts: int


class ShareGroupDescription(NamedTuple):
    """One group at one moment. `state` is Stable, Empty, or Dead if there is no such group; `epoch` the group epoch."""

    group_id: str
    state: str
    epoch: int
    members: tuple[MemberDescription, ...]
    partitions: dict[TopicPartition, SharePartitionDescription]


class ShareGroupView(ABC):
    """The parts of a description, each as it is now."""

    @abstractmethod
    def describe(self) -> ShareGroupDescription:
        """All of it at one moment. Raises ValueError for a group of another kind."""

    @property
    def state(self) -> str:
        return self.describe().state

    @property
    def members(self) -> tuple[MemberDescription, ...]:
        return self.describe().members

    @property
    def start_offsets(self) -> dict[TopicPartition, int | None]:
        return {key: each.start_offset for key, each in self.describe().partitions.items()}

    @property
    def in_flight(self) -> list[InFlightRecord]:
        """Of all partitions, in any state."""
        return [record for each in self.describe().partitions.values() for record in each.in_flight]

    @property
    def acquired(self) -> list[InFlightRecord]:
        """Records that members hold."""
        return [record for record in self.in_flight if record.member_id is not None]

    @property
    def acknowledged(self) -> int:
        """The number of records that were accepted."""
        return sum(each.acknowledged for each in self.describe().partitions.values())

    @property
    def archived(self) -> int:
        """The number of records that will not be delivered again though none accepted them."""
        return sum(each.archived for each in self.describe().partitions.values())


class AsyncShareGroup(ShareGroupView):
    """One share group of a test's broker in its own event loop, which may not exist yet."""

    def __init__(self, server: Callable[[], BrokerServer], group_id: str) -> None:
        self.group_id = group_id
        self._server = server

    def __repr__(self) -> str:
        return f"AsyncShareGroup({self.group_id!r})"

    def describe(self) -> ShareGroupDescription:
        return describe(self._server(), self.group_id)

    def expire_locks(self) -> int:
        """End all locks of the group now: the records are available again, or archived if they were delivered as often
        as they may be. Time does not pass, unlike with `clock.advance`. Returns how many records were locked."""
        shares = _shares(self._server())
        return sum(led.expire_locks() for led in shares or () if led.key.group_id == self.group_id)


class ShareGroup(ShareGroupView):
    """An `AsyncShareGroup` for threads other than its broker's. `call` runs a function on the broker's loop."""

    def __init__(self, group: AsyncShareGroup, call: Callable[[Callable[[], Any]], Any]) -> None:
        self.asynchronous = group
        self._call = call

    def __repr__(self) -> str:
        return f"ShareGroup({self.asynchronous.group_id!r})"

    def describe(self) -> ShareGroupDescription:
        described: ShareGroupDescription = self._call(self.asynchronous.describe)
        return described

    def expire_locks(self) -> int:
        """As `AsyncShareGroup.expire_locks`."""
        count: int = self._call(self.asynchronous.expire_locks)
        return count


class ClusterShareGroup(ShareGroupView):
    """One share group of a cluster. `groups` are what the running brokers have of it, by broker; `leader_of` gives the
    broker that leads a partition."""

    def __init__(
        self,
        group_id: str,
        groups: Callable[[], Mapping[int, ShareGroup]],
        leader_of: Callable[[str, int], int | None],
    ) -> None:
        self.group_id = group_id
        self._groups = groups
        self._leader_of = leader_of

    def __repr__(self) -> str:
        return f"ClusterShareGroup({self.group_id!r})"

    def describe(self) -> ShareGroupDescription:
        """Each broker's part is of one moment, those of several are not."""
        parts = {broker_id: group.describe() for broker_id, group in self._groups().items()}
        known = [each for each in parts.values() if each.state != NO_GROUP]
        whole = known[0] if known else ShareGroupDescription(self.group_id, NO_GROUP, 0, (), {})
        partitions: dict[TopicPartition, SharePartitionDescription] = {}
        for broker_id, part in parts.items():
            for where, found in part.partitions.items():
                if where not in partitions or self._leader_of(*where) == broker_id:
                    partitions[where] = found
        return whole._replace(partitions=dict(sorted(partitions.items())))

    def expire_locks(self) -> int:
        """As `AsyncShareGroup.expire_locks`, on all brokers."""
        return sum(group.expire_locks() for group in self._groups().values())


def describe(server: BrokerServer, group_id: str) -> ShareGroupDescription:
    group = _group(server, group_id)
    clock = server.clock
    now = Moment(clock.monotonic_ms(), clock.wall_ms())
    keys = sorted(_keys(server, group_id), key=lambda each: each[1])
    partitions = {where: _partition(server, where, key, now) for key, where in keys}
    if group is None:
        return ShareGroupDescription(group_id, NO_GROUP, 0, (), partitions)
    return ShareGroupDescription(group_id, group.state, group.generation, group.members, partitions)


def _group(server: BrokerServer, group_id: str) -> GroupDescription | None:
    """Raises ValueError for a group of another kind."""
    group = describe_groups(server).get(group_id)
    if group is not None and group.kind != SHARE:
        raise ValueError(f"group {group_id!r} is no share group, but of kind {group.kind}")
    return group


def _keys(server: BrokerServer, group_id: str) -> Iterable[tuple[SharePartitionKey, TopicPartition]]:
    """The share partitions of the group: those that its coordinator has begun, and those that are in use here."""
    wanted: set[tuple[UUID, int]] = set()
    if group_id in server.groups.store.by_id:
        begun = server.groups.share_groups.initialized(group_id)
        wanted.update((topic_id, index) for topic_id, indexes in begun.items() for index in indexes)
    wanted.update(led.key[1:] for led in _shares(server) or () if led.key.group_id == group_id)
    for topic_id, index in wanted:
        topic = server.replica_manager.by_id.get(topic_id)
        if topic is not None:
            yield SharePartitionKey(group_id, topic_id, index), (topic.name, index)


def _shares(server: BrokerServer) -> SharePartitions | None:
    used = server.apis.shares.used_fetches
    return None if used is None else used.shares


def _partition(
    server: BrokerServer, where: TopicPartition, key: SharePartitionKey, now: Moment
) -> SharePartitionDescription:
    start_offset, runs = _runs(server, key)
    counts = ShareCounts()
    if (shares := _shares(server)) is not None:
        counts = shares.counts_of(key) or counts
    records = tuple(record for run in runs for record in _records(where, run, start_offset, now))
    known = None if start_offset == UNKNOWN_OFFSET else start_offset
    return SharePartitionDescription(known, records, counts.acknowledged, counts.archived, counts.lock_timeouts)


def _runs(server: BrokerServer, key: SharePartitionKey) -> tuple[int, list[Run]]:
    """The start offset and what is in flight: as the leader has it if it is in use, else the share coordinator."""
    led = next((led for led in _shares(server) or () if led.key == key), None)
    if led is not None and led.state is not None:
        return led.state.start_offset, list(led.state.records.runs())
    stored = server.coordinators.shares.store.by_id.get(text_of(key))
    if stored is None or stored.state is None:
        return UNKNOWN_OFFSET, []
    ranges = stored.state.ranges
    return stored.state.start_offset, [Run(first, last, state, count, None) for first, last, state, count in ranges]


def _records(where: TopicPartition, run: Run, start_offset: int, now: Moment) -> Iterable[InFlightRecord]:
    lock = run.lock if run.state == ACQUIRED or is_pending(run.state) else None
    member_id = acquired_at = locked_until = None
    if lock is not None:
        member_id = lock.member_id
        acquired_at, locked_until = _date(lock.acquired_ms, now), _date(lock.deadline_ms, now)
    for offset in range(max(run.first, start_offset), run.last + 1):
        state = state_name(run.state)
        yield InFlightRecord(*where, offset, state, run.delivery_count, member_id, acquired_at, locked_until)


def _date(monotonic_ms: int, now: Moment) -> datetime:
    return datetime.fromtimestamp((now.wall_ms + monotonic_ms - now.monotonic_ms) / 1000, UTC)


def lag(server: BrokerServer, group_id: str, topic: str | None, isolation: str) -> int:
    """The number of records that members of the group will still get, those included that they hold."""
    count = 0
    for key, where in _keys(server, group_id):
        partition = server.replica_manager.partition(*where)
        if partition is None or topic not in (None, where[0]):
            continue
        start_offset, runs = _runs(server, key)
        since_ms = _NEVER_MS
        if start_offset == UNKNOWN_OFFSET:
            begins_at = server.coordinators.share_reading(group_id).begins_at
            if begins_at == LATEST:
                continue
            since_ms = server.clock.wall_ms() - begins_at if isinstance(begins_at, int) else _NEVER_MS
        done = {offset for run in runs if run.state in TERMINAL for offset in range(run.first, run.last + 1)}
        records = stored_records(partition, max(start_offset, 0), isolation)
        count += sum(record.offset not in done and record.timestamp >= since_ms for record in records)
    return count
