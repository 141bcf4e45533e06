"""A start beside Apache Kafka's on copies of the same directory: segments with offsets too far apart, and gaps.

Both keep every batch. Both split a segment that no index can express (LogSegmentOffsetOverflowException), at the same
batches, and name the parts by their first batch. The first part is the exception: here it keeps the segment's name,
so that the start of the log does not move; the places are the same where the first batch is at the base. Below the
recovery point Kafka splits no segment before the cleaner meets it. A segment without an offset index is left out: Kafka
keeps it beside its parts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.recovery.log_loader import LoadOptions, load
from kafkalite.log.state.producer_state import EXPIRATION_MS
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch
from tests.compatibility.interop.java_dump_log import judge
from tests.compatibility.interop.kafka_cleaner import VERSION, KafkaCleaner, kafka_cleaner

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"
NOW_MS = 1_700_000_000_000
FAR = 1 << 31
COUNT = 500


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCleaner]:
    with kafka_cleaner(tmp_path_factory.mktemp("kafka-loader")) as kafka:
        yield kafka


def write(directory: Path, random: Random, *, begins_at_base: bool) -> list[int]:
    """Some segments with random distances between their batches, and between one another; the base offsets."""
    directory.mkdir(parents=True)
    spans = random.choice(((0, 1, 7), (0, 1, 7, FAR), (0, 3, FAR - 2, FAR - 1, FAR, FAR + 1, 4 * FAR)))
    offset, found = random.choice((0, 5)), []
    for _ in range(random.randint(1, 4)):
        base, data = offset, b""
        for _batch in range(random.choice((0, 1, 3, 6))):
            offset += 0 if not data and begins_at_base else random.choice(spans)
            records = [NewRecord(b"k", random.randbytes(9), (), NOW_MS + offset % 1000)] * random.choice((1, 1, 3))
            data += bytes(build_batch(records, base_offset=offset, codec=random.choice((0, 0, 1))))
            offset += len(records)
        (directory / f"{base:020d}.log").write_bytes(data)
        (directory / f"{base:020d}.index").touch()
        if random.random() < 0.8:
            (directory / f"{base:020d}.timeindex").touch()
        found.append(base)
        offset = max(offset, base + 1) + random.choice(spans)
    return found


def content(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def test_a_start_keeps_and_splits_what_kafka_does(kafka: KafkaCleaner, tmp_path: Path, proved: Any) -> None:
    proved(
        "Apache Kafka's log loader", VERSION, "500 random logs with gaps, and with offsets more than 2^31 apart, after "
        "an unclean stop: the same batches in the same segments",
    )  # fmt: skip
    split = gaps = 0
    for seed in range(COUNT):
        random = Random(seed)
        ours, theirs = (tmp_path / side / f"log-{seed}" for side in ("ours", "theirs"))
        begins_at_base = random.random() < 0.7
        bases = write(theirs, random, begins_at_base=begins_at_base)
        shutil.copytree(theirs, ours)
        before = content(theirs)
        recovery_point = random.choice((0, *bases, bases[-1] + 10 * FAR))
        said = kafka.load(theirs, clean=False, recovery_point=recovery_point)
        loaded = load(str(ours), TopicConfig(), LoadOptions(False, recovery_point), NOW_MS, Files(), EXPIRATION_MS)
        segments = [[one.base_offset, one.size_bytes] for one in loaded.segments if one.size_bytes]
        for one in loaded.segments:
            one.abandon()
        where = f"seed {seed}, recovery point {recovery_point}"
        assert content(ours) == before == content(theirs), where
        assert loaded.lost_bytes == 0, where
        assert loaded.end_offset == said["end"] or not segments, where
        gaps += loaded.gap_offset < loaded.end_offset
        if recovery_point > 0 or not begins_at_base:
            continue
        kafkas = [[base, size] for base, size in said["segments"] if size]
        assert segments == kafkas, where
        split += any(base not in bases for base, _ in segments)
    assert split > COUNT // 10 and gaps > COUNT // 10, (split, gaps)
    faults = judge(tmp_path / "ours", compacted=True).faults
    assert not faults, "".join(faults[:10])
