"""Batches whose records are in whole and in spoiled frames: the verdict and the records of Kafka's own reader.

Drawn by a seed: KAFKALITE_FRAMES_SEED. The long run draws 500 batches, `java/ReadBatches.java` reads them.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from kafkalite.common.errors import Malformed
from kafkalite.record.compression import LZ4, is_for_java
from kafkalite.record.message_set import read_message, read_messages
from kafkalite.record.record import Record, read_records
from tests.compatibility.interop.java_tools import java_command
from tests.support.compressed_frames import draw_batch

VERSION = "3.9.1"
PROGRAM = Path(__file__).parent / "java" / "ReadBatches.java"
COUNT = 500
SEED = int(os.environ.get("KAFKALITE_FRAMES_SEED", "35"))

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def as_java_writes(records: list[Record]) -> str:
    def digest(data: bytes | None) -> str:
        return "null" if data is None else f"{len(data)}/{zlib.crc32(data)}"

    return "ok" + "".join(
        f" {record.offset}:{record.timestamp}:{digest(record.key)}:{digest(record.value)}"
        + "".join(f":{name}={digest(value)}" for name, value in record.headers)
        for record in records
    )


def verdict(entry: bytes) -> str:
    try:
        return as_java_writes(read_records(entry) if entry[16] == 2 else read_messages(entry))
    except Malformed as error:
        return f"no {error}"


def differs_on_purpose(label: str, entry: bytes, said: str) -> bool:
    """The two kinds of docs/differences.md."""
    if "another second head" in label:
        return True
    return is_linked_lz4(entry) and said.startswith("no")


def is_linked_lz4(entry: bytes) -> bool:
    packed = entry[61:] if entry[16] == 2 else read_message(entry).value or b""
    return entry[22 if entry[16] == 2 else 17] & 7 == LZ4 and not is_for_java(LZ4, packed)


def read_by_java(entries: list[bytes]) -> list[str]:
    asked = b"".join(struct.pack(">i", len(entry)) + entry for entry in entries)
    answer = subprocess.run([*java_command(VERSION), str(PROGRAM)], input=asked, capture_output=True, check=True)
    return answer.stdout.decode().splitlines()


def test_the_same_verdict_and_the_same_records() -> None:
    chance = random.Random(SEED)
    drawn = [draw_batch(chance) for _ in range(COUNT)]
    theirs = read_by_java([entry for _, entry in drawn])
    assert len(theirs) == COUNT
    assert 100 < sum(said.startswith("ok") for said in theirs) < 400
    differing = []
    for (label, entry), said in zip(drawn, theirs, strict=True):
        ours = verdict(entry)
        if ours != said and not (ours[:2] == said[:2] == "no") and not differs_on_purpose(label, entry, said):
            differing.append(f"{label}\n  here: {ours[:200]}\n  Java: {said[:200]}")
    assert not differing, "\n".join(differing)
