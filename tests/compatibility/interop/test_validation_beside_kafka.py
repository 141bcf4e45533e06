"""Batches of producers, whole and damaged: the verdict of Kafka's own LogValidator, and the records that it stores.

Drawn by a seed: KAFKALITE_PRODUCED_SEED. The long run draws 500, `java/ValidateBatches.java` judges them. Where the
two differ, docs/differences.md says why; the names of these differences are `REASONS`.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.config.topic_config import TopicConfig
from kafkalite.record.batch import LOG_APPEND_TIME, BatchHeader, parse_header
from kafkalite.record.compression import CODEC_NAMES
from kafkalite.record.record import Record, read_records
from kafkalite.record.validation.batch_validation import Rules, rewrite, validate
from kafkalite.record.validation.format_conversion import to_batch
from tests.compatibility.interop.java_tools import java_command
from tests.support.produced_batches import FAR, NOW_MS, Produced, TopicRules, draw_produced

PROGRAM = Path(__file__).parent / "java" / "ValidateBatches.java"
COUNT = 500
SEED = int(os.environ.get("KAFKALITE_PRODUCED_SEED", "35"))

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


class Verdict(NamedTuple):
    """`code` is NONE for what is taken; `stored` is missing where nothing is, or nobody can read it. `why` tells of a
    refusal, or of what cannot be read."""

    code: ErrorCode
    why: str = ""
    stored: tuple[BatchHeader, list[Record]] | None = None

    @property
    def taken(self) -> bool:
        return self.code == ErrorCode.NONE

    @property
    def told(self) -> str:
        """The reaction of the producer: go on, send it again, split it, or give up."""
        again = {ErrorCode.NONE: "on", ErrorCode.CORRUPT_MESSAGE: "again", ErrorCode.MESSAGE_TOO_LARGE: "split"}
        return again.get(self.code, "never")


def read(data: bytes) -> Verdict:
    try:
        return Verdict(ErrorCode.NONE, "", (parse_header(data), read_records(data)))
    except Malformed as error:
        return Verdict(ErrorCode.NONE, f"unreadable: {error}")


def verdict(one: Produced) -> Verdict:
    """As `TopicAdmission.check_and_append` goes, and `PartitionLog.append` up to the producer's state."""
    rules = Rules(config(one.topic))
    records, version = memoryview(bytearray(one.data)), one.version
    try:
        if version < 3:
            converted = to_batch(records, rules)
            if converted is None:
                return Verdict(ErrorCode.NONE)
            records, version = converted, 9
        header = BatchHeader._make(validate(records, rules, NOW_MS, version, one.transactional))
        if rules.rewrites:
            records, _ = rewrite(records, header, rules, NOW_MS)
    except KafkaError as refusal:
        return Verdict(refusal.code, str(refusal))
    return read(bytes(records))


def config(topic: TopicRules) -> TopicConfig:
    names = ["producer", "uncompressed", *CODEC_NAMES[1:]]
    return TopicConfig(
        cleanup_policy=("compact",) if topic.compacted else ("delete",),
        message_timestamp_type="LogAppendTime" if topic.log_append_time else "CreateTime",
        message_timestamp_before_max_ms=topic.before_max_ms,
        message_timestamp_after_max_ms=topic.after_max_ms,
        compression_type=names[topic.codec + 1],
        max_message_bytes=topic.max_message_bytes,
        segment_bytes=topic.segment_bytes,
    )


def kafkas_verdicts(drawn: list[Produced]) -> list[Verdict]:
    asked = b"".join(
        struct.pack(
            ">h???qqbiiqi", one.version, one.transactional, one.topic.compacted, one.topic.log_append_time,
            one.topic.before_max_ms, one.topic.after_max_ms, one.topic.codec, one.topic.max_message_bytes,
            one.topic.segment_bytes, NOW_MS, len(one.data),
        ) + one.data
        for one in drawn
    )  # fmt: skip
    answer = subprocess.run([*java_command("3.9.1"), str(PROGRAM)], input=asked, capture_output=True, timeout=200)
    lines = answer.stdout.decode().splitlines()
    assert answer.returncode == 0 and len(lines) == len(drawn), answer.stderr.decode()
    return list(map(_told, lines))


def _told(line: str) -> Verdict:
    word, _, rest = line.partition(" ")
    if word == "no":
        code, _, why = rest.partition(" ")
        return Verdict(ErrorCode(int(code)), why)
    return read(b64decode(rest)) if word == "ok" else Verdict(ErrorCode.NONE)


def are_equal(ours: Verdict, theirs: Verdict) -> bool:
    if not ours.taken or not theirs.taken:
        # UNKNOWN_SERVER_ERROR: Kafka's broker has failed on it, and says so instead of what is wrong
        return ours.told == theirs.told or (not ours.taken and theirs.code == ErrorCode.UNKNOWN_SERVER_ERROR)
    if ours.stored is None or theirs.stored is None:
        return ours == theirs
    return _comparable(ours) == _comparable(theirs)


