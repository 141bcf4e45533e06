"""Batches equal those of real clients, byte for byte, and nonsense is refused."""

import importlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import (
    HEADER_BYTES,
    NewRecord,
    build_batch,
    build_batch_at,
    compute_crc,
    iter_batches,
    parse_header,
    stamp,
    stamp_log_append_time,
)
from kafkalite.record.compression import CODEC_NAMES
from kafkalite.record.record import read_records

RECORDS = [
    NewRecord(b"key", b"value", (("trace", b"\x01\x02"), ("none", None)), 1_700_000_000_000),
    NewRecord(None, b"x" * 300, (), 1_700_000_000_007),
    NewRecord(b"gone", None, (), 1_699_999_999_000),
    NewRecord(b"", b"", (("", b""),), 1_700_000_100_000),
]

# what kafka-python 3.0 makes of the first record with producer 4711, epoch 3, sequence 9; leader epoch 5 stamped on it
GOLDEN = bytes.fromhex(
    "00000000000000000000004f00000005026eb0eb530000000000000000018bcfe568000000018bcfe5680000000000000012"
    "67000300000009000000013a000000066b65790a76616c7565040a7472616365040102086e6f6e6501"
)

texts = st.text(max_size=8)
blobs = st.none() | st.binary(max_size=200)
records = st.builds(
    NewRecord,
    blobs,
    blobs,
    st.lists(st.tuples(texts, blobs), max_size=3).map(tuple),
    st.integers(0, 1 << 45),
)


def reference_batch(library: str, codec: int, rows: list[NewRecord]) -> bytes:
    module = pytest.importorskip(f"{library}.record.default_records")
    builder = module.DefaultRecordBatchBuilder(2, codec, False, 4711, 3, 9, 1 << 30)
    for offset, row in enumerate(rows):
        assert builder.append(offset, row.timestamp, row.key, row.value, list(row.headers))
    return bytes(builder.build())


def as_read(rows: list[NewRecord]) -> list[tuple[object, ...]]:
    return [(i, row.timestamp, row.key, row.value, tuple(row.headers)) for i, row in enumerate(rows)]


@pytest.mark.parametrize("library", ["kafka", "aiokafka"])
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(records, min_size=1, max_size=20))
def test_a_batch_is_what_a_real_client_makes(library: str, rows: list[NewRecord]) -> None:
    ours = build_batch(rows, producer_id=4711, producer_epoch=3, base_sequence=9)
    reference = bytearray(reference_batch(library, 0, rows))
    stamp(reference, 0, parse_header(ours).leader_epoch)  # clients differ in what they put there
    assert ours == reference


@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
@pytest.mark.parametrize("library", ["kafka", "aiokafka"])
def test_what_a_real_client_packs_is_read_and_the_other_way_round(library: str, codec: int) -> None:
    rows = RECORDS * 50
    theirs = reference_batch(library, codec, rows)
    assert parse_header(theirs).codec == codec
    assert parse_header(theirs).crc == compute_crc(theirs)
    assert read_records(theirs) == as_read(rows)
    ours = bytes(build_batch(rows, codec=codec))
    reader = importlib.import_module(f"{library}.record.default_records").DefaultRecordBatch(bytearray(ours))
    assert reader.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader] == as_read(rows)


def test_the_golden_batch() -> None:
    batch = build_batch(RECORDS[:1], producer_id=4711, producer_epoch=3, base_sequence=9, leader_epoch=5)
    assert batch == GOLDEN
    header = parse_header(GOLDEN)
    assert header.size_bytes == len(GOLDEN)
    assert (header.base_offset, header.leader_epoch, header.last_offset, header.record_count) == (0, 5, 0, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (4711, 3, 9, 9)
    assert header.base_timestamp == header.max_timestamp == 1_700_000_000_000


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300)), min_size=1, max_size=9
    ),
    st.integers(-1, 1 << 50),
    st.sampled_from([{}, {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0, "transactional": True}]),
)
def test_a_batch_of_one_time_is_the_same_batch(
    records: list[tuple[bytes | None, bytes | None]], timestamp_ms: int, attributes: dict[str, int]
) -> None:
    rows = [NewRecord(key, value, timestamp=timestamp_ms) for key, value in records]
    assert build_batch_at(timestamp_ms, records, **attributes) == build_batch(rows, **attributes)


