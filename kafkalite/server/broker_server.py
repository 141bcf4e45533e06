"""All parts of a running broker, built from one configuration, started and stopped in order.

Lock the directories, open the metadata, load the logs, load groups and transactions, and only then bind the sockets, so
that every client that can connect is served. With zookeeper.connect the metadata are those of a cluster, and the broker
joins it when its sockets are bound (`cluster_member`). Stop is the reverse.
Source: kafka.server.KafkaServer (order of start and stop).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from kafkalite.api.dispatch import Dispatcher
from kafkalite.api.request.admission import AdmissionEpoch
from kafkalite.api.request.fetch_sessions import FetchSessions
from kafkalite.api.request.request_context import Access, Runtime
from kafkalite.common.clock import Clock, PeriodicTasks, SystemClock
from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig, metrics_listener
from kafkalite.log.directories.retention_task import FIRST_MS, RetentionTask
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.replication.metadata_applier import MetadataApplier
from kafkalite.replication.replica_manager import ReplicaManager
from kafkalite.replication.topic_admin import TopicAdmin
from kafkalite.server.broker_apis import BrokerApis
from kafkalite.server.coordinators import Coordinators
from kafkalite.server.dynamic_config import DynamicBrokerConfig
from kafkalite.server.host import Host
from kafkalite.server.listener_changes import ListenerChanges, network_limits
from kafkalite.server.listener_security import ListenerSecurity
from kafkalite.server.membership.single_broker import FIRST_PRODUCER_ID, Adopted
from kafkalite.server.metadata_followers import follow_acls, follow_quotas, token_expiry

if TYPE_CHECKING:
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.replication.replica_roles import ReplicaRoles
    from kafkalite.server.metrics_endpoint import MetricsEndpoint

logger = logging.getLogger(__name__)

_STOP_GRACE_MS = 5_000
_READ_THREADS = 2  # for look-ups by timestamp and down-conversion; more would only contend with the loop
_NEVER_MS = 1 << 62  # Kafka's default for the flush scheduler is the largest long
_CLEANER_CHECK_MS_MIN = 100
_KILL_GRACE_S = 5.0  # for the end of cancelled tasks


class BrokerServer:
    """The parts of a started broker. `failed` gets the reason when the last data directory has failed."""

    metadata: ClusterMetadata

    def __init__(self, config: BrokerConfig, clock: Clock | None = None, host: Host | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.clock: Clock = clock or SystemClock(self._loop)
        self.config = config
        self.failed: asyncio.Future[str] = self._loop.create_future()
        self.metrics: MetricsEndpoint | None = None
        self._cleaner: LogCleaner | None = None
        self._host = host or Host()
        self._closing = AsyncExitStack()

    async def start(self) -> None:
        """Enter one stage after another; if one fails, undo the others. Raises ConfigError, StorageError."""
        for warning in self.config.warnings:
            logger.warning("%s", warning)
        self._security = ListenerSecurity(self.config)
        try:
            self._lock_directories()
            await self._open_metadata()
            await self._load_logs()
            await self._load_coordinators()
            await self._open_sockets()
            self._start_periodic_tasks()
            await self._start_metrics()
            await self._join()
        except BaseException:
            await self.stop()
            raise

    @property
    def fetch_sessions(self) -> FetchSessions:
        return self.apis.fetch.sessions

    async def stop(self) -> None:
        """Undo the stages, the last one first."""
        await self._closing.aclose()

    async def kill(self) -> None:
        """As after kill -9, for tests: nothing is answered or written. Then this loop must end, then `end_threads`."""
        self.server.abort()
        self.logs.abandon()
        if self._cleaner is not None:
            self._cleaner.kill()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_KILL_GRACE_S)

    def end_threads(self) -> None:
        """After `kill`: wait for the threads of this broker, and close the files that they have written."""
        self._readers.shutdown(cancel_futures=True)
        self._host.end_threads()
        self._member.end_threads()

    # The stages of a start. Each registers its end before the next one begins.

    def _lock_directories(self) -> None:
        def wake() -> None:
            self._loop.call_soon_threadsafe(lambda: self.logs.run_completions())

        self.logs = self._host.open_logs(self.config, self.clock, wake, self._closing)

    async def _open_metadata(self) -> None:
        config = self.config
        self._member = self._host.make_member(config, self.clock, self.logs.directories, self._security)
        self.metadata = self._member.metadata
        await self.metadata.start()
        self._closing.push_async_callback(self.metadata.stop)
        self.broker_id = self._member.broker_id
        self.dynamic_config = DynamicBrokerConfig(
            config, self.metadata, self.broker_id, self._apply_config, lambda new: self._listener_changes.check(new)
        )
        self._member.reconfigure(self.dynamic_config.now)  # which may have other listeners
        await self._member.claim()
        await self.dynamic_config.renew_secrets()
        self.config = self.dynamic_config.now
        self._security.reconfigure(self.config)
        self.logs.reconfigure(self.config)

    async def _load_logs(self) -> None:
        self._roles = self._replica_roles()
        self.replica_manager = ReplicaManager(self.config, self.metadata, self.logs, self.broker_id, self._roles)
        self._applier = MetadataApplier(self.metadata, self.replica_manager, self.clock)
        member = self._member
        self.topic_admin = TopicAdmin(
            self.metadata,
            self.replica_manager,
            self._applier,
            lambda: member.default_replication_factor,
        )
        self.logs.on_offline.subscribe(self._on_offline_logs)
        self.logs.on_failed_log.subscribe(self._on_failed_log)
        self.logs.on_tail_in_doubt.subscribe(self.metadata.distrust_logs)
        self.logs.on_lost_tail.subscribe(self.metadata.admit_lost_tail)
        await self.logs.load(
            self.metadata.cluster_id,
            self.replica_manager.config_for,
            self.replica_manager.id_of,
            broker_id=self.broker_id,
            takes_over=self.adopted is not None,
        )
        if self.adopted is not None:  # the logs may know ids that another broker assigned
            highest = max(self.logs.highest_producer_id(), FIRST_PRODUCER_ID - 1)
            await self.metadata.writes.skip_producer_ids(highest)
        await self._applier.load()
        self._retention = RetentionTask(self.logs, self.clock)

    def _replica_roles(self) -> ReplicaRoles | None:
        """A broker that shares its metadata with others may share partitions with them, too."""
        isr_states = self._member.isr_states
        if isr_states is None:
            return None
        from kafkalite.replication.replica_fetcher_manager import ReplicaFetcherManager
        from kafkalite.replication.replica_roles import ReplicaRoles
        from kafkalite.server.membership.inter_broker_requests import inter_broker_endpoint_finder

        fetchers = ReplicaFetcherManager(
            inter_broker_endpoint_finder(self.metadata, self.config.inter_broker_listener),
            self.clock,
            lambda: self.config,
            self.broker_id,
            lambda: self.metadata.registration,
            self._security.to_broker,
        )
        roles = ReplicaRoles(self.metadata, isr_states, self.broker_id, self.clock, lambda: self.config, fetchers)
        self._closing.push_async_callback(roles.close)
        return roles

    async def _load_coordinators(self) -> None:
        self._requests = requests = self._member.inter_broker_requests()
        if requests is not None:
            self._closing.push_async_callback(requests.close)
        self.coordinators = coordinators = Coordinators(
            lambda: self.config,
            self.clock,
            self.metadata,
            self.logs,
            self.replica_manager,
            self.topic_admin,
            self.broker_id,
            requests,
        )
        self.groups, self.transactions = coordinators.groups, coordinators.transactions
        self._closing.push_async_callback(coordinators.close)
        await coordinators.load()

    async def _open_sockets(self) -> None:
        config = self.config
        self._readers = readers = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="kafkalite-lookup")
        self._closing.callback(readers.shutdown, cancel_futures=True)
        self.apis = apis = self._bind_apis(readers)
        self._closing.push_async_callback(apis.close)
        self._closing.callback(self.dynamic_config.follow())
        access = self._follow_acls(apis.admission_epoch)
        dispatcher = Dispatcher(apis.handler_of, apis.produce, apis.fetch, lambda: apis.consumer_groups, access)
        self._closing.push_async_callback(dispatcher.drain)
        listeners = self._security.listeners(self.metadata, lambda *request: self.server.handler(*request), self.clock)
        self.server = self._host.make_server(listeners, dispatcher, config, self.clock)
        self._closing.push_async_callback(self.server.stop, _STOP_GRACE_MS)
        await self.server.start()
        advertise = self._member.advertise
        self._listener_changes = ListenerChanges(config, self.server, self._security, advertise, self.clock)
        self._closing.push_async_callback(self._listener_changes.close)
        self._quotas, stop = follow_quotas(
            config, self.metadata, self.server, dispatcher, apis.admission_epoch, self.clock
        )
        self._closing.callback(stop)
        self._closing.callback(self._answer_delayed_requests)

    def _bind_apis(self, readers: ThreadPoolExecutor) -> BrokerApis:
        return BrokerApis(
            Runtime(self._loop, self.clock, readers),
            self.dynamic_config,
            self._member,
            self.logs,
            self.replica_manager,
            self.topic_admin,
            self.coordinators,
            lambda: self.cleaner,
            lambda: self.server,
        )

    def _follow_acls(self, epoch: AdmissionEpoch) -> Access | None:
        if not self.config.authorizer_class_name:
            return None
        access, stop = follow_acls(self.config, self.metadata, epoch, self.clock)
        self._closing.callback(stop)
        return access

    def _start_periodic_tasks(self) -> None:
        config, tasks = self.config, PeriodicTasks(self.clock)
        self._closing.callback(self._retention.stop)
        self._closing.callback(tasks.stop)
        tasks.add("retention", config.log_retention_check_interval_ms, self._retention.start, first_after_ms=FIRST_MS)
        if self._roles is not None:
            tasks.add("ISR", config.replica_lag_time_max_ms // 2, self._roles.shrink_isrs)
            tasks.add("high watermarks", config.replica_high_watermark_checkpoint_interval_ms, self.logs.checkpoint)
        tasks.add("checkpoint", config.log_flush_offset_checkpoint_interval_ms, self.logs.checkpoint)
        if (flush_ms := config.log_flush_scheduler_interval_ms) < _NEVER_MS:
            tasks.add("flush", flush_ms, self.logs.flush_if_due)
        self.coordinators.add_periodic_tasks(tasks, config)
        if config.token_secret:
            expire_tokens = token_expiry(self.metadata, self.broker_id, self.clock)
            interval_ms = config.delegation_token_expiry_check_interval_ms
            tasks.add("tokens", interval_ms, expire_tokens, first_after_ms=0)
        tasks.add("producer expiry", config.producer_id_expiration_check_interval_ms, self.logs.expire_producers)
        self._closing.push_async_callback(self._stop_cleaner)
        if not config.log_cleaner_enable:
            self.cleaner  # noqa: B018  its start warns
        tasks.add("compaction", max(_CLEANER_CHECK_MS_MIN, config.log_cleaner_backoff_ms), self._compact_if_needed)

    async def _start_metrics(self) -> None:
        if not self.config.metrics_listener:
            return
        from kafkalite.common.metrics import CONTENT_TYPE
        from kafkalite.server.broker_metrics import broker_metrics, health
        from kafkalite.server.metrics_endpoint import MetricsEndpoint
        from kafkalite.server.share_metrics import add_share_metrics
        from kafkalite.server.traffic_metrics import add_client_metrics, add_quota_metrics, add_replication_metrics

        where = metrics_listener(self.config.metrics_listener)
        metrics = broker_metrics(
            self._member,
            self.logs,
            self.replica_manager,
            self.coordinators,
            self.server,
            lambda: self.cleaner,
            lambda: self.config,
            self.clock,
        )
        add_replication_metrics(metrics, self.replica_manager, self.apis.follower_fetches)
        add_share_metrics(metrics, self.coordinators, self.replica_manager, lambda: self.apis.shares.used_fetches)
        add_quota_metrics(metrics, self._quotas, self.server.quotas, self.clock)
        add_client_metrics(metrics, self.apis.telemetry)
        endpoint = MetricsEndpoint(
            where.host, where.port, CONTENT_TYPE, metrics.pieces, lambda: health(self.logs, self.cleaner)
        )
        self._closing.push_async_callback(endpoint.stop)
        await endpoint.start()
        self.metrics = endpoint

    async def _join(self) -> None:
        """Register with the others, if there are any, and lead the partitions that this broker is to lead."""
        self._closing.push_async_callback(self._member.leave)
        await self._member.join(self._applier, self.server.ports)

    # While it runs

    async def loaded(self) -> None:
        """Waits until all groups and transactions that this broker had to load at its start are loaded."""
        await self.coordinators.loaded()

    @property
    def adopted(self) -> Adopted | None:
        """The topics that were taken over from another broker at this start."""
        return self._member.adopted

    @property
    def cleaner(self) -> LogCleaner:
        """The log cleaner, created and started at its first use, which saves most starts 12 ms of imports."""
        if self._cleaner is None:
            from kafkalite.cleaner.log_cleaner import LogCleaner

            cleaner = LogCleaner(
                self.logs, self.config, self.clock, self._host.start_cleaner, released=self._retention.check_soon
            )
            cleaner.start()
            self._cleaner = cleaner
        return self._cleaner

    def _compact_if_needed(self) -> None:
        """Starts the cleaner once a log is compacted; from then on it schedules its scans itself."""
        if self._cleaner is None and any("compact" in log.config.cleanup_policy for log in self.logs.logs.values()):
            self.cleaner.scan()

    async def _stop_cleaner(self) -> None:
        if self._cleaner is not None:
            await self._cleaner.stop()

    @property
    def has_background_work(self) -> bool:
        """Whether other threads or processes work for this broker: jobs on files, the log cleaner."""
        return self.logs.has_background_work or (self._cleaner is not None and self._cleaner.is_at_work)

    def first_port(self) -> int:
        return self.server.ports[self._first_listener().name]

    def _first_listener(self) -> ListenerConfig:
        return next(one for one in self.config.listeners if one.name in self.server.ports)

    def bootstrap_servers(self) -> str:
        host = self._first_listener().host
        if host in ("", "0.0.0.0", "::"):
            host = "127.0.0.1"
        return f"[{host}]:{self.first_port()}" if ":" in host else f"{host}:{self.first_port()}"

    def _apply_config(self, config: BrokerConfig) -> None:
        self.config = config
        self.replica_manager.reconfigure(config)
        if self._roles is not None:
            self._roles.fetchers.on_settings()
        self.logs.reconfigure(config)
        self.coordinators.group_configs.reconfigure(config)
        self.apis.admission_epoch.advance()
        self._security.reconfigure(config)
        if self._cleaner is not None:
            self._cleaner.reconfigure(config)
        self.server.reconfigure(network_limits(config))
        self._member.reconfigure(config)
        self._listener_changes.apply(config)

    def _on_failed_log(self, key: TopicPartition) -> None:
        """A log has failed: resign, so that another replica leads, and do not follow."""
        self.replica_manager.on_failed_log(key)
        self.metadata.leave_isrs([key])

    def _on_offline_logs(self, keys: Sequence[TopicPartition], why: str) -> None:
        """A data directory has failed. With the last one the broker stops."""
        self.replica_manager.take_offline(keys, why)
        self.metadata.leave_isrs(keys)
        if not self.logs.online:
            message = f"{why}; no data directory is left (log.dirs), so the broker stops"
            logger.error("%s", message)
            if not self.failed.done():
                self.failed.set_result(message)

    def _answer_delayed_requests(self) -> None:
        """Answer every request that waits for others, since none will arrive."""
        if self._requests is not None:
            self._requests.refuse()
        self.groups.close()
        for topic in self.replica_manager:
            for partition in topic.partitions.values():
                partition.complete_all()
