"""Message sets v0 and v1: what Apache Kafka 2.7 has written, read as its own kafka-dump-log reads it, and damage.

`golden/legacy` holds partitions whose topics had message.format.version 0.9.0 (v0), 0.10.0 (v1), both one after the
other and then v2 (raised), LogAppendTime (v1-stamped), and small segments (rolled), each with what kafka-dump-log 3.9.1
prints of them.
"""

from __future__ import annotations

import contextlib
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.log.segment.segment_file import iter_batches, iter_headers
from kafkalite.record.batch import MAGIC
from kafkalite.record.batches import is_intact
from kafkalite.record.compression import CODEC_NAMES, GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from kafkalite.record.message_set import (
    UNKNOWN_COUNT,
    V0,
    V1,
    WrongChecksum,
    build_message,
    build_set,
    compute_crc,
    count_messages,
    entry_header,
    first_offset,
    message_times,
    read_inner,
    read_message,
    read_messages,
    read_set,
)
from kafkalite.record.record import Record, read_records
from tests.support import places

GOLDEN = places.GOLDEN / "log" / "legacy"
PARTITIONS = ("v0", "v1", "v1-stamped", "raised", "rolled")
CODECS = (NONE, GZIP, SNAPPY, LZ4)

ENTRY = re.compile(
    r"(?:baseOffset|offset): (?P<offset>\d+) .*position: (?P<position>\d+) (?:(?P<type>\w+): (?P<time>-?\d+) )?"
    r".*?size: (?P<size>\d+) magic: (?P<magic>\d) compresscodec: (?P<codec>\w+) crc: (?P<crc>\d+) isvalid: true"
)
RECORD = re.compile(
    r"\| offset: (?P<offset>\d+) (?:(?P<type>\w+): (?P<time>-?\d+) )?keySize: (?P<key_size>-?\d+) "
    r"valueSize: (?P<value_size>-?\d+) .*?(?:key: (?P<key>\S+))?(?: payload: (?P<value>.*))?$"
)

rows = st.lists(
    st.tuples(
        st.integers(-1, 2**62), st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=200)
    ),
    min_size=1,
    max_size=30,
)  # fmt: skip


def dumped(partition: str) -> tuple[list[re.Match[str]], list[re.Match[str]]]:
    """The entries and the records that kafka-dump-log tells of."""
    lines = (GOLDEN / f"{partition}.dump.txt").read_text().splitlines()
    records = [RECORD.match(line) for line in lines if line.startswith("|")]
    entries = [ENTRY.match(line) for line in lines if "isvalid" in line and not line.startswith("|")]
    assert None not in entries and None not in records
    return [e for e in entries if e], [r for r in records if r]


def segments(partition: str) -> Iterator[Path]:
    yield from sorted((GOLDEN / f"{partition}-0").glob("*.log"))


@pytest.mark.parametrize("partition", PARTITIONS)
def test_entries_are_those_that_kafka_sees(partition: str) -> None:
    found = []
    for path in segments(partition):
        with path.open("rb") as file:
            size_bytes = path.stat().st_size
            hopped = list(iter_headers(file.fileno(), 0, size_bytes))
            walked = list(iter_batches(file.fileno(), 0, size_bytes))
        assert hopped == [(at, header) for at, header, _ in walked]
        for at, header, entry in walked:
            if header.magic < MAGIC and header.codec:
                assert header.first_offset is None
            else:
                assert header.first_offset == header.base_offset
            assert is_intact(header, entry)
            found.append((at, header))
    told, _ = dumped(partition)
    assert len(found) == len(told)
    for (position, header), line in zip(found, told, strict=True):
        assert (position, header.size_bytes, header.magic) == tuple(int(line[k]) for k in ("position", "size", "magic"))
        assert (header.crc, CODEC_NAMES[header.codec]) == (int(line["crc"]), line["codec"])
        if header.magic < MAGIC:
            assert header.last_offset == int(line["offset"])
        if header.magic > V0:
            assert header.max_timestamp == int(line["time"])
            assert header.timestamp_type == (line["type"] == "LogAppendTime")
        else:
            assert (header.max_timestamp, header.timestamp_type) == (-1, 0)


