"""BrokerReport: the broker's part of the console. Reads numbers that the parts keep anyway; counts nothing before a
report is asked for.

Reports over many partitions are made some at a time with a turn of the loop between, files are read in threads.
Source: none in Apache Kafka, whose consoles read JMX.
"""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalite.api.request.consumable_records import CountPlan
from kafkalite.api.request.request_context import RequestContext, Runtime
from kafkalite.api.request.request_watch import FETCH, PRODUCE, ReportSources, WatchedClient
from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.protocol.apis import SERVED
from kafkalite.protocol.messages.broker_report import BrokerReportRequest, BrokerReportResponse
from kafkalite.replication.replica_manager import ReplicaManager

if TYPE_CHECKING:
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.coordinator.group.group import GroupDescription, MemberDescription
    from kafkalite.log.segment.record_counts import SegmentCounts
    from kafkalite.log.segment.segment_files import SegmentTimes
    from kafkalite.network.client_connection import ClientConnection
    from kafkalite.replication.share.share_partitions import SharePartitions

PLACES_MAX = 2_000
SEGMENTS_MAX = 20_000
CONNECTIONS_MAX = 5_000
GROUPS_MAX = 500
ARGUMENTS_CHARS_MAX = 1 << 20
_PER_TURN = 200

Json = dict[str, Any]
Report = Callable[[Json], Awaitable[Json]]


