"""Compaction as clients and operators meet it: a whole broker, a worker process, stock clients, and files."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import uvloop
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kafkalite.cleaner.schedule import RunOutcome
from kafkalite.cleaner.status import CleaningState, PartitionCleaning
from kafkalite.common.errors import ConfigError
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.checkpoint_file import read_offsets
from kafkalite.log.storage.files import Files
from kafkalite.record.record import Record, read_records
from kafkalite.server.broker import Broker
from tests.support.manual_clock import ManualClock
from tests.support.wait import DEADLINE_S

HOUR_MS = 3_600_000
COMPACT = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.01"}


class Scene:
    """A broker, and a client of it. The client blocks, so it works in a thread (`aside`)."""

    def __init__(self, broker: Broker, clock: ManualClock | None) -> None:
        self.broker = broker
        self.clock = clock
        self.running = broker._require()
        self.cleaner = self.running.cleaner
        self._client = {"bootstrap.servers": broker.bootstrap_servers}

    def log(self, topic: str, partition: int = 0) -> PartitionLog:
        return self.running.replica_manager.require(topic, partition).log

    def row(self, topic: str = "t") -> PartitionCleaning:
        (row,) = self.cleaner.rows([(topic, 0)])
        return row

    async def create(self, topic: str = "t", **configs: object) -> None:
        own = COMPACT | {name.replace("_", "."): str(value) for name, value in configs.items()}

        def create() -> None:
            admin = AdminClient(self._client)
            for done in admin.create_topics([NewTopic(topic, 1, 1, config=own)]).values():
                done.result(DEADLINE_S)

        await asyncio.to_thread(create)

    async def write(self, records: list[tuple[str, str | None]], topic: str = "t", **settings: Any) -> list[int]:
        """The offset of each, in order."""

        def write() -> list[int]:
            offsets: list[int] = []
            producer = Producer(self._client | {"linger.ms": 1, "batch.num.messages": 5} | settings)
            for key, value in records:
                producer.produce(topic, value, key, on_delivery=lambda error, sent: offsets.append(sent.offset()))
                producer.poll(0)
            assert producer.flush(20) == 0
            return offsets

        return await asyncio.to_thread(write)

    async def read(self, topic: str = "t") -> list[tuple[int, str, str | None]]:
        """(offset, key, value) of everything, by a stock consumer."""
        settings = {
            "group.id": "reader",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 0,
        }  # a clock may stand still

        def read() -> list[tuple[int, str, str | None]]:
            consumer = Consumer(self._client | settings)
            consumer.assign([TopicPartition(topic, 0, 0)])
            found = []
            try:
                while (message := consumer.poll(20)) is not None and message.error() is None:
                    value = message.value()
                    found.append((message.offset(), message.key().decode(), None if value is None else value.decode()))
                assert message is not None, "the end of the partition was not told"
                return found
            finally:
                consumer.close()

        return await asyncio.to_thread(read)

    async def commit(self, group: str, offset: int) -> None:
        def commit() -> None:
            consumer = Consumer(self._client | {"group.id": group, "enable.auto.commit": False})
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
            consumer.close()

        await asyncio.to_thread(commit)

    async def committed(self, group: str) -> int:
        def committed() -> int:
            consumer = Consumer(self._client | {"group.id": group})
            (found,) = consumer.committed([TopicPartition("t", 0)], 20)
            consumer.close()
            return int(found.offset)

        return await asyncio.to_thread(committed)

    async def compact(self, topic: str = "t") -> list[RunOutcome]:
        """With all that is in the active segment."""
        done: asyncio.Future[list[RunOutcome]] = asyncio.get_running_loop().create_future()
        self.cleaner.run_now(topic, None, True, done.set_result)
        while not done.done() and self.clock is not None:
            self.clock.advance(0)
            await asyncio.wait({done}, timeout=0.01)
        return await asyncio.wait_for(done, DEADLINE_S)

    async def until(self, probe: Callable[[], bool]) -> None:
        """A process is at work: let the loop turn until it is so."""
        async with asyncio.timeout(DEADLINE_S):
            while not probe():
                if self.clock is not None:
                    self.clock.advance(50)
                await asyncio.sleep(0.005)  # until the next look; the worker needs the processor too

    def records(self, topic: str = "t") -> list[Record]:
        """As the log has them."""
        log = self.log(topic)
        return [record for batch in log.batches(log.start_offset) for record in read_records(batch)]

    def worker_pids(self) -> list[int]:
        return [slot.worker.pid for slot in self.cleaner._workers.slots]  # type: ignore[union-attr]


Story = Callable[[Scene], Awaitable[None]]


def tell(data_dir: Path, story: Story, clock: ManualClock | None = None, **settings: Any) -> None:
    async def scene() -> None:
        async with Broker(data_dir=data_dir, port=0, clock=clock, **settings) as broker:
            await story(Scene(broker, clock))

    uvloop.run(scene())


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_consumers_find_the_last_value_of_every_key_at_its_offset(tmp_path: Path, codec: str) -> None:
    async def story(scene: Scene) -> None:
        await scene.create()
        chance = random.Random(7)
        expected: dict[str, tuple[int, str | None]] = {}
        for _ in range(3):
            records: list[tuple[str, str | None]] = [
                (f"key-{chance.randrange(60)}", f"value {number}") for number in range(700)
            ]
            offsets = await scene.write(records, **{"compression.type": codec})
            expected |= {key: (offset, value) for offset, (key, value) in zip(offsets, records, strict=True)}
            (outcome,) = await scene.compact()
            assert outcome.error is None and outcome.stats is not None
            found = await scene.read()
            assert {key: (offset, value) for offset, key, value in found} == expected
            assert len(found) == len(expected), "each key once"
        assert scene.row().runs == 3
        assert scene.log("t").end_offset == 2100

    tell(tmp_path, story)


def test_it_comes_by_itself_and_the_checkpoint_says_how_far(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        assert scene.clock is not None
        await scene.create()
        await scene.write([(f"key-{number % 7}", f"value {number}") for number in range(800)])
        scene.clock.advance(15_000)
        await scene.until(lambda: scene.row().runs == 1)
        row = scene.row()
        assert row.why_not == "all dirty records are in the active segment"
        assert row.first_dirty_offset == scene.log("t").segments[-1].base_offset
        kept = read_offsets(Files(), f"{tmp_path}/cleaner-offset-checkpoint")
        assert kept["t", 0] == row.first_dirty_offset
        assert len(await scene.read()) < 200

    tell(tmp_path, story, ManualClock())


def test_a_restart_finds_what_was_compacted_and_goes_on_from_there(tmp_path: Path) -> None:
    found: list[object] = []

    async def first(scene: Scene) -> None:
        await scene.create()
        await scene.write([(f"key-{number % 7}", f"value {number}") for number in range(800)])
        await scene.compact()
        found.append(await scene.read())

    async def second(scene: Scene) -> None:
        assert await scene.read() == found[0]
        assert scene.row().first_dirty_offset == 800
        assert await scene.write([("key-1", "newest")]) == [800]
        await scene.compact()
        assert [record for record in await scene.read() if record[1] == "key-1"] == [(800, "key-1", "newest")]

    tell(tmp_path, first)
    tell(tmp_path, second)


def test_a_tombstone_is_read_for_its_time_and_then_gone(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        assert scene.clock is not None
        await scene.create(delete_retention_ms=HOUR_MS)
        await scene.write([("gone", "value"), ("stays", "value")])
        await scene.write([("gone", None)])
        await scene.compact()
        assert [(record[1], record[2]) for record in await scene.read()] == [("stays", "value"), ("gone", None)]
        scene.clock.advance(HOUR_MS - 1000)
        await scene.write([("other", "1")])
        await scene.compact()
        assert ("gone", None) in [(record[1], record[2]) for record in await scene.read()]
        scene.clock.advance(2000)
        await scene.write([("other", "2")])
        await scene.compact()
        assert [(record[1], record[2]) for record in await scene.read()] == [("stays", "value"), ("other", "2")]

    tell(tmp_path, story, ManualClock())


def test_group_offsets_outlive_the_compaction_of_their_topic(tmp_path: Path) -> None:
    groups = {f"group-{number}": 10 * number + 9 for number in range(5)}

    async def first(scene: Scene) -> None:
        await scene.create()
        await scene.write([("key", "value")])
        for group, last in groups.items():
            for offset in (1, 2, last):
                await scene.commit(group, offset)
        before = {index: len(scene_records(scene, index)) for index in range(4)}
        outcomes = await scene.compact("__consumer_offsets")
        assert [outcome.error for outcome in outcomes] == [None] * 4
        after = {index: len(scene_records(scene, index)) for index in range(4)}
        assert sum(after.values()) < sum(before.values())
        for group, last in groups.items():
            assert await scene.committed(group) == last

    async def second(scene: Scene) -> None:
        for group, last in groups.items():
            assert await scene.committed(group) == last

    def scene_records(scene: Scene, index: int) -> list[Record]:
        log = scene.log("__consumer_offsets", index)
        return [record for batch in log.batches(log.start_offset) for record in read_records(batch)]

    settings = {"offsets_topic_num_partitions": 4, "group_initial_rebalance_delay_ms": 0}
    tell(tmp_path, first, **settings)
    tell(tmp_path, second, **settings)


def test_old_records_go_where_delete_stands_beside_compact(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        assert scene.clock is not None
        await scene.create(cleanup_policy="compact,delete", retention_ms=HOUR_MS)
        await scene.write([(f"key-{number % 7}", f"value {number}") for number in range(400)])
        await scene.compact()
        assert len(await scene.read()) == 7
        log = scene.log("t")
        await scene.until(lambda: log.flusher.named_point == log.end_offset)
        # whose time counts is the client's, and that is the machine's: far from this clock
        log.config = log.config.replace(retention_ms=0, message_timestamp_type="CreateTime")
        largest_ms = max(segment.largest_timestamp_ms() for segment in log.segments[:-1])
        scene.clock.step_wall(largest_ms + 1 - scene.clock.wall_ms())
        await scene.until(lambda: log.start_offset == log.end_offset)
        assert await scene.read() == []

    tell(tmp_path, story, ManualClock())


class TestUnderWay:
    """A cleaning that is kept waiting by its throttle, so that something may come between."""

    SLOWLY: ClassVar = {"log_cleaner_io_max_bytes_per_second": 1}

    async def begin(self, scene: Scene) -> None:
        await scene.create()
        await scene.write([(f"key-{number % 7}", f"value {number}") for number in range(400)])
        scene.cleaner.run_now("t", None, True, lambda outcomes: None)
        await scene.until(lambda: scene.row().state is CleaningState.CLEANING)
        (slot,) = scene.cleaner._workers.slots
        await scene.until(lambda: slot.is_ready)

    def test_a_stop_waits_for_nothing_and_leaves_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        this_thread, start = threading.current_thread(), threading.Thread.start
        threads: list[threading.Thread] = []  # started from here; other tests' brokers may start theirs meanwhile

        def start_and_remember(thread: threading.Thread) -> None:
            if threading.current_thread() is this_thread:
                threads.append(thread)
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", start_and_remember)

        async def story(scene: Scene) -> None:
            await self.begin(scene)
            pids.extend(scene.worker_pids())

        async def after(scene: Scene) -> None:
            assert len(await scene.read()) == 400

        pids: list[int] = []
        tell(tmp_path, story, **self.SLOWLY)
        gc.collect()
        assert threads and not any(thread.is_alive() for thread in threads)
        assert pids and not any(os.path.exists(f"/proc/{pid}/fd") for pid in pids)
        assert [path.name for path in (tmp_path / "t-0").iterdir() if ".cleaned" in path.name] == []
        tell(tmp_path, after)

    def test_a_worker_that_is_killed_is_followed_by_another_and_then_the_log_is_uncleanable(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def story(scene: Scene) -> None:
            await self.begin(scene)
            (first,) = scene.worker_pids()
            os.kill(first, signal.SIGKILL)
            await scene.until(lambda: scene.worker_pids() not in ([], [first]))
            (slot,) = scene.cleaner._workers.slots
            await scene.until(lambda: slot.is_ready)
            os.kill(scene.worker_pids()[0], signal.SIGKILL)
            await scene.until(lambda: scene.row().state is CleaningState.UNCLEANABLE)
            assert "killed by signal 9" in str(scene.row().why_not) and "while it compacted t-0" in caplog.text
            assert scene.cleaner.totals().worker_deaths == 2
            assert len(await scene.read()) == 400
            await scene.write([("key-1", "the broker goes on")])

        tell(tmp_path, story, **self.SLOWLY)

    def test_a_topic_that_is_deleted_comes_back_empty(self, tmp_path: Path) -> None:
        async def story(scene: Scene) -> None:
            await self.begin(scene)
            await scene.running.topic_admin.delete("t")
            await scene.until(lambda: not scene.cleaner._tasks)
            await scene.create()
            await scene.write([("key", "value")])
            assert [record[1:] for record in await scene.read()] == [("key", "value")]
            assert scene.row().first_dirty_offset == 0 and scene.row().error is None

        tell(tmp_path, story, **self.SLOWLY)

    def test_clients_do_not_feel_it(self, tmp_path: Path) -> None:
        async def story(scene: Scene) -> None:
            await self.begin(scene)
            assert await scene.write([("key-1", "meanwhile")]) == [400]
            assert len(await scene.read()) == 401

        tell(tmp_path, story, **self.SLOWLY)


def test_the_settings_take_effect_while_it_runs(tmp_path: Path) -> None:
    async def story(scene: Scene) -> None:
        change = scene.running.dynamic_config.change
        await change("0", lambda old: {"log.cleaner.threads": "2", "log.cleaner.backoff.ms": "200"}, False)
        assert scene.cleaner._config.log_cleaner_threads == 2
        with pytest.raises(
            ConfigError, match=r"log\.cleaner\.threads=5 must not be less than half or more than double"
        ):
            await change("0", lambda old: {"log.cleaner.threads": "5"}, False)
        with pytest.raises(ConfigError, match=r"log\.cleaner\.dedupe\.buffer\.size=1000 must be more than 1 MiB"):
            await change("0", lambda old: {"log.cleaner.dedupe.buffer.size": "1000"}, False)
        await scene.create()
        await scene.write([(f"key-{number % 7}", f"value {number}") for number in range(400)])
        await scene.until(lambda: scene.row().runs > 0)

    tell(tmp_path, story)


def test_nothing_runs_where_it_is_disabled(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def first(scene: Scene) -> None:
        await scene.create()
        await scene.write([(f"key-{number % 7}", f"value {number}") for number in range(400)])
        (outcome,) = await scene.compact()
        assert outcome.error == "log.cleaner.enable is false"

    async def second(scene: Scene) -> None:
        assert len(await scene.read()) == 400

    tell(tmp_path, first, log_cleaner_enable=False)
    assert "log.cleaner.enable is false: topics" not in caplog.text
    tell(tmp_path, second, log_cleaner_enable=False)
    assert "log.cleaner.enable is false: topics with cleanup.policy=compact" in caplog.text