@pytest.mark.parametrize("partition", PARTITIONS)
def test_records_are_those_that_kafka_sees(partition: str) -> None:
    found: list[Record] = []
    for path in segments(partition):
        with path.open("rb") as file:
            for _, header, entry in iter_batches(file.fileno(), 0, path.stat().st_size):
                if header.magic == MAGIC:
                    found += read_records(entry)
                    continue
                inside = read_messages(entry)
                assert read_inner(entry, check_crc=True)
                assert list(message_times(entry)) == [(r.offset, r.timestamp) for r in inside]
                assert count_messages(entry) == len(inside)
                assert first_offset(entry) == inside[0].offset
                assert inside[-1].offset == header.last_offset
                assert header.record_count == (UNKNOWN_COUNT if header.codec else 1)
                found += inside
    _, told = dumped(partition)
    assert len(found) == len(told)
    for record, line in zip(found, told, strict=True):
        assert record.offset == int(line["offset"])
        assert record.timestamp == int(line["time"] or -1)
        assert (-1 if record.key is None else len(record.key)) == int(line["key_size"])
        assert (record.key or b"").decode() == (line["key"] or "")
        assert (-1 if record.value is None else len(record.value)) == int(line["value_size"])
        assert (record.value or b"").decode() == (line["value"] or "")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("magic", [V0, V1])
@settings(deadline=None)
@given(rows=rows, base=st.integers(0, 2**40))
def test_what_was_built_is_read(
    magic: int, codec: int, rows: list[tuple[int, bytes | None, bytes | None]], base: int
) -> None:
    data = build_set([(base + i, *row) for i, row in enumerate(rows)], magic, codec=codec)
    want = [Record(base + i, time if magic else -1, key, value, ()) for i, (time, key, value) in enumerate(rows)]
    if codec != NONE and magic == V1 and base + len(rows) == 1:
        assert entry_header(data).base_offset == 0
    entries = [data] if codec != NONE else list(split(data))
    assert [record for entry in entries for record in read_messages(entry)] == want
    for entry in entries:
        header = entry_header(entry)
        assert header.crc == compute_crc(entry) == zlib.crc32(entry[16:])
        if codec != NONE and magic:
            assert header.max_timestamp == max(time for time, _, _ in rows)


def split(data: bytes) -> Iterator[bytes]:
    while data:
        size = int.from_bytes(data[8:12], "big") + 12
        yield data[:size]
        data = data[size:]


def test_what_is_inside_a_wrapper_of_v1_counts_from_0_and_of_v0_does_not() -> None:
    for magic, inside in ((V0, [100, 101, 104]), (V1, [0, 1, 4])):
        wrapper = build_set([(at, 5, None, b"x") for at in (100, 101, 104)], magic, codec=GZIP)
        assert [message.offset for message in read_inner(wrapper)] == inside
        assert [record.offset for record in read_messages(wrapper)] == [100, 101, 104]
        assert entry_header(wrapper).last_offset == 104


def test_a_wrapper_at_0_was_not_numbered_and_one_that_is_too_low_is_refused() -> None:
    """Some versions of librdkafka left the wrapper's offset 0."""
    inside = build_set([(i, 5, None, b"%d" % i) for i in range(3)], V1)
    not_numbered = build_message(0, None, compress(GZIP, inside), 5, magic=V1, attributes=GZIP)
    assert [record.offset for record in read_messages(not_numbered)] == [0, 1, 2]
    too_low = build_message(1, None, compress(GZIP, inside), 5, magic=V1, attributes=GZIP)
    with pytest.raises(Malformed, match="offset 2"):
        read_messages(too_low)


def test_the_time_of_a_wrapper_counts_where_it_is_the_brokers() -> None:
    made = [(i, 1000 + i, None, b"x") for i in range(3)]
    by_producer = build_set(made, V1, codec=SNAPPY)
    assert [record.timestamp for record in read_messages(by_producer)] == [1000, 1001, 1002]
    by_broker = build_set(made, V1, codec=SNAPPY, timestamp_type=1)
    assert [record.timestamp for record in read_messages(by_broker)] == [1002] * 3


def test_lz4_of_v0_has_the_checksum_of_its_time() -> None:
    """KAFKA-3160: it was taken over the frame's magic number too, and readers of then insist on it."""
    value = read_message(build_set([(0, -1, None, b"x" * 100)], V0, codec=LZ4)).value
    assert value is not None
    assert value[:7] == b"\x04\x22\x4d\x18\x60\x40\x1a"
    with pytest.raises(RuntimeError, match="hecksum"):
        lz4.frame.decompress(value)
    right = read_message(build_set([(0, 5, None, b"x" * 100)], V1, codec=LZ4)).value
    assert right is not None
    assert right[:7] == b"\x04\x22\x4d\x18\x60\x40\x82"
    assert lz4.frame.decompress(right)