class BrokerReportApi(NamedTuple):
    """The BrokerReport API. `cleaner` is the log cleaner, which is created at its first use; `shares` are the share
    partitions that are led here, None before the first one."""

    runtime: Runtime
    config: Callable[[], BrokerConfig]
    metadata: ClusterMetadata
    logs: LogManager
    replica_manager: ReplicaManager
    groups: GroupCoordinator
    cleaner: Callable[[], LogCleaner]
    sources: ReportSources
    shares: Callable[[], SharePartitions | None]

    async def broker_report(self, request: BrokerReportRequest, context: RequestContext) -> BrokerReportResponse:
        """The report of one kind. A refusal names the fault of the request in a sentence."""
        try:
            report = self._reports().get(request.kind)
            if report is None:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no report {request.kind[:40]!r}")
            content = await report(_arguments(request.arguments))
        except KafkaError as fault:
            return BrokerReportResponse(error_code=fault.code, error_message=fault.message)
        except StorageError as fault:
            return BrokerReportResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=str(fault))
        return BrokerReportResponse(content=json.dumps(content).encode())

    def _reports(self) -> Mapping[str, Report]:
        return {
            "broker": self._broker,
            "records": self._records,
            "segments": self._segments,
            "connections": self._connections,
            "slow_requests": self._slow_requests,
            "rebalances": self._rebalances,
            "share_group": self._share_group,
            "cluster": self._cluster,
            "restart": self._restart,
        }

    async def _broker(self, arguments: Json) -> Json:
        """The numbers of this broker: gauges, counters, and latencies since the last report."""
        sources = self.sources
        sources.watch.keep_on()
        processors = sources.network().processors
        size_bytes = under_replicated = records_in = 0
        for processor in processors:
            processor.renew_clock()
        for at, (key, log) in enumerate(list(self.logs.logs.items())):
            size_bytes += log.size_bytes
            partition = self.replica_manager.partition(*key)
            if partition is not None:
                records_in += log.end_offset
                under_replicated += self._is_under_replicated(*key)
            if at % _PER_TURN == _PER_TURN - 1:
                await asyncio.sleep(0)
        counts = sources.watch.counts
        totals = self.cleaner().totals() if self.config().log_cleaner_enable else None
        return {
            "version": sources.version(),
            "uptime_ms": self.runtime.clock.monotonic_ms() - sources.started_ms,
            "connections": sources.network().connection_count,
            "requests": sum(one.requests for one in processors),
            "bytes_in": sum(one.bytes_in for one in processors),
            "bytes_out": sum(one.bytes_out for one in processors),
            "records_in": records_in,
            "produce_requests": counts.get(PRODUCE, 0),
            "fetch_requests": counts.get(FETCH, 0),
            "under_replicated": under_replicated,
            "disk_used_bytes": size_bytes,
            "cleaner_bytes": None if totals is None else totals.bytes_read,
            "cleaner_problem": None if totals is None else self.cleaner().problem,
            **self._quantiles("produce", PRODUCE),
            **self._quantiles("fetch", FETCH),
        }

    def _is_under_replicated(self, topic: str, index: int) -> bool:
        record = self.metadata.topics.get(topic)
        state = record.partitions.get(index) if record is not None else None
        return state is not None and len(state.isr) < len(state.replicas)

    def _quantiles(self, name: str, api_key: int) -> Json:
        found = self.sources.watch.quantiles_ms(api_key)
        middle, high = (None, None) if found is None else found
        return {f"{name}_p50_ms": middle, f"{name}_p99_ms": high}

    async def _records(self, arguments: Json) -> Json:
        """The records that a consumer at each place would still get; null where that is not known."""
        places = arguments.get("places")
        if not isinstance(places, list) or len(places) > PLACES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"places must be a list of at most {PLACES_MAX}")
        committed_only = bool(arguments.get("committed_only", True))
        found: list[int | None] = []
        for at, place in enumerate(places):
            found.append(await self._records_at(place, committed_only))
            if at % _PER_TURN == _PER_TURN - 1:
                await asyncio.sleep(0)
        return {"records": found}

    async def _records_at(self, place: Any, committed_only: bool) -> int | None:
        try:
            topic, index, offset = place
            partition = self.replica_manager.partition(topic, index)
            offset = int(offset)
        except (TypeError, ValueError):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a place must be [topic, partition, offset]") from None
        if partition is None or partition.is_offline:
            return None
        try:
            plan = CountPlan(partition, offset, committed_only=committed_only)
        except OSError:
            return None
        if not plan.bytes_to_read:
            return plan.count()
        return await self.runtime.loop.run_in_executor(self.runtime.readers, plan.count)

    async def _segments(self, arguments: Json) -> Json:
        topic, index = arguments.get("topic"), arguments.get("partition")
        if not isinstance(topic, str) or not isinstance(index, int):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "topic and partition are needed")
        partition = self.replica_manager.partition(topic, index)
        if partition is None or partition.is_offline:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic[:249]}-{index} is not led here")
        log = partition.log
        counts = {one.base_offset: one for one in log.record_counts.current().segments}
        segments = log.segments[-SEGMENTS_MAX:]
        row = next(iter(self.cleaner().rows([(topic, index)])), None) if self.config().log_cleaner_enable else None
        first_dirty = None if row is None else row.first_dirty_offset
        ends = [*(one.base_offset for one in segments[1:]), log.end_offset]
        described = partial(_described, [one.times() for one in segments], ends, counts, first_dirty)
        items = await self.runtime.loop.run_in_executor(self.runtime.readers, described)
        return {"start_offset": log.start_offset, "end_offset": log.end_offset, "items": items}

    async def _connections(self, arguments: Json) -> Json:
        sources = self.sources
        sources.watch.keep_on()
        now = Moment(self.runtime.clock.monotonic_ms(), self.runtime.clock.wall_ms())
        items: list[Json] = []
        clients = set()
        for processor in sources.network().processors:
            swept_ms = processor.now_ms  # bytes that moved since have this time, whenever they moved
            processor.renew_clock()
            for connection in list(processor.connections):
                client = connection.client
                clients.add(client)
                if len(items) < CONNECTIONS_MAX:
                    watched = sources.watch.by_client.get(client)
                    idle_ms = sources.watch.idle_ms(client)
                    if idle_ms is None and connection.active_ms < swept_ms:
                        idle_ms = now.monotonic_ms - connection.active_ms
                    items.append(_connection(client, watched, now, idle_ms))
        sources.watch.clients_now(clients)
        return {"items": items, "total": len(clients)}

    async def _slow_requests(self, arguments: Json) -> Json:
        watch = self.sources.watch
        watch.keep_on()
        items = [
            {
                "api": _name(one.api_key),
                "version": one.version,
                "client_id": one.client_id,
                "host": one.client.host,
                "software": one.client.client_software_name,
                "began_ms": one.began_ms,
                "took_ms": one.took_ms,
                "bytes_in": one.bytes_in,
                "bytes_out": one.bytes_out,
            }
            for one in watch.slow
        ]
        return {"items": items}

    async def _rebalances(self, arguments: Json) -> Json:
        """The groups that wait for members now, or the one that is named; with `generations` also those of groups with
        members."""
        wanted = arguments.get("group_id")
        now = self.runtime.clock.monotonic_ms()
        wall_ms = self.runtime.clock.wall_ms()
        found: list[Json] = []
        for group in self.groups.store:
            if wanted is not None and group.group_id != wanted:
                continue
            waiting = group.waiting(now)
            if waiting is not None and len(found) < GROUPS_MAX:
                since_ms = waiting.since_ms or wall_ms
                found.append(
                    {
                        "group_id": group.group_id,
                        "phase": waiting.phase,
                        "since_ms": since_ms,
                        "waited_ms": max(0, wall_ms - since_ms),
                        "until_ms": None if waiting.left_ms is None else wall_ms + waiting.left_ms,
                        "waits_for": _members(group.describe(), waiting.member_ids, Moment(now, wall_ms)),
                        "sentence": waiting.sentence(group.group_id, wall_ms - since_ms),
                    }
                )
        return {"groups": found, "generations": await self._generations() if arguments.get("generations") else {}}

    async def _generations(self) -> dict[str, int]:
        """The generation of each group with members, or its epoch."""
        generations: dict[str, int] = {}
        for group in list(self.groups.store):
            if group.has_members and len(generations) < GROUPS_MAX:
                generations[group.group_id] = group.describe().epoch
                await asyncio.sleep(0)
        return generations

    async def _share_group(self, arguments: Json) -> Json:
        """The records in flight of a share group in the partitions that this broker leads."""
        group_id = arguments.get("group_id")
        if not isinstance(group_id, str):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "group_id is needed")
        shares = self.shares()
        if shares is None:
            return {"partitions": [], "left_out": 0}
        from kafkalite.api.request.share_report import share_group_report

        clock = self.runtime.clock
        return share_group_report(shares, group_id, Moment(clock.monotonic_ms(), clock.wall_ms()))

    async def _cluster(self, arguments: Json) -> Json:
        """The cluster as this broker sees it."""
        metadata = self.metadata
        connect = self.config().zookeeper_connect
        own = metadata.brokers.get(self.config().broker_id)
        session = {
            "connect": connect,
            "state": metadata.registration_state.value,
            "transaction": metadata.last_transaction,
            "brokers": sorted(metadata.brokers),
        }
        return {
            "broker_epoch": own.epoch if own is not None and connect else None,
            "registration": own.registration if own is not None and connect else None,
            "is_intact": own.intact if own is not None and connect else None,
            "is_stopping": own.stopping if own is not None and connect else None,
            "controller_id": metadata.controller_id if metadata.controller_id >= 0 else None,
            "controller_epoch": metadata.controller_epoch,
            "zookeeper": session if connect else None,
        }

    async def _restart(self, arguments: Json) -> Json:
        """Bytes that the next start would read of each directory if the broker died now; none after a clean stop.
        Source: `LogRecovery.recover_unclean`, which begins at the segment with the recovery point of the checkpoint
        file."""
        items = []
        for directory in self.logs.online:
            kept = directory.checkpoints.recovery_points
            logs = segment_count = size_bytes = 0
            for at, (key, log) in enumerate(list(directory.logs.items())):
                segments = log.segments
                first = max(0, bisect_right(segments, kept.get(key, 0), key=lambda segment: segment.base_offset) - 1)
                checked = [segment.size_bytes for segment in segments[first:]]
                if any(checked):
                    logs += 1
                    segment_count += len(checked)
                    size_bytes += sum(checked)
                if at % _PER_TURN == _PER_TURN - 1:
                    await asyncio.sleep(0)
            items.append(
                {
                    "path": directory.path,
                    "logs": logs,
                    "segments": segment_count,
                    "size_bytes": size_bytes,
                    "all_logs": len(directory.logs),
                }
            )
        return {
            "directories": items,
            "was_clean": self.logs.was_clean,
            "threads": self.config().num_recovery_threads_per_data_dir,
        }


