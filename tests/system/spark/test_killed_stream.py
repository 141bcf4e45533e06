"""Streaming queries under kill -9, over a broker that produces, rolls, deletes by retention, compacts, and aborts
transactions meanwhile: in the Parquet of each every record is there once.

Four queries, each with its checkpoint and its output, share one application: its JVM takes longer to start than all of
them to run. They compete for its two tasks, so one kill meets them in different places of their micro-batches.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.broker_process import ServedBroker
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S
from tests.system.spark.streaming_query import RUNNING, WORKING

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
parquet = pytest.importorskip("pyarrow.parquet")

LIMIT_S = 240.0
QUERIES = 4
PARTS = 5  # of the long form, each with a broker of its own
PARTITIONS = 2
VALUE_BYTES = 200
KILL_WITHIN_S = {RUNNING: 10.0, WORKING: 4.0}  # a micro-batch takes a second, the first one several
CROWDED = "Python worker failed to connect back"  # within Spark's 10 s: the machine has too much to do
HALF_MADE = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"  # Spark wants a checkpoint deleted that was killed too early
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
    """A thread with two producers, which never are further ahead of a query than retention allows."""

    def __init__(self, bootstrap: str, places: Sequence[Path], seed: int) -> None:
        self.places = places
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
            read = [read_offsets(place) for place in self.places]
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

    def _write(self, producer: Producer, topic: str, read: list[Offsets], rows: dict[Row, tuple[bytes, bytes]]) -> None:
        def delivered(error: Any, message: Any) -> None:
            assert error is None, error
            row = (message.topic(), message.partition(), message.offset())
            rows[row] = (message.key(), message.value())
            self.ends[row[:2]] = row[2] + 1

        for partition in range(PARTITIONS):
            written = self.ends.get((topic, partition), 0)
            if written - min(offsets.get(topic, {}).get(str(partition), 0) for offsets in read) > UNREAD_MAX - 100:
                continue
            for _ in range(self.chance.randrange(1, 60)):
                value = b"%d " % next(self.numbers)
                key = b"%d" % self.chance.randrange(KEYS)
                value += self.chance.randbytes(VALUE_BYTES - len(value))
                producer.produce(topic, value, key, partition, on_delivery=delivered)
            producer.poll(0)


def read_offsets(place: Path) -> Offsets:
    """The offsets up to which the query has certainly read."""
    done = last_batch(place / "checkpoint" / "commits")
    if done < 0:
        return {}
    _, _, line = (place / "checkpoint" / "offsets" / str(done)).read_text().split("\n")
    offsets: Offsets = json.loads(line)
    return offsets


def last_batch(log: Path) -> int:
    """The number of the last micro-batch in a log of the checkpoint, -1 if there is none."""
    try:
        return max((int(name) for name in os.listdir(log) if name.isdecimal()), default=-1)
    except FileNotFoundError:
        return -1


def run(data_dir: Path, places: Sequence[Path], kill_after: str | None, seconds: float = 0.0) -> tuple[int, str]:
    """The application; its whole process group is killed so long after it has said `kill_after`, or it ends."""
    module, spark_dir = "tests.system.spark.streaming_query", places[0].parent / "spark"
    command = [sys.executable, "-m", module, data_dir, ",".join(TOPICS), spark_dir, *places]
    if kill_after is None:
        command.append("--end")
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
            if line.strip() == kill_after:
                timers.append(threading.Timer(seconds, kill, [process]))
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


def excuse(output: str, places: list[Path]) -> None:
    """An end that is Spark's own affair. A checkpoint that it does not take is deleted, as it asks for, if the query
    has begun no micro-batch."""
    assert CROWDED in output or HALF_MADE in output, output[-6000:]
    if HALF_MADE in output:
        for each in places:
            if last_batch(each / "checkpoint" / "offsets") < 0:
                shutil.rmtree(each / "checkpoint", ignore_errors=True)


def story(place: Path, kills: int, seed: int) -> dict[str, int]:
    """Queries that are killed so many times, all together, and then end."""
    chance = random.Random(seed)
    places = [place / f"query-{number}" for number in range(QUERIES)]
    broker = ServedBroker(place / "data", place / "broker.log", BROKER)
    broker.start()
    cut = done = 0
    try:
        topics = [NewTopic(name, PARTITIONS, 1, config=config) for name, config in TOPICS.items()]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics(topics).values():
            future.result(DEADLINE_S)
        writing = Writing(broker.bootstrap, places, seed)
        writing.thread.start()
        while done < kills:
            line = chance.choice([RUNNING, WORKING])
            moment = chance.uniform(0.0, KILL_WITHIN_S[line])
            code, output = run(broker.data_dir, places, line, moment)
            if code != -signal.SIGKILL:
                excuse(output, places)
                continue
            begun = [last_batch(each / "checkpoint" / "offsets") for each in places]
            ended = [last_batch(each / "checkpoint" / "commits") for each in places]
            done, cut = done + QUERIES, cut + sum(map(int.__gt__, begun, ended))
            print(f"{done} kills, {moment:.2f} s after {line!r}: begun {begun}, ended {ended}", flush=True)
        writing.stop()
        code, output = run(broker.data_dir, places, None)
        while code != 0:
            excuse(output, places)
            code, output = run(broker.data_dir, places, None)
        begins = [min(int(path.stem) for path in (broker.data_dir / f"deleted-{at}").glob("*.log")) for at in (0, 1)]
    finally:
        broker.kill()
    compacted = 0
    for each in places:
        table = parquet.read_table(each / "rows.parquet")
        rows = list(zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset", "value")), strict=True))
        check(rows, writing)
        compacted += sum(row[0] == "compacted" for row in writing.committed) - sum(
            row[0] == "compacted" for row in rows
        )
    batches = min(last_batch(each / "checkpoint" / "commits") + 1 for each in places)
    return {"kills": done, "inside a micro-batch": cut, "rows": len(writing.committed), "aborted": writing.aborted,
            "deleted before": min(begins), "compacted away": compacted, "micro-batches": batches}  # fmt: skip


@pytest.mark.timeout(900)
def test_a_stream_that_is_killed_writes_every_record_once(tmp_path: Path) -> None:
    seen = story(tmp_path, kills=QUERIES, seed=5)  # amid micro-batches
    assert seen["aborted"] > 0


@pytest.mark.long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(PARTS))
def test_200_kills(tmp_path: Path, part: int) -> None:
    kills = int(os.environ.get("KAFKALITE_STREAM_KILLS", "200")) // PARTS
    seen = story(tmp_path, kills, seed=int(os.environ.get("KAFKALITE_STREAM_SEED", "7")) + part)
    print(seen)
    assert min(seen.values()) > 0, "the broker deleted, compacted and aborted meanwhile"