def _comparable(verdict: Verdict, **but: int) -> tuple[BatchHeader, list[Record]]:
    """Leaves out what each decides for itself: codecs make other bytes, the log numbers and stamps them, and
    times can be told from any base."""
    assert verdict.stored is not None
    header, records = verdict.stored
    return header._replace(base_offset=0, batch_length=0, leader_epoch=0, crc=0, base_timestamp=0, **but), records


def _largest_time(one: Produced, ours: Verdict, theirs: Verdict) -> bool:
    if ours.stored and theirs.stored:
        return _comparable(ours, max_timestamp=0) == _comparable(theirs, max_timestamp=0)
    if ours.stored:
        _, records = ours.stored
        late = theirs.code == ErrorCode.INVALID_TIMESTAMP and not Rules(config(one.topic)).reads_records
        return late and max(record.timestamp for record in records) > NOW_MS + one.topic.after_max_ms
    late = ours.code == ErrorCode.INVALID_TIMESTAMP and "it should not be later" in ours.why
    return late and parse_header(one.data).max_timestamp > NOW_MS + one.topic.after_max_ms


def _unused_bits(one: Produced, ours: Verdict, theirs: Verdict) -> bool:
    if not ours.stored or not theirs.stored:
        return False
    (header, records), (other, others) = _comparable(ours, max_timestamp=0), _comparable(theirs, max_timestamp=0)
    return header._replace(attributes=header.attributes & 0x7F) == other and records == others


def _other_size(one: Produced, ours: Verdict, theirs: Verdict) -> bool:
    """One library stays just below a limit where the other does not."""
    limits = {
        ErrorCode.MESSAGE_TOO_LARGE: one.topic.max_message_bytes,
        ErrorCode.RECORD_LIST_TOO_LARGE: one.topic.segment_bytes,
    }
    limit = limits.get(theirs.code) or limits.get(ours.code)
    stored = ours.stored or theirs.stored
    return one.topic.codec > 0 and limit is not None and stored is not None and stored[0].size_bytes > limit * 0.9


_BUILDER_FAILS = (
    "Invalid negative timestamp",
    "Invalid negative producer epoch",
    "Invalid negative sequence number",
    "without a valid producer ID",
)


REASONS: dict[str, Callable[[Produced, Verdict, Verdict], bool]] = {
    "the largest time of a batch is taken as its header tells it": _largest_time,
    "bits of the attributes that have no meaning stay": _unused_bits,
    "bytes behind a batch": lambda one, ours, theirs: "bytes behind the record batch" in ours.why,
    "what the broker compresses has other bytes": _other_size,
    "a batch that says LogAppendTime itself": lambda one, ours, theirs: (
        theirs.taken and ours.code == ErrorCode.INVALID_TIMESTAMP and bool(one.data[22] & LOG_APPEND_TIME)
    ),
    "a key or a value of a length below -1": lambda one, ours, theirs: (
        theirs.taken and ours.why.startswith("a field of -")
    ),
    "a compressed record of another length": lambda one, ours, theirs: (
        not ours.taken and theirs.why.startswith("unreadable: ")
    ),
    "compressed records whose offsets do not count from 0": lambda one, ours, theirs: (
        ours.taken and "key is skipped in PartialDefaultRecord" in theirs.why
    ),
    "a batch that is compressed anew": lambda one, ours, theirs: (
        ours.taken and one.topic.codec >= 0 and any(fault in theirs.why for fault in _BUILDER_FAILS)
    ),
    "a time whose distance from now is beyond 64 bits": lambda one, ours, theirs: (
        ours.code == ErrorCode.INVALID_TIMESTAMP
        and theirs.stored is not None
        and any(record.timestamp < NOW_MS - FAR for record in theirs.stored[1])
    ),
    "a message set with several faults": lambda one, ours, theirs: (
        one.version < 3 and not ours.taken and not theirs.taken
    ),
}


def test_the_same_verdict_and_the_same_records() -> None:
    chance = random.Random(SEED)
    drawn = [draw_produced(chance) for _ in range(COUNT)]
    differing = differences(drawn, kafkas_verdicts(drawn))
    assert not differing, "\n".join(differing)


def differences(drawn: list[Produced], theirs: list[Verdict]) -> list[str]:
    """The unexplained ones."""
    assert len(drawn) // 5 < sum(said.taken for said in theirs) < len(drawn) // 2
    found = []
    for one, said in zip(drawn, theirs, strict=True):
        ours = verdict(one)
        if not are_equal(ours, said) and not any(reason(one, ours, said) for reason in REASONS.values()):
            found.append(f"{one.label}, Produce {one.version} to {one.topic}\n  here: {ours}\n  Kafka: {said}")
    return found
