"""Topics with random histories on a live broker: everything that may stand in a log comes to stand there by requests.

Stock producers write with every codec, in transactions that commit, abort or stay open; raw produce requests bring
formats v0 and v1, batches with any timestamps, null keys and values; segments are small, roll, are compacted by the
cleaner, deleted by DeleteRecords and by retention. Some topics begin with segments of old formats that were in the data
directory before the broker was there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

import kafkalite
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import ErrorCode
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.protocol.messages.cleaner import RunCleanerRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.message_set import V0, V1, build_set
from tests.support.inspection.random_logs import TIME_MS, RandomLog
from tests.support.wait import DEADLINE_S

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCERS = 3
_HOUR_MS = 3_600_000
SETTINGS = {
    "log_cleaner_backoff_ms": 100 * _HOUR_MS,  # the cleaner and retention work when they are told to
    "log_retention_check_interval_ms": 100 * _HOUR_MS,
    "log_segment_delete_delay_ms": 100 * _HOUR_MS,
    "auto_create_topics_enable": False,
    "log_index_interval_bytes": 200,
    "transaction_state_log_num_partitions": 1,
    "transaction_max_timeout_ms": _HOUR_MS,  # what is open stays open however slow the machine is
    "offsets_topic_num_partitions": 1,
}


class Writers:
    """A broker, and the clients that write to it, shared by its topics."""

    def __init__(self, data_dir: Path, *, adopt: bool = False) -> None:
        self.data_dir = data_dir
        self.broker = kafkalite.Broker(data_dir=data_dir, port=0, adopt=adopt, **SETTINGS)
        self.broker.__enter__()
        self.bootstrap = self.broker.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.client = BlockingClient(self.bootstrap, DEADLINE_S)
        self.plain = [self._producer({"compression.type": codec}) for codec in CODECS]
        self.transactional = [
            self._producer(
                {"transactional.id": f"t{n}", "compression.type": CODECS[n], "transaction.timeout.ms": _HOUR_MS}
            )
            for n in range(PRODUCERS)
        ]
        for producer in self.transactional:
            producer.init_transactions(DEADLINE_S)
        self.is_open = [False] * PRODUCERS

    def _producer(self, settings: dict[str, Any]) -> Producer:
        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, **settings})

    def end(self, number: int, *, commits: bool) -> None:
        if self.is_open[number]:
            producer = self.transactional[number]
            (producer.commit_transaction if commits else producer.abort_transaction)(DEADLINE_S)
            self.is_open[number] = False

    def __enter__(self) -> Writers:
        return self

    def __exit__(self, *_: object) -> None:
        for number in range(PRODUCERS):
            self.end(number, commits=False)
        self.client.__exit__(None, None, None)
        self.broker.__exit__(None, None, None)

    def with_log(self, of: tuple[str, int], deed: Callable[[PartitionLog], object]) -> None:
        """Does the deed to a partition's log where it lives, on the broker's loop."""

        async def do() -> None:
            running = self.broker.server
            log = running.logs.get(*of)
            assert isinstance(log, PartitionLog)
            deed(log)
            await asyncio.sleep(0)

        self.broker.run(do)


def _add_v2(log: RandomLog) -> None:
    """Not in a transaction: one that stays open behind a gap ends what is committed where no consumer gets to."""
    records = log.records()
    log._put(build_batch(records, base_offset=log.offset, codec=log.random.randrange(5)), len(records) - 1, -1)


class TopicHistory:
    """One topic and its deeds, drawn from a seed. `write_before` comes before its broker is there."""

    def __init__(self, seed: int, *, begins_old: bool | None = None, policy: str = "") -> None:
        self.random = draw = Random(seed)
        self.topic = f"t{seed}"
        self.partitions = draw.choice((1, 1, 2, 3))
        self.policy = policy or draw.choice(("delete", "delete", "compact", "compact,delete"))
        self.segment_bytes = draw.choice((3000, 3000, 10_000, 100_000))
        self.config = {
            "cleanup.policy": self.policy,
            "segment.bytes": str(self.segment_bytes),
            "index.interval.bytes": draw.choice(("1", "200", "4096")),
            "compression.type": draw.choice(("producer", "producer", "producer", *CODECS[1:], "uncompressed")),
            "message.timestamp.type": draw.choice(("CreateTime", "CreateTime", "CreateTime", "LogAppendTime")),
            "message.timestamp.before.max.ms": str((1 << 63) - 1),
            "delete.retention.ms": "0",
            "min.cleanable.dirty.ratio": "0.01",
            "retention.ms": "-1",
        }
        self.begins_old = draw.random() < 0.25 if begins_old is None else begins_old
        self.is_quiet = draw.random() < 0.4
        self.told: list[str] = []

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.policy

    def write_before(self, data_dir: Path) -> None:
        """Segments of formats v0, v1 and v2 that were there first."""
        for partition in range(self.partitions if self.begins_old else 0):
            directory = data_dir / f"{self.topic}-{partition}"
            offset = 0
            for _ in range(self.random.randrange(1, 4)):
                log = RandomLog(self.random.randrange(1 << 30))
                log.base_offset = log.offset = offset
                deeds = [log.add_legacy, log.add_legacy, log.add_legacy, log.add_empty]
                if self.random.random() < 0.3:
                    deeds.append(partial(_add_v2, log))  # as after message.format.version was lowered
                for _ in range(self.random.randrange(1, 8)):
                    self.random.choice(deeds)()
                log.index.clear()
                log.times.clear()
                log.write(directory)
                for name in (".index", ".timeindex"):  # the broker makes them
                    (directory / f"{offset:020d}").with_suffix(name).unlink()
                offset = log.offset

    def create(self, writers: Writers) -> None:
        """The topic; one that is there already gets its configuration."""
        if self.begins_old:
            resource = ConfigResource(
                ResourceType.TOPIC,
                self.topic,
                incremental_configs=[
                    ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
                    for name, value in self.config.items()
                ],
            )
            for done in writers.admin.incremental_alter_configs([resource]).values():
                done.result(DEADLINE_S)
            return
        topic = NewTopic(self.topic, self.partitions, 1, config=self.config)
        for done in writers.admin.create_topics([topic]).values():
            done.result(DEADLINE_S)

    def live(self, writers: Writers, deeds: int, names: Sequence[str] = ()) -> None:
        """So many deeds, of these names, or of all that go with the topic. Some old topics stay as they were."""
        if self.begins_old and self.is_quiet:
            return
        if not names:
            names = ["produce", "produce", "raw", "raw", "raw", "old", "transact", "transact", "end", "end", "roll"]
            if self.is_compacted:
                names += ["compact"] * 2
            if "delete" in self.policy:
                names += ["delete_records", "retain"]
        for _ in range(deeds):
            name = self.random.choice(names)
            self.told.append(name)
            getattr(self, name)(writers)

    def leave(self, writers: Writers) -> None:
        """Ends the transactions that are open."""
        for number in range(PRODUCERS):
            writers.end(number, commits=self.random.random() < 0.5)

    # deeds

    def _key(self) -> bytes | None:
        draw = self.random
        if self.is_compacted:
            return b"k%d" % draw.randrange(8)
        return draw.choice((None, b"", b"k%d" % draw.randrange(8), draw.randbytes(draw.randrange(20))))

    def _value(self) -> bytes | None:
        draw = self.random
        size = draw.choice((0, 5, 5, 30, 60, 60 if self.segment_bytes < 10_000 else 300))
        return draw.choice((None, draw.randbytes(size), b"x" * size, b"y" * size))

    def _headers(self) -> list[tuple[str, bytes | None]]:
        draw = self.random
        count = draw.choice((0, 0, 0, 1, 3))
        return [
            (draw.choice(("", "h", "äö", "trace")), draw.choice((None, b"", b"v", b"\xff\0"))) for _ in range(count)
        ]

    def _time(self) -> int:
        return TIME_MS + self.random.choice((0, 0, 1000, 5000)) + 50 * self.random.randrange(40)

    def _records(self, most: int) -> list[NewRecord]:
        count = self.random.choice((1, 2, self.random.randrange(1, most)))
        return [NewRecord(self._key(), self._value(), self._headers(), self._time()) for _ in range(count)]

    def _send(self, producer: Producer, most: int) -> None:
        partition = self.random.randrange(self.partitions)
        for record in self._records(most):
            producer.produce(
                self.topic,
                record.value,
                record.key,
                partition,
                timestamp=record.timestamp,
                headers=list(record.headers),
            )
        assert producer.flush(DEADLINE_S) == 0

    def produce(self, writers: Writers) -> None:
        self._send(self.random.choice(writers.plain), 16)

    def raw(self, writers: Writers) -> None:
        batch = build_batch(self._records(40), codec=self.random.randrange(5))
        self._send_raw(writers, batch, 7)

    def old(self, writers: Writers) -> None:
        """A message set, which the broker brings to its own format."""
        draw = self.random
        magic = draw.choice((V0, V1))
        rows = [(n, self._time(), self._key(), self._value()) for n in range(draw.randrange(1, 9))]
        self._send_raw(writers, build_set(rows, magic, codec=draw.randrange(4)), 2)

    def _send_raw(self, writers: Writers, data: bytes | bytearray, version: int) -> None:
        partition = PartitionProduceData(index=self.random.randrange(self.partitions), records=memoryview(data))
        topic = TopicProduceData(name=self.topic, partition_data=[partition])
        answer = writers.client.ask(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic]), version)
        error = answer.responses[0].partition_responses[0].error_code
        assert error in (0, ErrorCode.RECORD_LIST_TOO_LARGE), f"{self.topic}: produce answers {error}"

    def transact(self, writers: Writers) -> None:
        """Begins a transaction, or goes on with one; transactions of several producers lie side by side."""
        number = self.random.randrange(PRODUCERS)
        if not writers.is_open[number]:
            writers.transactional[number].begin_transaction()
            writers.is_open[number] = True
        self._send(writers.transactional[number], 6)

    def end(self, writers: Writers) -> None:
        writers.end(self.random.randrange(PRODUCERS), commits=self.random.random() < 0.5)

    def _any(self) -> tuple[str, int]:
        return self.topic, self.random.randrange(self.partitions)

    def roll(self, writers: Writers) -> None:
        writers.with_log(self._any(), lambda log: log.roll(TIME_MS))

    def delete_records(self, writers: Writers) -> None:
        found: list[tuple[int, int]] = []
        of = self._any()
        writers.with_log(of, lambda log: found.append((log.start_offset, log.end_offset)))
        start, end = found[0]
        offset = self.random.choice((self.random.randint(start, end), *[start + (end - start) // 6] * 3))
        for done in writers.admin.delete_records([TopicPartition(*of, offset)]).values():
            done.result(DEADLINE_S)

    def compact(self, writers: Writers) -> None:
        rolls = self.random.random() < 0.7
        request = RunCleanerRequest(topic=self.topic, partitions=None, rolls=rolls, waits=True, timeout_ms=30_000)
        answer = writers.client.ask(request, 0)
        assert not answer.error_code, answer

    def retain(self, writers: Writers) -> None:
        """Retention by size: the older half goes."""
        now_ms = TIME_MS + 10_000

        def shrink(log: PartitionLog) -> None:
            config = log.config
            size = sum(segment.size_bytes for segment in log.segments)
            log.config = config.replace(retention_bytes=size // 2)
            try:
                log.delete_old_segments(now_ms, 100)
            finally:
                log.config = config

        writers.with_log(self._any(), shrink)
