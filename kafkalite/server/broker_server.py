"""The rooms of a running broker: every floor, built from one configuration, started and stopped in order.

Start: lock the directories, open the registry, load the logs, load the groups, and only then bind the sockets, so
whoever can connect is served. With zookeeper.connect the registry is that of a cluster, and the broker joins it when
its sockets are bound (`membership`). Stop is the reverse.
Source: kafka.server.KafkaServer (order of start and stop).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from kafkalite.api.dispatch import Dispatcher
from kafkalite.api.request.broker_endpoints import BrokerEndpoints
from kafkalite.api.request.fetch_sessions import FetchSessions
from kafkalite.api.request.services import CleanerAccess, Runtime, Services
from kafkalite.cleaner.lazy_cleaner import LazyLogCleaner
from kafkalite.common.clock import Clock, SystemClock, Timer
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.common.throttled_log import RateLimitedLogger
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig, metrics_listener
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.offsets_topic import OffsetsTopic
from kafkalite.coordinator.producer_id_manager import ProducerIdManager
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.directories.retention_task import RetentionTask
from kafkalite.log.storage.io_executor import FlushThreadPool
from kafkalite.metadata.cluster_metadata import ClusterMetadata, TopicRecord
from kafkalite.metadata.standalone_metadata import StandaloneMetadata, journal_directory
from kafkalite.network.socket_server import Listener, NetworkLimits, SocketServer
from kafkalite.replication.metadata_applier import MetadataApplier
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.topic_admin import TopicAdmin
from kafkalite.server.adoption import FIRST_PRODUCER_ID, Adopted, adopt
from kafkalite.server.dynamic_config import DynamicBrokerConfig
from kafkalite.zk.cluster.session_file import check_is_no_member

if TYPE_CHECKING:
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.network.client_connection import ClientConnection
    from kafkalite.server.cluster_member import ClusterMember
    from kafkalite.server.metrics_endpoint import MetricsEndpoint

logger = logging.getLogger(__name__)

_STOP_GRACE_MS = 5_000
_FLUSH_THREADS = 8  # fsyncs that wait together share the disk's journal commits
_READ_THREADS = 2  # times are looked up and old formats made there: more of them would only contend with the loop
_NEVER_MS = 1 << 62  # Kafka's default for the flush scheduler is the largest long
_FIRST_RETENTION_CHECK_MS = 30_000  # Kafka's: a start is busy enough
_GROUPS_HEAD_START_MS = 100  # few groups are loaded before the first client comes, many while it is told to wait


class BrokerServer:
    """The rooms of a started broker. Each is made by `start`, in order, and undone by `stop`, in reverse."""

    def __init__(self, config: BrokerConfig, clock: Clock | None, adopts: bool) -> None:
        self.config = config
        self.adopted: Adopted | None = None
        self.metrics: MetricsEndpoint | None = None
        self.registry: ClusterMetadata
        self._member: ClusterMember | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._adopts = adopts
        self._given_clock = clock
        self._undo: list[Callable[[], Any]] = []
        self._timers: dict[str, Timer] = {}

    async def start(self) -> None:
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        config = self.config
        loop = asyncio.get_running_loop()
        self.clock: Clock = self._given_clock or SystemClock(loop)
        for warning in config.warnings:
            logger.warning("%s", warning)
        hands = FlushThreadPool(_FLUSH_THREADS, "kafkalite-flush")
        self._undo.append(hands.close)
        self.logs = LogManager(
            config.data_dirs, self.clock, config, hands.run, wake=lambda: loop.call_soon_threadsafe(self._hear)
        )
        self._undo.append(self.logs.close)
        await self._start_registry()
        self._running_config = DynamicBrokerConfig(config, self.registry, self.broker_id, self._apply_config)
        config = self.config = self._running_config.now
        assign = None if self._member is None else self._member.assign
        self.topics = ReplicaManager(config, self.registry, self.logs, self.broker_id)
        self._applier = MetadataApplier(self.registry, self.topics)
        self.topic_admin = TopicAdmin(self.registry, self.topics, self._applier, assign)
        self.logs.when_offline = self._when_offline
        await self.logs.load(
            self.registry.cluster_id,
            self.topics.config_for,
            self.topics.id_of,
            broker_id=self.broker_id,
            from_another=self.adopted is not None,
        )
        if self.adopted is not None:  # the logs may know ids that another broker gave
            highest = max(self.logs.highest_producer_id(), FIRST_PRODUCER_ID - 1)
            await self.registry.skip_producer_ids(highest)
        await self._applier.load()
        group_topic = OffsetsTopic(config, self.clock, self.topics, self.topic_admin)
        self.groups = GroupCoordinator(config, self.clock, group_topic.append, self.topics.exists)
        self._undo.append(self.groups.close)
        group_topic.attach(self.groups)
        self.topics.on_election, self.topics.on_resignation = group_topic.on_election, group_topic.on_resignation
        self.topics.when_deleted = self.groups.topic_deleted
        self._undo.append(group_topic.close)
        loading = asyncio.ensure_future(group_topic.load())
        self._undo.append(lambda: _cancelled(loading))
        await asyncio.wait({loading}, timeout=_GROUPS_HEAD_START_MS / 1000)
        retention = RetentionTask(lambda: self.logs.logs, self.clock, lambda key: self._compaction.is_busy(key))
        self._compaction = LazyLogCleaner(self.logs, config, self.clock, retention.look_again)
        readers = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="kafkalite-lookup")
        self._services = services = Services(
            runtime=Runtime(loop, self.clock, readers),
            dynamic_config=self._running_config,
            metadata=self.registry,
            brokers=BrokerEndpoints(self.registry, self.broker_id, config.broker_rack, self._advertised_address),
            topics=self.topics,
            topic_admin=self.topic_admin,
            logs=self.logs,
            fetch_sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots),
            groups=self.groups,
            offsets_topic=group_topic,
            legacy_offsets=None if self._member is None else self._member.legacy_offsets(),
            producer_ids=ProducerIdManager(
                self.registry.next_producer_id_block,
                self.registry.skip_producer_ids if self._member is not None else None,  # ids are not counted here
                self.logs.highest_producer_id,
            ),
            cleaner=CleanerAccess(lambda: self.cleaner),
            error_log=RateLimitedLogger(self.clock, logger.error),
        )
        self._undo.append(lambda: readers.shutdown(cancel_futures=True))
        self._undo.append(self._running_config.follow())
        dispatcher = Dispatcher(services)
        self._undo.append(dispatcher.settled)
        self.server = SocketServer(
            [Listener(one.name, one.host, one.port) for one in config.listeners],
            dispatcher,
            NetworkLimits.of(config),
            self.clock,
            processors=config.num_network_threads,
        )
        self._undo.append(lambda: self.server.stop(_STOP_GRACE_MS))
        await self.server.start()
        self._undo.append(self._release_the_waiting)
        self._undo.append(retention.stop)
        check_ms = config.log_retention_check_interval_ms
        self._repeat("retention", check_ms, retention.begin, first_after_ms=_FIRST_RETENTION_CHECK_MS)
        self._repeat("checkpoint", config.log_flush_offset_checkpoint_interval_ms, self.logs.checkpoint)
        if config.log_flush_scheduler_interval_ms < _NEVER_MS:
            self._repeat("flush", config.log_flush_scheduler_interval_ms, self.logs.flush_if_due)
        self._repeat("offset expiry", config.offsets_retention_check_interval_ms, self.groups.expire_offsets)
        self._repeat("producer expiry", config.producer_id_expiration_check_interval_ms, self._expire_producers)
        self._undo.append(self._compaction.stop)
        self._compaction.start()
        if config.metrics_listener:
            await self._start_metrics(metrics_listener(config.metrics_listener))
        await self._join()

    async def _start_registry(self) -> None:
        """That of a cluster in ZooKeeper, or one of this broker's own."""
        config, directories = self.config, self.logs.directories
        self.broker_id = config.broker_id
        if config.zookeeper_connect is not None:
            from kafkalite.server.cluster_member import ClusterMember  # brings kazoo, which most starts do not need

            self._member = ClusterMember(config, self.clock, directories, adopts=self._adopts)
            self.registry = self._member.registry
        else:
            if not self._adopts:
                check_is_no_member([directory.path for directory in self.logs.online])
            self.registry = StandaloneMetadata(
                journal_directory(
                    [directory.path for directory in self.logs.online],
                    {directory.path: directory.failure or "" for directory in self.logs.offline},
                ),
                cluster_id=directories.stored_cluster_id,
                first_topics=self._adopt,
                takes_over=self._adopts or directories.was_used_by_another,
                broker_id=config.broker_id,
            )
        await self.registry.start()
        self._undo.append(self.registry.stop)
        if self._member is not None:  # which may have been given a number just now
            self.broker_id = self._member.registry.broker_id
            await self._member.check_is_free()
            if self._adopts:
                await self._adopt_into(self._member)

    async def _join(self) -> None:
        """Be known to the others, if there are any, and lead what this broker is to lead."""
        if self._member is None:
            await self.registry.register(self.config.listeners, self.config.broker_rack)
        else:
            self._undo.append(self._member.leave)
            await self._member.join(self._applier, self.server.ports)

    @property
    def cleaner(self) -> LogCleaner:
        return self._compaction.cleaner

    async def _start_metrics(self, where: ListenerConfig) -> None:
        from kafkalite.common.metrics import CONTENT_TYPE
        from kafkalite.server.broker_metrics import broker_metrics, health
        from kafkalite.server.metrics_endpoint import MetricsEndpoint

        metrics = broker_metrics(
            self.topics,
            self.logs,
            self.groups,
            self.server,
            self.cleaner,
            lambda: self.registry.controller_id == self.broker_id,
        )
        endpoint = MetricsEndpoint(
            where.host, where.port, CONTENT_TYPE, metrics.pieces, lambda: health(self.logs, self.cleaner)
        )
        self._undo.append(endpoint.stop)
        await endpoint.start()
        self.metrics = endpoint

    async def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        while self._undo:
            result = self._undo.pop()()
            if asyncio.iscoroutine(result):
                await result

    def _apply_config(self, config: BrokerConfig) -> None:
        self.config = config
        self.topics.reconfigure(config)
        self._compaction.reconfigure(config)
        if self._member is not None:
            self._member.reconfigure(config)

    def _adopt(self, known: Mapping[str, TopicRecord]) -> list[TopicRecord]:
        """The topics that another broker left in the directories. It need not have had any."""
        directories = self.logs.directories
        directories.take_back({record.topic_id: name for name, record in known.items()})
        adopted = adopt(
            directories.stored_topics(), known, self.config.broker_id, some_are_offline=bool(directories.offline)
        )
        if directories.stored_cluster_id is not None or adopted.records or adopted.gone:
            self.adopted = adopted
        return adopted.records

    async def _adopt_into(self, member: ClusterMember) -> None:
        """The topics in the directories that ZooKeeper does not know, which may have lost its data. Raises ConfigError
        when they are not whole: what others have of them would begin empty here."""
        directories, known = self.logs.directories, member.registry.view.assignments
        unknown = {name: topic for name, topic in directories.stored_topics().items() if name not in known}
        if not unknown:
            return
        adopted = adopt(unknown, {}, self.broker_id, some_are_offline=bool(directories.offline))
        fault = None
        if directories.offline:
            fault = f"--adopt needs all of log.dirs: {directories.offline[0].failure}"
        for name, indexes in adopted.missing.items():
            some = ", ".join(map(str, indexes[:8])) + (", ..." if len(indexes) > 8 else "")
            fault = (
                f"--adopt: ZooKeeper does not know of {name}, whose partitions {some} are not in log.dirs but with "
                f"other brokers: give ZooKeeper its data back, or move {name}-* out of log.dirs"
            )
        if fault is not None:
            await member.registry.delete_cluster_id()
            raise ConfigError(fault)
        await member.registry.adopt(adopted.records)
        self.adopted = adopted

    def _when_offline(self, keys: Sequence[TopicPartition], why: str) -> None:
        """A data directory has failed. With the last one the broker goes."""
        self.topics.take_offline(keys, why)
        if not self.logs.online:
            message = f"{why}; no data directory is left (log.dirs), so the broker stops"
            logger.error("%s", message)
            if not self.failed.done():
                self.failed.set_result(message)

    def _hear(self) -> None:
        """What other threads did for the logs has come to its end."""
        self.logs.hear()

    def _release_the_waiting(self) -> None:
        """Whoever waits for others is answered now: nothing more will come."""
        self.groups.close()
        for topic in self.topics:
            for partition in topic.partitions.values():
                partition.wake_all()

    def _expire_producers(self) -> None:
        now_ms = self.clock.wall_ms()
        for log in self.logs.logs.values():
            log.expire_producers(now_ms)

    def _repeat(
        self, name: str, interval_ms: int, work: Callable[[], object], first_after_ms: int | None = None
    ) -> None:
        """Do `work` every `interval_ms` (0: once); a failure is reported and the next turn comes all the same."""

        def turn() -> None:
            if interval_ms > 0:
                self._timers[name] = self.clock.call_later(interval_ms, turn)
            try:
                work()
            except Exception:
                logger.exception("%s failed; it will be tried again in %d ms", name, interval_ms)

        first_ms = interval_ms if first_after_ms is None else first_after_ms
        self._timers[name] = self.clock.call_later(first_ms, turn)

    def _advertised_address(self, connection: ClientConnection) -> tuple[str, int]:
        advertised = self.config.advertised(connection.listener_name)
        if advertised is not None:
            return advertised.host, advertised.port
        return connection.local_host, connection.local_port

    def first_port(self) -> int:
        return self.server.ports[self.config.listeners[0].name]

    def bootstrap_servers(self) -> str:
        first = self.config.listeners[0]
        host = first.host
        if host in ("", "0.0.0.0", "::"):
            host = "127.0.0.1"
        return f"[{host}]:{self.first_port()}" if ":" in host else f"{host}:{self.first_port()}"


async def _cancelled(task: asyncio.Future[None]) -> None:
    """Cancel a task of ours and see it end; what it failed with is logged."""
    task.cancel()
    done, _ = await asyncio.wait({task})
    for ended in done:
        if not ended.cancelled() and ended.exception() is not None:
            logger.error("loading groups failed", exc_info=ended.exception())
