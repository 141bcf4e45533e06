"""A broker for tests in their own event loop. `kafkalite.testing.broker` has the same for other threads.

    async with AsyncBroker() as broker:
        orders = await broker.create_topic("orders", partitions=3)
        ...                         # any Kafka client, with broker.bootstrap_servers
        await orders.has(key="a", within=5)

It is the broker of `kafkalite serve`: the same sockets, the same files. The added methods read and call its parts
on its loop, without a client in between.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.common.checksum import partition_for_key
from kafkalite.coordinator.group.group import SHARE
from kafkalite.record.batch import NewRecord
from kafkalite.server.broker import Broker as ServerBroker
from kafkalite.server.broker import setting_text
from kafkalite.testing import data_directory, maintenance
from kafkalite.testing.broker_clock import BrokerClock
from kafkalite.testing.records.stored_record import (
    ANYTHING,
    READ_UNCOMMITTED,
    Decode,
    HeadersGiven,
    Isolation,
    Payload,
    RecordPattern,
    RecordWatch,
    StoredRecord,
    Wanted,
    check_integer,
    check_isolation,
    check_text,
    encoded,
    encoded_headers,
)
from kafkalite.testing.requests.interception import Interception

if TYPE_CHECKING:
    from kafkalite.cleaner.workers.worker_thread import WorkerThread
    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.replication.hosted_replicas import Topic
    from kafkalite.testing.faults.faults import Faults
    from kafkalite.testing.maintenance import GroupDescription
    from kafkalite.testing.requests.request_log import RequestLog
    from kafkalite.testing.share_groups import AsyncShareGroup
    from kafkalite.zk.client.zookeeper_config import Dial

TIMEOUT_S = 30.0

AT_ONCE: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0}
"""A group starts its first rebalance as soon as its first member has joined."""

NEVER_IDLE: dict[str, Any] = {"connections_max_idle_ms": -1}
"""Never close idle connections: tests advance the broker's clock, and clients' clocks do not follow."""

SMALL: dict[str, Any] = {
    "offsets_topic_num_partitions": 1,
    "transaction_state_log_num_partitions": 1,
    "log_segment_delete_delay_ms": 1_000,
    "num_network_threads": 1,
}
"""A temporary broker needs neither fifty partitions of an internal topic, nor deleted files for a minute, nor the
buffers of three processors."""


class AsyncBroker(ServerBroker):
    """A broker, ready while entered, whose methods belong to the loop that has started it.

    Settings are those of `kafkalite.Broker`. Without `data_dir` (or `log_dirs`, or `config`) the data are in memory
    if there is room, else in a temporary directory, and are removed by `stop`. `snapshot` is a directory
    that `snapshot` of another broker has written: the data begin with a copy of it.
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
        dial_zookeeper: Dial | None = None,
        snapshot: str | Path | None = None,
        **settings: object,
    ) -> None:
        self._is_thrown_away = config is None and data_dir is None and not settings.keys() & {"log_dirs", "log_dir"}
        in_memory = False
        if config is not None and data_directory.is_throwaway(Path(config.data_dirs[0])):
            self._is_thrown_away = True
            in_memory = data_directory.is_in_memory(Path(config.data_dirs[0]))
        elif config is None:
            settings = {**AT_ONCE, **NEVER_IDLE, **settings}
            if port is None and "listeners" not in settings:
                port = 0
        if config is None and self._is_thrown_away:
            data_dir = data_directory.throwaway_path()
            in_memory = data_directory.is_in_memory(data_dir)
            settings = {**SMALL, **settings}
        self._own_clock = BrokerClock(self._has_background_work) if clock is None else None
        super().__init__(
            config, data_dir=data_dir, host=host, port=port, clock=clock or self._own_clock, adopt=adopt,
            dial_zookeeper=dial_zookeeper, start_cleaner=_start_cleaner_thread, in_memory=in_memory, **settings,
        )  # fmt: skip
        self._snapshot = None if snapshot is None else Path(snapshot)
        self._keyless: Counter[str] = Counter()
        self.interception = Interception()
        self.faults_arguments: tuple[Any, ...] = ()  # of `Faults`, besides

    # --- start and stop

    async def start(self) -> None:
        """Start in the running loop. Everything is loaded when this returns, and every partition has a leader."""
        self.require_own()
        self._move_from_parent()
        if self._is_thrown_away and not self.data_dir.exists():
            data_directory.remove_abandoned(self.data_dir.parent)
        if self._running is None:
            self._forget_former_life()
        try:
            if self._snapshot is not None:
                data_directory.copy_snapshot(self._snapshot, self.data_dir)
                self._snapshot = None
            await super().start()
            self.interception.attach(self.server.server)
        except BaseException:
            if self._running is None:  # otherwise it was running already, with these data
                self.remove_data()
            raise
        try:
            await self.server.loaded()
        except BaseException:  # perhaps cancelled: a broker that was not entered is not stopped
            await self.stop()
            raise

    def _move_from_parent(self) -> None:
        """Chooses a data directory of this process for a broker that was created before a fork: every child may start
        one."""
        if self._is_thrown_away and not data_directory.is_throwaway(self.data_dir):
            self.data_dir = data_directory.throwaway_path()
            self.config = self.config.replace(log_dirs=str(self.data_dir))
            self._in_memory = data_directory.is_in_memory(self.data_dir)

    async def stop(self) -> None:
        """Stop the broker; data in memory are removed. Does nothing when stopped, and in a forked child."""
        if self.is_inherited:
            return
        self._clear("faults")
        try:
            await super().stop()
        finally:
            self.remove_data()

    def remove_data(self) -> None:
        """Removes the data in memory of a broker that has ended."""
        if self._is_thrown_away:
            shutil.rmtree(self.data_dir, ignore_errors=True)

    def keep_ports(self) -> None:
        """The next start uses the present ports."""
        ports = self.server.server.ports
        self.config = self.config.replace(
            listeners=tuple(one._replace(port=ports.get(one.name, one.port)) for one in self.config.listeners)
        )

    async def __aenter__(self) -> AsyncBroker:
        await self.start()
        return self

    @cached_property
    def requests(self) -> RequestLog:
        """Requests of clients since `requests.start()`, and their answers."""
        from kafkalite.testing.requests.request_log import RequestLog  # most tests need neither this nor faults: 5 ms

        return RequestLog(self.interception, lambda: self.server.clock)

    @cached_property
    def faults(self) -> Faults:
        """Errors, delays, broken connections and more, on demand."""
        from kafkalite.testing.faults.faults import Faults

        return Faults(self.interception, lambda: self.server, *self.faults_arguments)

    def _forget_former_life(self) -> None:
        if self._own_clock is not None:
            self._own_clock.forget_timers()
        if "faults" in self.__dict__:
            self.faults.forget_connections()

    def _clear(self, *names: str) -> None:
        """Resets requests and faults, if a test has used them."""
        for name in names:
            if name in self.__dict__:
                getattr(self, name).clear()

    @property
    def clock(self) -> BrokerClock:
        """The clock that advances or freezes the broker's time. Raises RuntimeError if the broker got another clock."""
        if self._own_clock is None:
            raise RuntimeError("this broker was given a clock of its own: advance that one")
        return self._own_clock

    def _has_background_work(self) -> bool:
        return self._running is not None and self._running.has_background_work

    # --- topics

    @property
    def topics(self) -> dict[str, int]:
        """The topics with their numbers of partitions, without internal ones."""
        return {topic.name: len(topic.partitions) for topic in self.server.replica_manager if not topic.internal}

    def topic(self, name: str) -> AsyncTopicHandle:
        """The topic of that name, whether it exists already or not."""
        return AsyncTopicHandle(self, name)

    async def create_topic(self, name: str, partitions: int = 1, **settings: object) -> AsyncTopicHandle:
        """Create a topic, with settings named like Kafka's with underscores (`cleanup_policy="compact"`). Raises
        KafkaError: it exists, a bad name, count or setting."""
        check_text("name", name)
        check_integer("partitions", partitions)
        overrides = {key.replace("_", "."): setting_text(value) for key, value in settings.items()}
        await self.server.topic_admin.create(name, partitions, overrides)
        return AsyncTopicHandle(self, name)

    async def delete_topic(self, name: str) -> None:
        """Raises KafkaError if it does not exist."""
        await self.server.topic_admin.delete(name)

    # --- records

    async def produce(
        self,
        topic: str,
        value: Payload,
        *,
        key: Payload = None,
        headers: HeadersGiven = (),
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> StoredRecord:
        """Append a record, as by a client with acks=all, and return it as it is stored.

        A missing topic is created if auto.create.topics.enable says so. Without `partition` the key decides, as in
        Kafka's producers; records without a key use the partitions in turn. `timestamp` (ms) is now by default. Raises
        KafkaError if a client would be refused, TypeError, ValueError.
        """
        check_text("topic", topic)
        check_integer("partition", partition, or_none=True)
        check_integer("timestamp", timestamp, or_none=True)
        if timestamp is not None and not -(1 << 63) <= timestamp < 1 << 63:
            raise ValueError(f"timestamp is in milliseconds, and {timestamp} has more than 64 bits")
        server = self.server
        now_ms = server.clock.wall_ms()
        new = NewRecord(
            encoded(key), encoded(value), encoded_headers(headers), now_ms if timestamp is None else timestamp
        )
        found = await self._topic_to_write(topic)
        if partition is None:
            partition = self._partition_for(topic, new.key, len(found.partitions))
        target = maintenance.require_partition(found, partition)
        result = await maintenance.append(server, topic, target, new, now_ms)
        stored_ms = new.timestamp if result.log_append_time_ms < 0 else result.log_append_time_ms
        return StoredRecord(
            topic, partition, result.base_offset, stored_ms, new.key, new.value, encoded_headers(headers)
        )

    async def _topic_to_write(self, name: str) -> Topic:
        server = self.server
        if name not in server.replica_manager.by_name and server.config.auto_create_topics_enable:
            return await server.topic_admin.ensure(name, server.config.num_partitions, {})
        return maintenance.require_topic(server, name)

    def _partition_for(self, topic: str, key: bytes | None, count: int) -> int:
        if key is not None:
            return partition_for_key(key, count)
        self._keyless[topic] += 1
        return (self._keyless[topic] - 1) % count

    def records(
        self,
        topic: str,
        partition: int | None = None,
        *,
        isolation: Isolation = READ_UNCOMMITTED,
        key: Decode | None = None,
        value: Decode | None = None,
    ) -> list[StoredRecord]:
        """All records of a topic, or of one partition, as a consumer could read them now: by partition and offset.
        `key` and `value` decode values that are not None (`value=json.loads`). Raises KafkaError if there is no such
        topic or partition.
        """
        check_isolation(isolation)
        found = maintenance.require_topic(self.server, topic)
        if partition is not None:
            maintenance.require_partition(found, partition)
        watch = RecordWatch(self.server, topic, isolation)
        return [
            record.decoded(key, value) for record in watch.poll() if partition is None or record.partition == partition
        ]

    async def wait_for(
        self,
        topic: str,
        count: int = 1,
        *,
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  the name that everybody expects
        isolation: Isolation = READ_UNCOMMITTED,
        key: Decode | None = None,
        value: Decode | None = None,
    ) -> list[StoredRecord]:
        """Wait until the topic has `count` records, and return all its records, as `records` would. The topic may be
        created meanwhile. Raises TimeoutError."""
        found = await self.wait_until(topic, lambda records: len(records) >= count, timeout, isolation)
        if found is None:
            have = len(self.records(topic, isolation=isolation)) if topic in self.topics else "no such topic"
            raise TimeoutError(f"{count} records of {topic!r} did not come within {timeout:g} s: {have}")
        return [record.decoded(key, value) for record in found]

    async def wait_until(
        self,
        topic: str,
        is_enough: Callable[[list[StoredRecord]], object],
        timeout: float = TIMEOUT_S,  # noqa: ASYNC109  the name that everybody expects
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> list[StoredRecord] | None:
        """Wait until `is_enough` is true of the topic's records, and return them; None after the timeout."""
        check_isolation(isolation)
        return await RecordWatch(self.server, topic, isolation).until(is_enough, timeout)

    # --- groups

    @property
    def groups(self) -> Mapping[str, GroupDescription]:
        """The groups, by id, with their members and committed offsets."""
        return maintenance.describe_groups(self.server)

    def share_group(self, group: str) -> AsyncShareGroup:
        """The share group of that id, whether it exists already or not: its members, and the records in flight."""
        from kafkalite.testing.share_groups import AsyncShareGroup

        check_text("group", group)
        return AsyncShareGroup(lambda: self.server, group)

    def lag(self, group: str, topic: str | None = None, *, isolation: Isolation = READ_UNCOMMITTED) -> int:
        """The number of records that consumers of the group will still get: real ones, not a difference of offsets.

        It counts the partitions that the group has committed or is assigned, or all of `topic`; one without a committed
        offset from its start. Those that members of a share group hold are among them. Raises KafkaError for an unknown
        topic, and without `topic` for an unknown group.
        """
        check_isolation(isolation)
        found = self.server.groups.store.by_id.get(group)
        if found is not None and found.kind == SHARE:
            from kafkalite.testing.share_groups import lag

            return lag(self.server, group, topic, isolation)
        return maintenance.lag(self.server, group, topic, isolation)

    # --- the broker's own work, now

    async def compact(self, topic: str) -> None:
        """Compact the whole topic now, except records that min.compaction.lag.ms protects. Raises KafkaError."""
        await maintenance.compact(self.server, topic)

    def roll(self, topic: str) -> None:
        """Begin a new segment in each partition that has records in its last one."""
        maintenance.roll(self.server, topic)

    def expire(self) -> None:
        """Apply retention now, and expire offsets, transactional ids and producers that are due."""
        maintenance.expire(self.server)

    async def reset(self) -> None:
        """Reset the broker: no topics, groups, offsets, transactions or producers, its first settings, and today's
        date. Clients stay connected."""
        self._keyless.clear()
        self._clear("requests", "faults")
        await maintenance.reset(self.server)
        if self._own_clock is not None:
            self._own_clock.reset()

    def snapshot(self, path: str | Path) -> None:
        """Copy the present data to a new or empty directory. No client is served meanwhile. Raises FileExistsError,
        OSError."""
        if len(self.config.data_dirs) > 1:
            raise ValueError("a snapshot is of one data directory, and this broker has several (log.dirs)")
        if Path(path).resolve().is_relative_to(self.data_dir.resolve()):
            raise ValueError(f"{path} is within the data that a snapshot copies")
        data_directory.copy_running(self.data_dir, Path(path))


class AsyncTopicHandle:
    """One topic of a test's broker, which may not exist yet: the broker's methods for it, without its name."""

    def __init__(self, broker: AsyncBroker, name: str) -> None:
        self._broker = broker
        self.name = name

    def __repr__(self) -> str:
        return f"AsyncTopicHandle({self.name!r})"

    async def produce(self, /, value: Payload, **details: Any) -> StoredRecord:
        """As `AsyncBroker.produce`."""
        return await self._broker.produce(self.name, value, **details)

    def records(self, /, partition: int | None = None, **details: Any) -> list[StoredRecord]:
        """As `AsyncBroker.records`."""
        return self._broker.records(self.name, partition, **details)

    async def wait_for(self, /, count: int = 1, **details: Any) -> list[StoredRecord]:
        """As `AsyncBroker.wait_for`."""
        return await self._broker.wait_for(self.name, count, **details)

    async def has(
        self,
        *,
        key: Wanted = ANYTHING,
        value: Wanted = ANYTHING,
        headers: HeadersGiven = (),
        partition: int | None = None,
        within: float = 5.0,
        isolation: Isolation = READ_UNCOMMITTED,
    ) -> StoredRecord:
        """Assert that the topic has a record that matches (`RecordPattern`), or gets one within that many seconds.
        Returns the first. Raises AssertionError with the records that the topic has."""
        broker, pattern = self._broker, RecordPattern(key, value, encoded_headers(headers), partition)
        found = await broker.wait_until(self.name, pattern.first, within, isolation)
        record = None if found is None else pattern.first(found)
        if record is None:
            have = broker.records(self.name, isolation=isolation) if self.name in broker.topics else []
            raise AssertionError(pattern.missing(self.name, within, broker.topics, have))
        return record


def _start_cleaner_thread(on_message: Callable[[Any], None], on_end: Callable[[str], None]) -> WorkerThread:
    from kafkalite.cleaner.workers.worker_thread import start_thread

    return start_thread(on_message, on_end)
