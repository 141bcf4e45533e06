"""The broker as an object: builds every floor from one configuration, starts and stops them in order.

    with Broker(data_dir="data", port=0) as broker:         # on an event loop in a thread of its own
    async with Broker(data_dir="data", port=0) as broker:   # in the running loop

Start: lock the directory, open the registry, load the logs, load the groups, and only then bind the sockets, so
whoever can connect is served. Stop is the reverse. Nothing is kept at module level; many brokers live in one process.
Source: kafka.server.KafkaServer (order of start and stop).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kafkalite.adoption import FIRST_PRODUCER_ID, Adopted, adopt
from kafkalite.api.context import Services
from kafkalite.api.dispatch import Dispatcher
from kafkalite.api.fetch_sessions import FetchSessions
from kafkalite.clock import Clock, SystemClock, Timer
from kafkalite.config import BrokerConfig
from kafkalite.coordinator.group_coordinator import GroupCoordinator
from kafkalite.coordinator.producer_ids import ProducerIds
from kafkalite.errors import ConfigError
from kafkalite.group_topic import GroupTopic
from kafkalite.known_properties import no_effect
from kafkalite.listeners import ListenerConfig, metrics_listener
from kafkalite.log.background import Hands
from kafkalite.log.log_manager import LogManager
from kafkalite.log.retention import RetentionCheck
from kafkalite.network.server import Listener, NetworkLimits, Server
from kafkalite.topics import Topics
from kafkalite.zk.embedded import EmbeddedRegistry, place_of_registry
from kafkalite.zk.registry import CLUSTER_DEFAULT, TopicRecord

if TYPE_CHECKING:
    from kafkalite.cleaner.log_cleaner import LogCleaner
    from kafkalite.cleaner.messages import FromWorker
    from kafkalite.cleaner.worker_process import Worker
    from kafkalite.network.metrics_endpoint import MetricsEndpoint
    from kafkalite.network.peer import Peer

logger = logging.getLogger(__name__)

_STOP_GRACE_MS = 5_000
_FLUSH_THREADS = 8  # fsyncs that wait together share the disk's journal commits
_READ_THREADS = 2  # times are looked up and old formats made there: more of them would only contend with the loop
_CLEANER_BACKOFF_MS_MIN = 100
_NEVER_MS = 1 << 62  # Kafka's default for the flush scheduler is the largest long
_FIRST_RETENTION_CHECK_MS = 30_000  # Kafka's: a start is busy enough
_GROUPS_HEAD_START_MS = 100  # few groups are loaded before the first client comes, many while it is told to wait


class Broker:
    """One broker. Ready while entered; `bootstrap_servers` is what a client's configuration wants.

    Settings come from `config`, or from keyword arguments named as Kafka's properties with underscores
    (`log_segment_bytes=1 << 20`). `port=0` takes any free port. `data_dir` is the first of its data directories, which
    keeps the registry. With `adopt` it takes the topics that are found in them for those that there are, whatever it
    knew before. Raises ConfigError when it cannot start.
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        data_dir: str | Path | None = None,
        host: str | None = None,
        port: int | None = None,
        clock: Clock | None = None,
        adopt: bool = False,
        **settings: object,
    ) -> None:
        if config is None:
            config = _config_from(data_dir, host, port, settings)
        elif settings or data_dir is not None or host is not None or port is not None:
            raise ConfigError("give the broker either config or settings of their own, not both")
        self.config = config
        self.data_dir = Path(config.data_dirs[0])
        self._adopts = adopt
        self._stopping: asyncio.Future[None] | None = None
        self._given_clock = clock
        self._running: _Running | None = None
        self._thread: _LoopThread | None = None

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the first listener, as clients dial it. Valid while the broker runs."""
        return self._require().bootstrap_servers()

    @property
    def port(self) -> int:
        """The port of the first listener. Valid while the broker runs."""
        return self._require().first_port()

    @property
    def metrics_address(self) -> str | None:
        """host:port where metrics are told; None if nowhere. Valid while the broker runs."""
        endpoint = self._require().metrics
        return None if endpoint is None else endpoint.address

    @property
    def cluster_id(self) -> str:
        return self._require().registry.cluster_id

    @property
    def adopted(self) -> Adopted | None:
        """What was taken over of another broker at this start; None if nothing was."""
        return self._require().adopted

    async def start(self) -> None:
        """Start in the running loop; clients may connect when this returns."""
        if self._running is not None:
            raise RuntimeError("this broker is already running")
        running = _Running(self.config, self._given_clock, self._adopts)
        await running.start()
        self._running = running
        running.failed.add_done_callback(self._when_failed)

    async def stop(self) -> None:
        """Serve what is in flight, write everything down, let go of everything. Does nothing on a stopped broker."""
        running, self._running = self._running, None
        if running is not None:
            await running.stop()
            running.failed.cancel()
        elif self._stopping is not None:
            await self._stopping

    async def failure(self) -> str:
        """Waits until no data directory is left, and the broker stops for want of one; returns why."""
        return await asyncio.shield(self._require().failed)

    def _when_failed(self, failed: asyncio.Future[str]) -> None:
        if not failed.cancelled():
            self._stopping = asyncio.ensure_future(self.stop())

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> Broker:
        thread = _LoopThread()
        try:
            thread.run(self.start)
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, self._thread = self._thread, None
        assert thread is not None
        try:
            thread.run(self.stop)
        finally:
            thread.close()

    def _require(self) -> _Running:
        if self._running is None:
            raise RuntimeError("this broker is not running: enter it with `with` or await start()")
        return self._running


def _config_from(
    data_dir: str | Path | None, host: str | None, port: int | None, settings: Mapping[str, object]
) -> BrokerConfig:
    properties = {name.replace("_", "."): _text(value) for name, value in settings.items()}
    for name in properties.keys() - BrokerConfig.by_name.keys():  # in a program a slip of the pen is an error
        raise ConfigError(no_effect(name, BrokerConfig.by_name))
    if data_dir is not None:
        properties["log.dirs"] = str(data_dir)
    if host is not None or port is not None:
        address = host or "127.0.0.1"
        shown = f"[{address}]" if ":" in address else address
        properties["listeners"] = f"PLAINTEXT://{shown}:{9092 if port is None else port}"
    return BrokerConfig.load(properties)


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


class _Running:
    """The rooms of a started broker. Each is made by `start`, in order, and undone by `stop`, in reverse."""

    def __init__(self, config: BrokerConfig, clock: Clock | None, adopts: bool) -> None:
        self.config = config
        self.adopted: Adopted | None = None
        self.metrics: MetricsEndpoint | None = None
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._adopts = adopts
        self._given_clock = clock
        self._undo: list[Callable[[], Any]] = []
        self._timers: dict[str, Timer] = {}
        self._reconfiguring = asyncio.Lock()

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
        hands = Hands(_FLUSH_THREADS, "kafkalite-flush")
        self._undo.append(hands.close)
        self.logs = LogManager(
            config.data_dirs, self.clock, config, hands.run, wake=lambda: loop.call_soon_threadsafe(self._hear)
        )
        self._undo.append(self.logs.close)
        takes_over = self._adopts or self.logs.directories.was_used_by_another
        self.registry = EmbeddedRegistry(
            place_of_registry(
                [directory.path for directory in self.logs.online],
                {directory.path: directory.failure or "" for directory in self.logs.offline},
            ),
            cluster_id=self.logs.directories.stored_cluster_id,
            first_topics=self._adopt,
            takes_over=takes_over,
        )
        await self.registry.start()
        self._undo.append(self.registry.stop)
        config = self.config = _with_dynamic(config, self.registry.broker_configs)
        self.topics = Topics(config, self.registry, self.logs, config.broker_id)
        self.logs.when_offline = self._when_offline
        await self.logs.load(
            self.registry.cluster_id,
            self.topics.config_for,
            self.topics.id_of,
            from_another=self.adopted is not None,
        )
        if self.adopted is not None:  # the logs may know ids that another broker gave
            highest = max(self.logs.highest_producer_id(), FIRST_PRODUCER_ID - 1)
            await self.registry.skip_producer_ids(highest)
        await self.topics.load()
        group_topic = GroupTopic(config, self.clock, self.topics)
        self.groups = GroupCoordinator(
            config, self.clock, group_topic.append, lambda name, index: self.topics.partition(name, index) is not None
        )
        self._undo.append(self.groups.close)
        group_topic.attach(self.groups)
        loading = asyncio.ensure_future(group_topic.load())
        self._undo.append(lambda: _cancelled(loading))
        await asyncio.wait({loading}, timeout=_GROUPS_HEAD_START_MS / 1000)
        self._retention = retention = RetentionCheck(
            lambda: self.logs.logs, self.clock, lambda key: self._has_cleaner and self.cleaner.is_busy(key)
        )
        readers = ThreadPoolExecutor(_READ_THREADS, thread_name_prefix="kafkalite-lookup")
        self._services = services = Services(
            config=config,
            clock=self.clock,
            loop=loop,
            registry=self.registry,
            logs=self.logs,
            topics=self.topics,
            groups=self.groups,
            producer_ids=ProducerIds(self.registry.next_producer_id_block),
            readers=readers,
            sessions=FetchSessions(config.max_incremental_fetch_session_cache_slots),
            broker_id=config.broker_id,
            endpoint=self._endpoint,
            group_topic_is_ready=lambda: group_topic.is_ready,
            ensure_group_topic=group_topic.ensure,
            reconfigure=self._reconfigure,
            cleaner=lambda: self.cleaner,
        )
        self._undo.append(lambda: readers.shutdown(cancel_futures=True))
        dispatcher = Dispatcher(services)
        self._undo.append(dispatcher.settled)
        self.server = Server(
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
        self._undo.append(lambda: self.cleaner.stop())
        if not config.log_cleaner_enable:
            self.cleaner  # noqa: B018  it says so
        self._look_for_compaction()
        if config.metrics_listener:
            await self._start_metrics(metrics_listener(config.metrics_listener))

    @cached_property
    def cleaner(self) -> LogCleaner:
        """Begun when it is asked for, or there is something to compact: 10 ms that most starts need not take."""
        from kafkalite.cleaner.log_cleaner import LogCleaner

        cleaner = LogCleaner(self.logs, self.config, self.clock, _worker_process, released=self._retention.look_again)
        cleaner.start()
        return cleaner

    @property
    def _has_cleaner(self) -> bool:
        return "cleaner" in self.__dict__

    def _look_for_compaction(self) -> None:
        """Every back-off, until there is a cleaner, which goes on with that."""

        def look() -> None:
            if self._has_cleaner:
                return
            try:
                if any("compact" in log.config.cleanup_policy for log in self.logs.logs.values()):
                    self.cleaner.look()
                    return
            except Exception:
                logger.exception("the cleaner cannot begin; it will be tried again in %d ms", delay_ms)
            self._look_for_compaction()

        delay_ms = max(_CLEANER_BACKOFF_MS_MIN, self.config.log_cleaner_backoff_ms)
        self._timers["compaction"] = self.clock.call_later(delay_ms, look)

    async def _start_metrics(self, where: ListenerConfig) -> None:
        from kafkalite.broker_metrics import broker_metrics, health
        from kafkalite.metrics import CONTENT_TYPE
        from kafkalite.network.metrics_endpoint import MetricsEndpoint

        metrics = broker_metrics(self.topics, self.logs, self.groups, self.server, self.cleaner)
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

    async def _reconfigure(
        self, broker: str, change: Callable[[Mapping[str, str]], dict[str, str]], validate_only: bool
    ) -> None:
        """Make what was changed for `broker` while running what `change` makes of it. Raises ConfigError for what
        cannot be, and then nothing has changed."""
        async with self._reconfiguring:
            settings = change(self.registry.broker_configs.get(broker, {}))
            new = _with_dynamic(self.config, {**self.registry.broker_configs, broker: settings})
            conflict = new.conflict_with(self.config)
            if conflict:
                raise ConfigError(conflict)
            if validate_only:
                return
            await self.registry.set_broker_config(broker, settings)
            self.config = self._services.config = new
            await self.topics.reconfigure(new)
            if self._has_cleaner:
                self.cleaner.reconfigure(new)

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

    def _when_offline(self, keys: Sequence[tuple[str, int]], why: str) -> None:
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

    def _endpoint(self, peer: Peer) -> tuple[str, int]:
        advertised = self.config.advertised(peer.listener_name)
        if advertised is not None:
            return advertised.host, advertised.port
        return peer.local_host, peer.local_port

    def first_port(self) -> int:
        return self.server.ports[self.config.listeners[0].name]

    def bootstrap_servers(self) -> str:
        first = self.config.listeners[0]
        host = first.host
        if host in ("", "0.0.0.0", "::"):
            host = "127.0.0.1"
        return f"[{host}]:{self.first_port()}" if ":" in host else f"{host}:{self.first_port()}"


def _worker_process(hear: Callable[[FromWorker], None], ended: Callable[[str], None]) -> Worker:
    """For the loop that is running. Raises OSError."""
    from kafkalite.cleaner.worker_process import WorkerProcess  # most starts need none

    return WorkerProcess(asyncio.get_running_loop(), hear, ended)


def _with_dynamic(config: BrokerConfig, changed: Mapping[str, Mapping[str, str]]) -> BrokerConfig:
    """`config` with what was changed while running, for all brokers and then for this one, on top."""
    dynamic, dynamic_default = changed.get(str(config.broker_id), {}), changed.get(CLUSTER_DEFAULT, {})
    if not (dynamic or dynamic_default or config.dynamic or config.dynamic_default):
        return config
    return BrokerConfig.load(config.explicit, dynamic, dynamic_default)


async def _cancelled(task: asyncio.Future[None]) -> None:
    """Cancel a task of ours and see it end; what it failed with is logged."""
    task.cancel()
    done, _ = await asyncio.wait({task})
    for ended in done:
        if not ended.cancelled() and ended.exception() is not None:
            logger.error("loading groups failed", exc_info=ended.exception())


class _LoopThread:
    """An event loop on a thread of its own that runs coroutines for others."""

    def __init__(self) -> None:
        import uvloop

        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafkalite", daemon=True)
        self._thread.start()

    def run(self, work: Callable[[], Any]) -> None:
        """Run `work()` there and wait until it is done; its exception is raised here."""
        asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
