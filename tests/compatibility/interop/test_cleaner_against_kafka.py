"""The cleaner beside Apache Kafka's on copies of the same directory: batch by batch, record by record, byte by byte.

Kafka's own log writes what a seed says: batches of one to three thousand records in every codec, with headers, null
keys and values, transactions that were committed, aborted, left open or empty, producers that come back with a new
epoch, offsets that are missing, message sets of v0 and v1. One copy is cleaned by Kafka's cleaner, the other by ours,
with the same clock; then more is written to both, and they are cleaned again, before and after the tombstones' horizon.
Where batches are not compressed the files are equal to the byte; compressed ones are compared unpacked, for no two
compressors agree on bytes.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import Malformed
from tests.compatibility.interop.java_dump_log import judge
from tests.compatibility.interop.kafka_cleaner import VERSION, KafkaCleaner, kafka_cleaner
from tests.compatibility.interop.logs_to_clean import (
    NOW_MS,
    RETENTION_MS,
    SHAPES,
    Copy,
    Shape,
)
from tests.support.cleaner.partition_directory import aborted, bases, batches, clean_job, contents, run

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"
SEEDS = int(os.environ.get("CLEANER_SEEDS", "6"))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCleaner]:
    with kafka_cleaner(tmp_path_factory.mktemp("kafka-cleaner")) as kafka:
        yield kafka


def assert_same(kafka: KafkaCleaner, ours: Copy, theirs: Copy, *, segments: bool) -> None:
    """`segments`: also where one ends and the next begins, which depends on how well a codec compressed before."""
    assert ours.clean_end == theirs.clean_end
    for mine, kafkas in zip(batches(ours.directory), batches(theirs.directory), strict=False):
        assert mine == kafkas
    assert batches(ours.directory) == batches(theirs.directory)
    assert aborted(ours.directory) == aborted(theirs.directory)
    if segments:
        assert bases(ours.directory) == bases(theirs.directory)
        assert contents(ours.directory) == contents(theirs.directory)
        assert kafka.read(ours.directory) == kafka.read(theirs.directory)
    else:
        mine, kafkas = ([line for line in kafka.read(one.directory) if "segment" not in line] for one in (ours, theirs))
        assert mine == kafkas


@pytest.mark.parametrize("shape", SHAPES, ids=[shape.name for shape in SHAPES])
def test_what_is_left_is_the_same(kafka: KafkaCleaner, shape: Shape, tmp_path: Path, proved: Any) -> None:
    proved(
        "Apache Kafka's log cleaner", VERSION, "random logs of every format and codec cleaned three times by either: "
        "the same batches, records, delete horizons and aborted transactions",
    )  # fmt: skip
    dropped = 0
    for seed in range(SEEDS):
        ours, theirs, mixed = (Copy(tmp_path / kind / f"seed{seed}-0") for kind in ("ours", "theirs", "mixed"))
        told = theirs.write(kafka, shape, seed, 0, NOW_MS)
        for turn in range(3):
            # the second time before the horizon of the first, the third time behind that of the second
            now_ms = told["now"] + turn * (turn - 1) * RETENTION_MS
            if turn:
                told = theirs.write(kafka, shape, seed, turn, now_ms)
                assert ours.write(kafka, shape, seed, turn, now_ms)["end"] == told["end"]
            else:
                shutil.copytree(theirs.directory, ours.directory)
            shutil.copytree(theirs.directory, mixed.directory, dirs_exist_ok=False)
            mixed.clean_end = theirs.clean_end
            before = sum(len(each["records"]) for each in batches(theirs.directory))
            ours.clean_by_us(kafka, shape, now_ms)
            theirs.clean_by_kafka(kafka, shape, now_ms)
            mixed.clean_by_us(kafka, shape, now_ms)
            assert_same(kafka, mixed, theirs, segments=True)
            assert_same(kafka, ours, theirs, segments=turn == 0)
            dropped += before - sum(len(each["records"]) for each in batches(theirs.directory))
            shutil.rmtree(mixed.directory)
    assert dropped > 50 * SEEDS, "there was nothing to clean"
    assert_accepted(tmp_path)


def assert_accepted(place: Path) -> None:
    """kafka-dump-log says nothing of ours that it does not say of Kafka's: it misses the timestamp of a batch that was
    kept without its records, for the sake of its producer, where the time index leads to it."""
    ours, theirs = (judge(place / side, compacted=True) for side in ("ours", "theirs"))
    assert (ours.batch_count, ours.record_count) == (theirs.batch_count, theirs.record_count)
    assert ours.record_count > 0
    mine, kafkas = ({line.replace("/ours/", "/theirs/") for line in one.faults} for one in (ours, theirs))
    assert not mine - kafkas, "".join(sorted(mine - kafkas)[:30])
    assert all("log timestamp: -1" in line or "timestamp mismatch" in line for line in mine if line.strip())


@pytest.mark.parametrize("slots", [5, 23, 40])
def test_a_small_map_takes_several_passes_to_the_same_end(kafka: KafkaCleaner, tmp_path: Path, slots: int) -> None:
    """How far a pass comes is each one's own affair; what is left when all is clean is not."""
    shape = Shape("small-map", {"steps": 100, "keys": 60, "settle": 1}, delete_retention_ms=10**12)
    for seed in range(SEEDS):
        ours, theirs = (Copy(tmp_path / kind / f"seed{seed}-0") for kind in ("ours", "theirs"))
        theirs.write(kafka, shape, seed, 0, NOW_MS)
        shutil.copytree(theirs.directory, ours.directory)
        buffer = {"buffer": slots * 24}
        for _ in range(1000):
            told = kafka.clean(theirs.directory, theirs.clean_end, NOW_MS, shape.topic_config, **buffer)
            theirs.clean_end = told["clean_end"]
            if theirs.clean_end >= told["first_uncleanable"]:
                break
        passes = 0
        while ours.clean_end < theirs.clean_end:
            plan = kafka.plan(ours.directory, ours.clean_end, NOW_MS, shape.topic_config)
            sizes = {"segment_bytes": 2048, "index_interval_bytes": 256, "dedupe_buffer_bytes": slots * 24}
            result = run(clean_job(ours.directory, plan, NOW_MS, delete_retention_ms=10**12, **sizes))
            assert result.end_offset > ours.clean_end
            ours.clean_end = result.end_offset
            passes += 1
        assert passes > 1
        assert records_of(ours.directory) == records_of(theirs.directory)


def records_of(directory: Path) -> list[Any]:
    return [record for each in batches(directory) for record in each["records"]]


def test_the_comparison_is_awake(kafka: KafkaCleaner, tmp_path: Path) -> None:
    """One survivor more or less, and one byte changed, are seen."""
    shape = Shape("plain", {"steps": 60, "codec": "none"})
    theirs = Copy(tmp_path / "theirs" / "seed-0")
    theirs.write(kafka, shape, 1, 0, NOW_MS)
    ours = Copy(tmp_path / "ours" / "seed-0")
    shutil.copytree(theirs.directory, ours.directory)
    assert_same(kafka, ours, theirs, segments=True)
    path = random.Random(1).choice(sorted(ours.directory.glob("*.log")))
    whole = path.read_bytes()
    for damage in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(damage)
        with pytest.raises((AssertionError, Malformed, RuntimeError)):
            assert_same(kafka, ours, theirs, segments=True)