def _arguments(text: str) -> Json:
    try:
        found = read_json(text) if len(text) <= ARGUMENTS_CHARS_MAX else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the arguments are no JSON object")
    return found


def _described(
    segments: Sequence[SegmentTimes], ends: list[int], counts: Mapping[int, SegmentCounts], first_dirty: int | None
) -> list[Json]:
    """In a thread: the times are read from files."""
    items = []
    for segment, end in zip(segments, ends, strict=True):
        known = counts.get(segment.base_offset)
        try:
            first_ms, last_ms = segment.read()
        except OSError:
            first_ms = last_ms = -1
        items.append(
            {
                "base_offset": segment.base_offset,
                "next_offset": end,
                "size_bytes": segment.size_bytes,
                "first_timestamp_ms": first_ms if first_ms >= 0 else None,
                "last_timestamp_ms": last_ms if last_ms >= 0 and segment.size_bytes else None,
                "records": None if known is None else known.live_records,
                "is_active": segment is segments[-1],
                "is_dirty": None if first_dirty is None else end > first_dirty,
            }
        )
    return items


def _connection(client: ClientConnection, watched: WatchedClient | None, now: Moment, idle_ms: int | None) -> Json:
    apis = {} if watched is None else {_name(key): count for key, count in watched.counts.items()}
    return {
        "client_id": None if watched is None else watched.client_id,
        "host": client.host,
        "port": client.port,
        "listener": client.listener_name,
        "software": client.client_software_name,
        "software_version": client.client_software_version,
        "user": client.principal,
        "is_encrypted": client.is_encrypted,
        "connected_ms": now.wall_ms - max(0, now.monotonic_ms - client.accepted_ms),
        "requests": sum(apis.values()) if apis else None,
        "apis": apis or None,
        "idle_ms": None if idle_ms is None else max(0, idle_ms),
    }


def _name(api_key: int) -> str:
    return SERVED[api_key].name if api_key in SERVED else str(api_key)


def _members(group: GroupDescription, member_ids: Iterable[str], now: Moment) -> list[Json]:
    """The members that the rebalance waits for. A member with an id that has not joined yet has no client id."""
    found = []
    members = {member.member_id: member for member in group.members}
    for member_id in member_ids:
        member = members.get(member_id)
        found.append(
            {
                "member_id": member_id,
                "client_id": "" if member is None else member.client_id,
                "host": "" if member is None else member.client_host.removeprefix("/"),
                "last_seen_ms": None if member is None else _last_seen_ms(member, now),
            }
        )
    return found


def _last_seen_ms(member: MemberDescription, now: Moment) -> int | None:
    """The start of the member's current session; None while the member itself waits for an answer."""
    if member.session_began_ms is None:
        return None
    return now.wall_ms - max(0, now.monotonic_ms - member.session_began_ms)
