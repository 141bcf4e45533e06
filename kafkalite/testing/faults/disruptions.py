"""Disruptions from outside: a producer that takes over a transactional.id, a group that rebalances, a session that
ends, on the broker's loop through its coordinators; and a power cut.

A power cut drops all writes that were not fsynced. By default these are the whole last segments: Kafka and kafkalite
leave fsync to the system, unless flush.messages or flush.ms are set.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from kafkalite.common.errors import ErrorCode
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.coordinator.group.consumer.consumer_group import ConsumerGroup
from kafkalite.coordinator.group.group import SHARE, STREAMS, GroupDescription, JoinRequest
from kafkalite.coordinator.group.share.share_group import LEAVING_EPOCH, ShareGroup, ShareHeartbeat
from kafkalite.coordinator.group.share.share_tables import JOINED_EPOCH
from kafkalite.coordinator.transaction.transaction_state import InitProducerIdResult
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.file_names import segment_stem
from kafkalite.server.broker_server import BrokerServer
from kafkalite.testing.records.stored_record import check_text

_TIMEOUT_MS = 60_000
_PAUSE_S = 0.001
_CLIENT_ID, _CLIENT_HOST = "kafkalite-faults", "/127.0.0.1"


class _Successor:
    """A producer with the transactional.id of another: it retries while the other's transaction is being aborted."""

    def __init__(self, server: BrokerServer, transactional_id: str) -> None:
        self._server = server
        self._transactional_id = transactional_id
        self._has_waited = False

    def initialise(self) -> None:
        self._server.transactions.init_producer_id(self._transactional_id, _TIMEOUT_MS, None, self)

    def answer(self, result: InitProducerIdResult, /) -> None:
        loop = asyncio.get_running_loop()
        if result.error is ErrorCode.CONCURRENT_TRANSACTIONS:
            # The first retry comes before any client's request: one that ends the transaction now gets an error.
            loop.call_later(_PAUSE_S, self.initialise) if self._has_waited else loop.call_soon(self.initialise)
            self._has_waited = True
        elif result.error:
            raise ValueError(f"{self._transactional_id!r} cannot be fenced: {result.error.name}")


class _NoWaiter:
    def answer(self, result: object, /) -> None:
        """The phantom member has left already."""


def fence(server: BrokerServer, transactional_id: str) -> None:
    check_text("transactional_id", transactional_id)
    transaction, error = server.transactions.describe(transactional_id)
    if transaction is None:
        raise ValueError(f"no producer has the transactional.id {transactional_id!r}{_why(error)}")
    _Successor(server, transactional_id).initialise()


def rebalance(server: BrokerServer, group_id: str) -> None:
    group = _group(server, group_id)
    before = {member.member_id for member in group.members}
    example = next(iter(group.members), None)
    if example is None or group.protocol_type is None:
        raise ValueError(f"group {group_id!r} has no members")
    found = server.groups.store.by_id[group_id]
    if isinstance(found, ConsumerGroup):
        _Reassignment(server, found).begin()
        return
    if isinstance(found, ShareGroup):
        _bump_epoch(server, found)
        return
    if group.kind == STREAMS:
        raise ValueError(f"group {group_id!r} is of Kafka Streams: it rebalances when a member comes or goes")
    joining = JoinRequest(
        member_id="",
        instance_id=None,
        client_id=_CLIENT_ID,
        client_host=_CLIENT_HOST,
        rebalance_timeout_ms=example.rebalance_timeout_ms,
        session_timeout_ms=example.session_timeout_ms,
        protocol_type=group.protocol_type,
        protocols=example.protocols,
        requires_known_member_id=False,
        supports_skipping_assignment=False,
    )
    server.groups.join(group_id, joining, _NoWaiter())
    for member in _group(server, group_id).members:
        if member.member_id not in before:
            server.groups.leave(group_id, [(member.member_id, None)], _NoWaiter())


