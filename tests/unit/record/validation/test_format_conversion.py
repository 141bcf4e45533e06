"""Old message sets become batches, batches become old message sets; nothing is lost that both can say."""

from __future__ import annotations

import time
from collections.abc import Iterator
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.topic_config import TopicConfig
from kafkalite.record.batch import (
    HEADER_BYTES,
    LOG_APPEND_TIME,
    NewRecord,
    assemble,
    build_batch,
    compute_crc,
    parse_header,
    stamp,
)
from kafkalite.record.columns.batch_columns import scan
from kafkalite.record.columns.record_columns import decode
from kafkalite.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD, compress
from kafkalite.record.message_set import V0, V1, build_message, build_set, entry_header, read_messages
from kafkalite.record.record import RECORDS_MAX, Record, read_records
from kafkalite.record.validation.batch_validation import Rules, validate
from kafkalite.record.validation.format_conversion import MESSAGES_MAX, NotConvertible, to_batch, to_old_format

NOW_MS = 1_700_000_000_000
OLD_CODECS = (NONE, GZIP, SNAPPY, LZ4)
RULES = Rules(TopicConfig())

fields = st.none() | st.binary(max_size=60)
rows = st.lists(st.tuples(st.integers(-1, 2**61), fields, fields), min_size=1, max_size=40)
Row = tuple[int, bytes | None, bytes | None]


def a_set(magic: int, rows: list[Row], codec: int = NONE, **more: int) -> bytes:
    return build_set([(i, *row) for i, row in enumerate(rows)], magic, codec=codec, **more)


def up(data: bytes, rules: Rules = RULES) -> memoryview:
    found = to_batch(memoryview(bytearray(data)), rules)
    assert found is not None
    return found


def down(batch: bytes | bytearray | memoryview, magic: int, from_offset: int = 0) -> list[Record]:
    header = parse_header(batch)
    data = bytes(to_old_format(header, memoryview(batch), magic, from_offset))
    return [record for entry in entries(data) for record in read_messages(entry)]


def entries(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        entry = data[at : at + size]
        header = entry_header(entry)
        assert header.size_bytes == size
        yield entry
        at += size


def refused(data: bytes, rules: Rules = RULES) -> ErrorCode:
    with pytest.raises(KafkaError) as found:
        to_batch(memoryview(bytearray(data)), rules)
    return found.value.code


# up


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [V0, V1])
@settings(deadline=None)
@given(rows=rows)
def test_a_set_becomes_one_batch_that_anyone_would_accept(magic: int, codec: int, rows: list[Row]) -> None:
    batch = up(a_set(magic, rows, codec))
    validate(batch, RULES, NOW_MS, 9)
    header = parse_header(batch)
    assert (header.codec, header.record_count) == (codec, len(rows))
    times = [time if magic else -1 for time, _, _ in rows]
    assert header.max_timestamp == max(times)
    want = [Record(i, times[i], key, value, ()) for i, (_, key, value) in enumerate(rows)]
    assert read_records(batch) == want


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [V0, V1])
def test_thousands_of_messages_become_one_batch(magic: int, codec: int) -> None:
    times = [NOW_MS, -1, 0, 1 << 60, NOW_MS + 7, NOW_MS - 9999]
    rows: list[Row] = [
        (times[i % 6], None if i % 3 else b"k" * (i % 300), None if i % 7 == 0 else b"v" * (i % 900))
        for i in range(3000)
    ]
    many = up(a_set(magic, rows, codec))
    records = [Record(i, time if magic else -1, key, value, ()) for i, (time, key, value) in enumerate(rows)]
    assert many == build_batch(records, codec=codec)
    assert read_records(many) == records


def test_faults_among_thousands_are_refused_alike() -> None:
    rows: list[Row] = [(NOW_MS, b"k", b"v")] * 2000
    inside = a_set(V1, rows)
    wrapper = build_message(0, None, compress(GZIP, inside), magic=V1, attributes=GZIP)

    def wrapped(inside: bytes, offset: int = 0, **more: int) -> bytes:
        return build_message(offset, None, compress(GZIP, inside), 5, **{"magic": V1, "attributes": GZIP} | more)

    corrupt, invalid = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
    bent = bytearray(inside)
    bent[-1] ^= 1
    sized = bytearray(inside)
    sized[-36 + 26 : -36 + 30] = b"\x7f\0\0\0"  # the last one's key
    sized[-36 + 12 : -36 + 16] = crc32(sized[-36 + 16 :]).to_bytes(4, "big")
    assert refused(wrapped(bytes(bent))) == corrupt
    assert refused(wrapped(bytes(sized))) == invalid
    assert refused(bytes(sized)) == invalid
    assert refused(wrapped(inside + wrapper)) == invalid
    assert refused(wrapped(inside + a_set(V0, rows[:1]))) == invalid
    assert refused(inside + a_set(V0, rows[:1])) == invalid
    assert refused(wrapped(inside, magic=V0)) == invalid
    assert refused(wrapped(inside, 5)) == invalid
    assert refused(inside + a_set(V1, [(-9, None, None)])) == ErrorCode.INVALID_TIMESTAMP
    assert len(read_records(up(wrapped(inside + inside[:-1], 1999)))) == 3999
    stamped = up(wrapped(inside, attributes=GZIP | LOG_APPEND_TIME))
    assert {record.timestamp for record in read_records(stamped)} == {5}


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_the_topics_codec_counts(codec: int) -> None:
    for name, target in [("zstd", ZSTD), ("lz4", LZ4), ("uncompressed", NONE)]:
        batch = up(a_set(V1, [(NOW_MS, None, b"x" * 100)] * 3, codec), Rules(TopicConfig(compression_type=name)))
        assert parse_header(batch).codec == target
        assert [record.value for record in read_records(batch)] == [b"x" * 100] * 3