def test_stamping_leaves_the_checksum_right() -> None:
    batch = build_batch(RECORDS)
    stamp(memoryview(batch), 1 << 40, 7)
    header = parse_header(batch)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (1 << 40, 7, (1 << 40) + 3)
    assert header.crc == compute_crc(batch)


def test_log_append_time_is_every_record_s_time() -> None:
    batch = build_batch(RECORDS)
    stamp_log_append_time(memoryview(batch), 5_000)
    header = parse_header(batch)
    assert (header.timestamp_type, header.max_timestamp, header.base_timestamp) == (1, 5_000, RECORDS[0].timestamp)
    assert header.crc == compute_crc(batch)
    assert {record.timestamp for record in read_records(batch)} == {5_000}


def test_sequences_wrap_to_zero() -> None:
    header = parse_header(build_batch(RECORDS, producer_id=1, producer_epoch=0, base_sequence=(1 << 31) - 2))
    assert header.last_sequence == 1


def test_what_compaction_leaves() -> None:
    gaps = build_batch(RECORDS[:2], base_offset=100, offset_deltas=[3, 8], last_offset_delta=9)
    assert [record.offset for record in read_records(gaps)] == [103, 108]
    assert parse_header(gaps).last_offset == 109
    empty = build_batch([], base_offset=100, last_offset_delta=9, producer_id=3, codec=4)
    header = parse_header(empty)
    assert (len(empty), header.codec, header.record_count, header.last_offset) == (HEADER_BYTES, 0, 0, 109)
    assert read_records(empty) == []


def test_iterate_walks_whole_batches_and_stops_at_a_torn_one() -> None:
    first, second = build_batch(RECORDS), build_batch(RECORDS[:1], base_offset=4)
    both = bytes(first + second)
    found = list(iter_batches(both))
    assert [header.base_offset for header, _ in found] == [0, 4]
    assert [bytes(view) for _, view in found] == [first, second]
    for size in range(len(first), len(both)):
        assert [header.base_offset for header, _ in iter_batches(both[:size])] == [0]


def test_nonsense_is_malformed() -> None:
    batch = build_batch(RECORDS)
    with pytest.raises(Malformed, match="60 bytes"):
        parse_header(batch[:60])
    with pytest.raises(Malformed):
        parse_header(batch, len(batch) - 60)
    for length in (-1, 0, 48):
        wrong = bytearray(batch)
        struct.pack_into(">i", wrong, 8, length)
        with pytest.raises(Malformed, match="length says"):
            list(iter_batches(batch + wrong))
    for magic in (0, 1, 3, 255):
        wrong = bytearray(batch)
        wrong[16] = magic
        for size in (17, 40, len(wrong)):
            with pytest.raises(Malformed, match=f"magic is {magic}"):
                list(iter_batches(batch + wrong[:size]))


def test_records_that_lie_are_malformed() -> None:
    batch = bytes(build_batch(RECORDS))
    for position in range(HEADER_BYTES, len(batch)):
        for byte in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            broken = bytearray(batch)
            broken[position] = byte
            try:
                assert len(read_records(broken)) == len(RECORDS)
            except Malformed as error:
                assert "offset 0" in str(error)
    for count in (-1, 0, 3, 5, 1 << 30):
        broken = bytearray(batch)
        struct.pack_into(">i", broken, 57, count)
        with pytest.raises(Malformed):
            read_records(broken)
    with pytest.raises(Malformed, match="its header says"):
        read_records(batch[:-1])