class _Reassignment:
    """A rebalance of a consumer group, as an eager one of a classic group: all members give up all of their partitions
    with their next heartbeats, and when none has any, they are assigned again."""

    def __init__(self, server: BrokerServer, group: ConsumerGroup) -> None:
        self._groups = server.groups
        self._group = group
        self._epoch = 0

    def begin(self) -> None:
        self._groups.consumer_groups.unassign(self._group)
        self._epoch = self._group.tables.group_epoch
        self._proceed()

    def _proceed(self) -> None:
        group, tables = self._group, self._group.tables
        is_over = self._groups.store.by_id.get(group.group_id) is not group or not tables.members
        if is_over or tables.group_epoch != self._epoch:  # a member came or went: they are assigned anew for that
            return
        if all(each.current.is_reconciled_to(self._epoch) for each in tables.members.values()):
            self._groups.consumer_groups.rebalance(group)
        else:
            asyncio.get_running_loop().call_later(_PAUSE_S, self._proceed)


def _bump_epoch(server: BrokerServer, group: ShareGroup) -> None:
    """A member joins a share group and leaves it: the others take a new epoch with their next heartbeats."""
    topics = sorted(group.tables.subscribed_topics)
    joining = ShareHeartbeat(str(uuid4()), JOINED_EPOCH, _CLIENT_ID, _CLIENT_HOST, topic_names=topics)
    for heartbeat in (joining, joining._replace(member_epoch=LEAVING_EPOCH)):
        server.groups.share_groups.heartbeat(group.group_id, heartbeat, _NoWaiter())


def expire_session(server: BrokerServer, group_id: str, member_id: str) -> None:
    group = _group(server, group_id)
    member = next((each for each in group.members if each.member_id == member_id), None)
    if member is None:
        members = ", ".join(each.member_id for each in group.members)
        raise ValueError(f"group {group_id!r} has no member {member_id!r}; it has {members or 'none'}")
    if group.kind == SHARE:
        leaving = ShareHeartbeat(member_id, LEAVING_EPOCH, _CLIENT_ID, _CLIENT_HOST)
        server.groups.share_groups.heartbeat(group_id, leaving, _NoWaiter())
    elif group.kind == STREAMS:
        from kafkalite.coordinator.group.streams.streams_heartbeat import StreamsHeartbeat

        it = StreamsHeartbeat(member_id, LEAVING_EPOCH, _CLIENT_ID, _CLIENT_HOST, instance_id=member.instance_id)
        server.groups.streams_groups.heartbeat(group_id, it, _NoWaiter())
    else:
        server.groups.leave(group_id, [(member_id, member.instance_id)], _NoWaiter())


def _group(server: BrokerServer, group_id: str) -> GroupDescription:
    check_text("group", group_id)
    group, error = server.groups.describe(group_id)
    if group is None:
        raise ValueError(f"group {group_id!r} not found{_why(error)}")
    return group


def _why(error: ErrorCode) -> str:
    """The error for a message; nothing if there is no such group or id: then an internal topic may not exist yet."""
    is_plain = error in (
        ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND
    )  # fmt: skip
    return "" if is_plain else f": {error.name}"


class UnflushedTail(NamedTuple):
    """The unsynced part of a log: `path`, a segment's file, is on the disk up to `size`, the segments `gone` not at
    all.
    """

    path: Path
    size: int
    gone: tuple[int, ...]


def unflushed_tails(server: BrokerServer) -> list[UnflushedTail]:
    """The unsynced parts of all logs. Called on the broker's loop."""
    return [tail for log in server.logs.logs.values() for tail in _tail_of(log)]


def _tail_of(log: PartitionLog) -> Iterator[UnflushedTail]:
    flushed = log.flusher.recovery_point
    if flushed >= log.end_offset:
        return
    bases = [segment.base_offset for segment in log.segments]
    first = max((index for index, base in enumerate(bases) if base <= flushed), default=0)
    segment = log.segments[first]
    size = next((at for at, header, _ in segment.iter_batches() if header.base_offset >= flushed), segment.size_bytes)
    yield UnflushedTail(Path(segment.path), size, tuple(bases[first + 1 :]))


def drop_unsynced_writes(tails: list[UnflushedTail]) -> None:
    """Drops the unsynced parts, after the end of the broker. Raises OSError."""
    for tail in tails:
        os.truncate(tail.path, tail.size)
        for base in tail.gone:
            for path in tail.path.parent.glob(f"{segment_stem(base)}.*"):
                path.unlink()
