"""A streaming query under kill -9, over a broker that produces, rolls, deletes by retention, compacts, and aborts
transactions meanwhile: in the Parquet every record is there once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import ServedBroker
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S
from tests.system.spark.streaming_query import RUNNING

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
parquet = pytest.importorskip("pyarrow.parquet")

LIMIT_S = 240.0
PARTITIONS = 2
VALUE_BYTES = 200
UNREAD_MAX = 600  # records of a partition: half of what retention leaves
RETENTION_BYTES = 2 * UNREAD_MAX * VALUE_BYTES
KEYS = 40
SEGMENT_BYTES = 60_000
BROKER = {
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.retention.check.interval.ms": "200",
    "log.segment.delete.delay.ms": "100",
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.01",
}
TOPICS = {
    "deleted": {"retention.bytes": str(RETENTION_BYTES)},
    "compacted": {"cleanup.policy": "compact"},
    "ledger": {},
}

Row = tuple[str, int, int]
Offsets = dict[str, dict[str, int]]


class Writing:
    """Threads of one producer each, which never are further ahead of the query than retention allows."""

    def __init__(self, bootstrap: str, checkpoint: Path, seed: int) -> None:
        self.checkpoint = checkpoint
        self.chance = random.Random(seed)
        self.committed: dict[Row, tuple[bytes, bytes]] = {}  # (key, value) of every record that must be read
        self.aborted = 0
        self.ends: dict[tuple[str, int], int] = {}
        self.stopped = threading.Event()
        self.bootstrap = bootstrap
        self.numbers = iter(range(1 << 60))
        self.thread = threading.Thread(target=self._run, daemon=True)

    def stop(self) -> None:
        self.stopped.set()
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        settings = {"bootstrap.servers": self.bootstrap, "linger.ms": 5, "enable.idempotence": True}
        plain = Producer({**settings, "compression.type": "lz4"})
        ledger = Producer({**settings, "transactional.id": "ledger"})
        ledger.init_transactions(DEADLINE_S)
        while not self.stopped.wait(0.02):
            read = self.read_offsets()
            for topic in ("deleted", "compacted"):
                self._write(plain, topic, read, self.committed)
            plain.flush(DEADLINE_S)
            ledger.begin_transaction()
            rows: dict[Row, tuple[bytes, bytes]] = {}
            self._write(ledger, "ledger", read, rows)
            assert ledger.flush(DEADLINE_S) == 0
            if self.chance.random() < 0.3:
                ledger.abort_transaction(DEADLINE_S)
                self.aborted += len(rows)
            else:
                ledger.commit_transaction(DEADLINE_S)
                self.committed |= rows

    def _write(self, producer: Producer, topic: str, read: Offsets, rows: dict[Row, tuple[bytes, bytes]]) -> None:
        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            row = (message.topic(), message.partition(), message.offset())
            rows[row] = (message.key(), message.value())
            self.ends[row[:2]] = row[2] + 1

        for partition in range(PARTITIONS):
            written = self.ends.get((topic, partition), 0)
            if written - read.get(topic, {}).get(str(partition), 0) > UNREAD_MAX - 100:
                continue
            for _ in range(self.chance.randrange(1, 60)):
                value = b"%d " % next(self.numbers)
                key = b"%d" % self.chance.randrange(KEYS)
                value += self.chance.randbytes(VALUE_BYTES - len(value))
                producer.produce(topic, value, key, partition, on_delivery=delivered)
            producer.poll(0)

    def read_offsets(self) -> Offsets:
        """The offsets up to which the query has certainly read."""
        with suppress(FileNotFoundError):
            done = max((int(name) for name in os.listdir(self.checkpoint / "commits") if name.isdecimal()), default=-1)
            if done >= 0:
                _, _, line = (self.checkpoint / "offsets" / str(done)).read_text().split("\n")
                offsets: Offsets = json.loads(line)
                return offsets
        return {}


def run(place: Path, data_dir: Path, kill_after_s: float | None, *more: object) -> tuple[int, str]:
    """The application; its whole process group is killed so long after the query has started."""
    command = [sys.executable, "-m", "tests.system.spark.streaming_query", data_dir, place, ",".join(TOPICS), *more]
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--driver-java-options '-XX:+UseSerialGC -XX:TieredStopAtLevel=1' pyspark-shell",
    }  # fmt: skip
    process = subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT,
        env=environment, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    timers = [threading.Timer(LIMIT_S, kill, [process])]
    timers[0].start()
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            if line.strip() == RUNNING and kill_after_s is not None:
                timers.append(threading.Timer(kill_after_s, kill, [process]))
                timers[1].start()
        process.wait()
    finally:
        for timer in timers:
            timer.cancel()
        kill(process)
    return process.wait(), "".join(lines)


def kill(process: subprocess.Popen[str]) -> None:
    """The application, its JVM and the JVM's Python workers."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def check(rows: list[tuple[str, int, int, bytes]], writing: Writing) -> None:
    """Each record once; of the compacted topic those at least that no later one of the same key replaced."""
    times = Counter(row[:3] for row in rows)
    assert [row for row, count in times.items() if count > 1] == [], "records twice"
    found = {row[:3]: row[3] for row in rows}
    assert [row for row in found if row not in writing.committed] == [], "records that were aborted, or never written"
    assert all(writing.committed[row][1] == value for row, value in found.items())
    missing = [row for row in writing.committed if row not in found]
    assert [row for row in missing if row[0] != "compacted"] == [], "records lost"
    last = {(row[1], key): row[2] for row, (key, _) in sorted(writing.committed.items()) if row[0] == "compacted"}
    assert [row for row in missing if last[row[1], writing.committed[row][0]] == row[2]] == [], "last of a key lost"