def test_a_part_of_a_message_at_the_end_is_passed_over() -> None:
    whole = a_set(V0, [(-1, None, b"one")])
    for end in range(len(whole)):
        assert to_batch(memoryview(bytearray(whole[:end])), RULES) is None
        assert len(read_records(up(whole + whole[:end]))) == 1


def test_a_batch_that_came_in_an_old_version_is_taken_as_it_is() -> None:
    batch = build_batch([NewRecord(None, b"x", [("h", b"1")])], codec=ZSTD)
    assert up(bytes(batch)) == batch
    assert up(bytes(batch) + bytes(batch[:-1])) == batch


def test_what_is_wrong_with_a_set_is_told_as_kafka_does() -> None:
    one, packed = a_set(V1, [(5, None, b"x")]), a_set(V1, [(5, None, b"x")] * 2, GZIP)
    bent = bytearray(one)
    bent[-1] ^= 1
    bent_inside = bytearray(a_set(V1, [(5, None, b"x")] * 2))
    bent_inside[-1] ^= 1

    def wrapped(inside: bytes | bytearray, magic: int = V1, codec: int = GZIP) -> bytes:
        return build_message(0, None, compress(GZIP, inside), 5, magic=magic, attributes=codec)

    small = Rules(TopicConfig(max_message_bytes=60))
    stamped = Rules(TopicConfig(message_timestamp_type="LogAppendTime"))
    corrupt, invalid = ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD
    assert refused(bytes(bent)) == corrupt
    assert refused(one[:8] + (13).to_bytes(4, "big") + one[12:]) == corrupt
    assert refused(one[:16] + b"\3" + one[17:]) == corrupt
    assert refused(one[:8] + (20).to_bytes(4, "big") + one[12:32]) == corrupt
    assert refused(wrapped(bent_inside)) == corrupt
    assert refused(packed + packed) == invalid
    assert refused(packed + one) == invalid
    assert refused(one + a_set(V0, [(5, None, b"x")])) == invalid
    assert refused(wrapped(a_set(V0, [(5, None, b"x")]))) == invalid
    assert refused(wrapped(packed)) == invalid
    assert refused(wrapped(b"")) == invalid
    assert refused(wrapped(one, codec=ZSTD)) == invalid
    assert refused(bytes(build_batch([NewRecord(None, b"x")])) * 2) == invalid
    assert refused(wrapped(one, codec=6)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refused(a_set(V1, [(5, None, b"x" * 100)]), small) == ErrorCode.MESSAGE_TOO_LARGE
    assert refused(a_set(V1, [(-2, None, b"x")])) == ErrorCode.INVALID_TIMESTAMP
    assert refused(a_set(V1, [(5, None, b"x")], timestamp_type=1), stamped) == ErrorCode.INVALID_TIMESTAMP


@settings(deadline=None)
@given(data=st.data())
def test_bent_sets_are_taken_or_refused(data: st.DataObject) -> None:
    sent = bytearray(a_set(data.draw(st.sampled_from([V0, V1])), [(5, b"k", b"v" * 9)] * 3,
                           data.draw(st.sampled_from(OLD_CODECS))))  # fmt: skip
    for _ in range(data.draw(st.integers(1, 4))):
        sent[data.draw(st.integers(0, len(sent) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        batch = to_batch(memoryview(sent), RULES)
    except KafkaError:
        return
    if batch is not None:
        read_records(batch)


# down


def batches(codec: int, count: int = 5, **more: int) -> bytearray:
    records = [
        NewRecord(None if i == 1 else b"k%d" % i, None if i == 2 else b"v%d" % i, [("h", b"1")], NOW_MS + i)
        for i in range(count)
    ]
    return build_batch(records, base_offset=100, codec=codec, **more)


@pytest.mark.parametrize("count", [5, 1500], ids=["few", "many"])
@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [V0, V1])
def test_a_batch_becomes_a_set_with_the_same_offsets_and_codec(magic: int, codec: int, count: int) -> None:
    batch = batches(codec, count, producer_id=7, producer_epoch=0, base_sequence=3)
    found = down(batch, magic)
    assert found == [r._replace(headers=(), timestamp=r.timestamp if magic else -1) for r in read_records(batch)]
    header = parse_header(batch)
    heads = [entry_header(e) for e in entries(bytes(to_old_format(header, memoryview(batch), magic, 0)))]
    assert {head.codec for head in heads} == {codec}
    assert len(heads) == (count if codec == NONE else 1)
    assert heads[-1].last_offset == 100 + count - 1


@settings(deadline=None)
@given(rows=rows, magic=st.integers(0, 1), codec=st.sampled_from(OLD_CODECS))
def test_there_and_back(rows: list[Row], magic: int, codec: int) -> None:
    sent = a_set(magic, rows, codec)
    batch = up(sent)
    found = down(batch, magic)
    assert [(r.timestamp, r.key, r.value) for r in found] == [(t if magic else -1, k, v) for t, k, v in rows]
    if codec == NONE:
        assert bytes(to_old_format(parse_header(batch), batch, magic, 0)) == sent


def test_what_is_not_compressed_begins_where_the_reader_is() -> None:
    assert [r.offset for r in down(batches(NONE), V1, 103)] == [103, 104]
    assert down(batches(NONE), V1, 105) == []
    assert [r.offset for r in down(batches(GZIP), V1, 103)] == [100, 101, 102, 103, 104]


@pytest.mark.parametrize("codec", [NONE, GZIP])
def test_the_brokers_time_stays_the_brokers(codec: int) -> None:
    batch = up(a_set(V1, [(5, None, b"x")] * 2, codec))
    stamp(batch, 10, 0)
    from kafkalite.record.batch import stamp_log_append_time

    stamp_log_append_time(batch, NOW_MS)
    assert [r.timestamp for r in down(batch, V1)] == [NOW_MS, NOW_MS]
    data = bytes(to_old_format(parse_header(batch), batch, V1, 0))
    assert all(entry_header(entry).attributes & LOG_APPEND_TIME for entry in entries(data))


def test_offsets_that_compaction_left_stay() -> None:
    records = [NewRecord(b"k", b"v", timestamp=NOW_MS) for _ in range(3)]
    batch = build_batch(records, base_offset=100, codec=LZ4, offset_deltas=[1, 5, 6], last_offset_delta=9)
    for magic in (V0, V1):
        assert [record.offset for record in down(batch, magic)] == [101, 105, 106]


def test_what_old_readers_cannot_be_told_is_left_out() -> None:
    marker = build_batch([NewRecord(b"\0\0\0\1", b"\0\0\0\0\0\0")], control=True, transactional=True, producer_id=5)
    assert down(marker, V1) == []
    assert down(build_batch([], base_offset=3, last_offset_delta=4), V1) == []


def test_what_is_old_enough_stays_as_it_is() -> None:
    for stored, magic in ((V0, V0), (V0, V1), (V1, V1)):
        entry = memoryview(a_set(stored, [(5, None, b"x")] * 2, SNAPPY))
        assert to_old_format(entry_header(entry), entry, magic, 0) is entry
    newer = memoryview(build_set([(i, 5, b"k", b"x") for i in (8, 9)], V1, codec=LZ4))
    data = bytes(to_old_format(entry_header(newer), newer, V0, 9))
    assert entry_header(data).magic == V0
    assert [(r.offset, r.timestamp) for r in read_messages(data)] == [(8, -1), (9, -1)]


def test_what_cannot_be_had_is_told() -> None:
    with pytest.raises(NotConvertible) as zstd:
        down(batches(ZSTD), V1)
    assert zstd.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    bomb = compress(GZIP, bytes(48 << 20))
    batch = batches(GZIP)[:61] + bomb
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    batch[17:21] = compute_crc(batch).to_bytes(4, "big")
    with pytest.raises(NotConvertible) as large:
        down(batch, V1)
    assert large.value.code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.thorough
def test_a_set_holds_as_many_messages_as_a_producer_of_then_could_send() -> None:
    """A wrapper of some kilobytes may unpack to a quarter of a million, which would hold up everybody else."""
    most = b"".join(build_message(i, None, b"", magic=V0) for i in range(MESSAGES_MAX))
    more = most + build_message(MESSAGES_MAX, None, b"", magic=V0)
    generous = Rules(TopicConfig(max_message_bytes=4 << 20))
    for sent in (most, more):
        for data in (sent, build_message(0, None, compress(GZIP, sent), magic=V0, attributes=GZIP)):
            if sent is most:
                assert parse_header(up(data)).record_count == MESSAGES_MAX
            else:
                assert refused(data) == ErrorCode.MESSAGE_TOO_LARGE
                assert parse_header(up(data, generous)).record_count == MESSAGES_MAX + 1
    endless = build_message(0, None, compress(GZIP, build_message(0, None, b"", magic=V0) * RECORDS_MAX * 4), magic=V0)
    assert refused(_with_codec(endless, GZIP), generous) == ErrorCode.MESSAGE_TOO_LARGE


def _with_codec(entry: bytes, codec: int) -> bytes:
    body = entry[16:17] + bytes((codec,)) + entry[18:]
    return entry[:12] + crc32(body).to_bytes(4, "big") + body


@pytest.mark.thorough
def test_the_largest_that_is_converted_takes_the_loop_a_moment_only() -> None:
    """The most messages that are accepted: 0.15 s; a quarter of a million records for an old reader: 1 s."""
    inside = b"".join(build_message(i, None, b"", magic=V0) for i in range(MESSAGES_MAX))
    wrapper = build_message(0, None, compress(GZIP, inside), magic=V0, attributes=GZIP)
    began = time.thread_time()
    batch = up(wrapper)
    assert time.thread_time() - began < 1.5
    assert parse_header(batch).record_count == MESSAGES_MAX
    assert len(decode(batch)) == MESSAGES_MAX and len(scan(batch)) == 1
    large = build_batch([NewRecord(b"", None, timestamp=NOW_MS)] * RECORDS_MAX, codec=GZIP)
    began = time.thread_time()
    data = to_old_format(parse_header(large), memoryview(large), V1, 0)
    assert time.thread_time() - began < 6
    assert len(read_messages(data)) == RECORDS_MAX


@pytest.mark.parametrize("codec", OLD_CODECS)
def test_a_wrapper_of_v1_with_many_messages_becomes_one_of_v0(codec: int) -> None:
    rows = [(7 + 2 * i, NOW_MS + i, None if i % 3 else b"k%d" % i, None if i % 5 == 0 else b"v") for i in range(1500)]
    stored = memoryview(build_set(rows, V1, codec=codec))
    if codec != NONE:
        found = read_messages(bytes(to_old_format(entry_header(stored), stored, V0, 0)))
        assert [(r.offset, r.timestamp, r.key, r.value) for r in found] == [(o, -1, k, v) for o, _, k, v in rows]


@pytest.mark.parametrize("magic", [V0, V1])
def test_a_wrapper_has_no_time_before_the_epoch(magic: int) -> None:
    stored = memoryview(build_batch([NewRecord(b"k", b"v", (), -5)], codec=GZIP))
    wrapper = bytes(to_old_format(parse_header(stored), stored, magic, 0))
    assert entry_header(wrapper).max_timestamp == -1
    assert [record.timestamp for record in read_messages(wrapper)] == [-5 if magic else -1]


@pytest.mark.parametrize(("outer", "inner"), [(3, -(1 << 63)), ((1 << 63) - 1, -(1 << 63)), (1 << 62, -(1 << 62))])
def test_offsets_of_a_wrapper_wrap(outer: int, inner: int) -> None:
    inside = build_message(inner, b"k", b"v", 5, magic=V1)
    stored = memoryview(build_message(outer, None, compress(GZIP, inside), 5, magic=V1, attributes=GZIP))
    found = bytes(to_old_format(entry_header(stored), stored, V0, 0))
    assert [record.offset for record in read_messages(found)] == [outer]


@pytest.mark.parametrize("magic", [V0, V1])
@pytest.mark.parametrize("codec", [GZIP, LZ4])
def test_bytes_behind_a_frame_are_left_out_on_the_way_down(codec: int, magic: int) -> None:
    """Java's brokers read the batch, and an old reader gets its records."""
    good = build_batch([NewRecord(b"k", b"v" * 30, (), NOW_MS)] * 3, codec=codec)
    batch = memoryview(assemble(parse_header(good), bytes(good[HEADER_BYTES:]) + b"bytes behind" * 9))
    found = read_messages(to_old_format(parse_header(batch), batch, magic, 0))
    assert [record[2:4] for record in found] == [(b"k", b"v" * 30)] * 3


def test_a_checksum_in_a_wrapper_is_asked_for_before_the_sizes() -> None:
    inside = bytearray(build_message(0, b"k", b"v", 5, magic=1))
    inside[26:30] = b"\0\0\1\0"  # the size of the key
    wrapper = build_message(0, None, compress(GZIP, bytes(inside)), 5, magic=1, attributes=1)
    with pytest.raises(KafkaError) as refusal:
        to_batch(memoryview(wrapper), Rules(TopicConfig()))
    assert refusal.value.code == ErrorCode.CORRUPT_MESSAGE