@pytest.mark.parametrize("content_size", [False, True])
def test_lz4_of_v0_is_read_whatever_its_checksum(content_size: bool) -> None:
    inside = build_set([(7, -1, None, b"x" * 100)], V0)
    frame = lz4.frame.compress(inside, store_size=content_size, block_linked=False)
    at = 14 if content_size else 6
    for checksum in (frame[at], 0, 0xFF):
        packed = frame[:at] + bytes((checksum,)) + frame[at + 1 :]
        wrapper = build_message(7, None, packed, magic=V0, attributes=LZ4)
        assert read_messages(wrapper)[0].value == b"x" * 100


def test_a_set_that_is_cut_off_is_read_up_to_there() -> None:
    whole = build_set([(0, 5, b"k", b"one"), (1, 5, None, b"two")], V1)
    for end in range(len(whole)):
        assert len(read_set(whole[:end])) == (0 if end < 38 else 1)
    inside = build_message(1, None, compress(GZIP, whole[:-1]), 5, magic=V1, attributes=GZIP)
    assert [message.value for message in read_inner(inside)] == [b"one"]


def test_damage_inside_is_found_by_those_who_look() -> None:
    inside = bytearray(build_set([(0, 5, b"k", b"one"), (1, 5, None, b"two")], V1))
    inside[-1] ^= 1
    wrapper = build_message(1, None, compress(GZIP, inside), 5, magic=V1, attributes=GZIP)
    assert len(read_inner(wrapper)) == 2
    with pytest.raises(WrongChecksum, match="message 1"):
        read_inner(wrapper, check_crc=True)


def test_nonsense_is_malformed() -> None:
    inside = build_set([(0, 5, b"k", b"value")], V1)
    packed = compress(GZIP, inside)
    sized = bytearray(inside)
    struct.pack_into(">i", sized, 26, 1 << 30)  # the key
    cases = {
        "empty": build_message(0, None, None, magic=V1, attributes=GZIP),
        "holds no message": build_message(0, None, compress(GZIP, b""), magic=V1, attributes=GZIP),
        "cannot be unpacked": build_message(0, None, b"x" * 40, magic=V1, attributes=GZIP),
        "another wrapper": build_message(
            0,
            None,
            compress(GZIP, build_message(0, None, packed, magic=V1, attributes=GZIP)),
            magic=V1,
            attributes=GZIP,
        ),
        "zstd": build_message(0, None, compress(ZSTD, inside), magic=V1, attributes=ZSTD),
        "codec 6": build_message(0, None, packed, magic=V1, attributes=6),
        "inside its key": bytes(sized),
        "no message of format": inside[:16] + b"\2" + inside[17:],
        "are no message": inside[:17],
    }
    for why, entry in cases.items():
        with pytest.raises(Malformed, match=why):
            read_messages(entry)


def test_a_bomb_is_not_unpacked() -> None:
    """A few kilobytes that would be 64 MiB of one message, or a million messages."""
    large = build_set([(0, 5, None, b"\0" * (64 << 20))], V1, codec=GZIP)
    with pytest.raises(Malformed, match="more than"):
        read_messages(large)
    many = build_message(0, None, compress(GZIP, build_message(0, None, None, magic=V0) * 1_000_000), magic=V0,
                         attributes=GZIP)  # fmt: skip
    with pytest.raises(Malformed, match="more than 250000"):
        read_messages(many)


@settings(deadline=None)
@given(data=st.binary(max_size=300), magic=st.integers(0, 1), codec=st.integers(0, 7))
def test_any_bytes_are_read_or_malformed(data: bytes, magic: int, codec: int) -> None:
    for entry in (data, build_message(3, b"k", data, 5, magic=magic, attributes=codec)):
        with contextlib.suppress(Malformed):
            read_messages(entry)
    with contextlib.suppress(Malformed):
        read_set(data)


@settings(deadline=None)
@given(data=st.data())
def test_a_bent_wrapper_is_read_or_malformed(data: st.DataObject) -> None:
    magic, codec = data.draw(st.sampled_from([V0, V1])), data.draw(st.sampled_from(CODECS[1:]))
    inside = bytearray(build_set([(i, 5, b"k" * i, b"v" * i) for i in range(4)], magic))
    for _ in range(data.draw(st.integers(1, 4))):
        inside[data.draw(st.integers(0, len(inside) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    wrapper = build_message(3, None, compress(codec, inside), 5, magic=magic, attributes=codec)
    with contextlib.suppress(Malformed):
        read_messages(wrapper)