def story(place: Path, kills: int, seed: int) -> dict[str, int]:
    """A query that is killed so many times, and then ends."""
    chance = random.Random(seed)
    broker = ServedBroker(place / "data", place / "broker.log", BROKER)
    broker.start()
    try:
        topics = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics(topics).values():
            future.result(DEADLINE_S)
        writing = Writing(broker.bootstrap, place / "checkpoint", seed)
        writing.thread.start()
        for _ in range(kills):
            code, output = run(place, broker.data_dir, chance.uniform(0.0, 6.0))
            assert code == -signal.SIGKILL, output[-6000:]
        writing.stop()
        code, output = run(place, broker.data_dir, None, place / "rows.parquet")
        assert code == 0, output[-6000:]
        begins = [min(int(path.stem) for path in (broker.data_dir / f"deleted-{at}").glob("*.log")) for at in (0, 1)]
    finally:
        broker.kill()
    table = parquet.read_table(place / "rows.parquet")
    rows = list(zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset", "value")), strict=True))
    check(rows, writing)
    compacted = sum(row[0] == "compacted" for row in writing.committed) - sum(row[0] == "compacted" for row in rows)
    batches = len([name for name in os.listdir(place / "checkpoint" / "commits") if name.isdecimal()])
    return {"kills": kills, "rows": len(rows), "aborted": writing.aborted, "deleted before": min(begins),
            "compacted away": compacted, "micro-batches in the checkpoint": batches}  # fmt: skip


@pytest.mark.timeout(900)
def test_a_stream_that_is_killed_writes_every_record_once(tmp_path: Path) -> None:
    seen = story(tmp_path, kills=3, seed=1)
    assert seen["aborted"] > 0


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_200_kills(tmp_path: Path) -> None:
    kills = int(os.environ.get("KAFKALITE_STREAM_KILLS", "200"))
    seen = story(tmp_path, kills, seed=int(os.environ.get("KAFKALITE_STREAM_SEED", "7")))
    print(seen)
    assert min(seen.values()) > 0, "the broker deleted, compacted and aborted meanwhile"
