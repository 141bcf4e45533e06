"""The content of a producer's batch is refused exactly where the plain reader cannot read it."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError, Malformed
from kafkalite.config.topic_config import TopicConfig
from kafkalite.record.batch import HEADER_BYTES, NewRecord, assemble, build_batch, compute_crc, parse_header
from kafkalite.record.compression import CODEC_NAMES, GZIP, LZ4, NONE, ZSTD, compress, is_for_java
from kafkalite.record.record import RECORDS_MAX, read_records
from kafkalite.record.validation.batch_validation import InvalidRecords, Rules, validate
from kafkalite.record.validation.record_validation import check_content
from tests.support.compressed_frames import draw_batch

NOW_MS = 1_700_000_000_000
FIELD_BYTES = st.sampled_from([0, 1, 5, 55, 56, 57, 63, 64, 65, 127, 128, 8_190, 8_191, 8_192, 8_193])
blobs = st.none() | FIELD_BYTES.map(bytes)
headers = st.lists(st.tuples(st.sampled_from(["", "h", "h" * 70]), blobs), max_size=3).map(tuple)
times = st.sampled_from([NOW_MS, NOW_MS + 63, NOW_MS + 64, NOW_MS - 65, -1, 1 << 62])
records = st.builds(NewRecord, blobs, blobs, st.just(()) | headers, times)


def is_read(batch: bytes) -> bool:
    try:
        read_records(batch)
    except Malformed:
        return False
    return True


def is_taken(batch: bytes, *, reads_records: bool = True) -> bool:
    return refusal(batch, reads_records=reads_records) is None


def refusal(batch: bytes, *, reads_records: bool = True) -> str | None:
    header = parse_header(batch)
    try:
        check_content(memoryview(batch), header.codec, header.record_count, reads_records=reads_records)
    except Malformed as error:
        return str(error)
    return None


def is_only_for_java(batch: bytes, fault: str | None) -> bool:
    """Lengths below -1 are null for Java, and consumers in C ask for such a batch again and again."""
    return fault is not None and "a field of -" in fault and is_read(batch)


@settings(max_examples=300, deadline=None)
@given(rows=st.lists(records, min_size=1, max_size=12), often=st.sampled_from([1, 1, 20]), codec=st.integers(0, 4))
def test_what_the_builder_makes_is_taken(rows: list[NewRecord], often: int, codec: int) -> None:
    assert is_taken(bytes(build_batch(rows * often, codec=codec)))


@settings(max_examples=500, deadline=None)
@given(rows=st.lists(records, min_size=1, max_size=5), chance=st.randoms(use_true_random=False))
def test_a_spoiled_batch_is_taken_if_it_can_be_read(rows: list[NewRecord], chance: random.Random) -> None:
    batch = build_batch(rows)
    for _ in range(chance.choice([1, 1, 3])):
        match chance.randrange(4):
            case 0 if len(batch) > HEADER_BYTES:
                del batch[chance.randrange(HEADER_BYTES, len(batch)) :]
            case 1:
                batch += chance.randbytes(chance.randrange(1, 9))
            case 2:
                batch[57:61] = max(1, len(rows) + chance.randrange(-2, 3)).to_bytes(4)
            case _ if len(batch) > HEADER_BYTES:
                at = chance.randrange(HEADER_BYTES, len(batch))
                batch[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, batch[at] ^ 1, batch[at] ^ 2])
    batch[8:12] = (len(batch) - 12).to_bytes(4)
    fault = refusal(bytes(batch))
    assert (fault is None) == is_read(bytes(batch)) or is_only_for_java(bytes(batch), fault)


@settings(max_examples=500, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_a_spoiled_frame_is_taken_if_it_can_be_read(seed: int) -> None:
    label, batch = draw_batch(random.Random(seed))
    if batch[16] != 2:
        return
    header = parse_header(batch)
    if not is_for_java(header.codec, batch[HEADER_BYTES:]):
        assert not is_taken(batch)
        return
    fault = refusal(batch)
    assert (fault is None) == is_read(batch) or is_only_for_java(batch, fault), label
    if is_read(batch):
        assert is_taken(batch, reads_records=False), label


@pytest.mark.parametrize("setting", ["none", "frames", "records"])
@pytest.mark.parametrize("codec", range(5), ids=CODEC_NAMES)
def test_the_setting_says_how_far_it_is_looked(codec: int, setting: str) -> None:
    batch = build_batch([NewRecord(b"k", b"v" * 40, (), NOW_MS)] * 3, codec=codec)
    body = compress(codec, b"\x02" * 200)
    misread = assemble(parse_header(batch), body)
    unpacked = assemble(parse_header(batch), b"no frame of any codec")
    rules = Rules(TopicConfig(), setting)

    def verdict(data: bytearray) -> ErrorCode:
        try:
            validate(memoryview(data), rules, NOW_MS, 9)
        except InvalidRecords as error:
            assert error.message
            assert not error.record_errors
            return error.code
        return ErrorCode.NONE

    assert verdict(batch) == ErrorCode.NONE
    assert verdict(misread) == (ErrorCode.INVALID_RECORD if setting == "records" else ErrorCode.NONE)
    refused = setting == "records" or (setting == "frames" and codec)
    assert verdict(unpacked) == (ErrorCode.INVALID_RECORD if refused else ErrorCode.NONE)


@pytest.mark.parametrize("settings_of_topic", [{}, {"cleanup_policy": ("compact",)}])
def test_lz4_that_java_does_not_read_is_refused(settings_of_topic: dict[str, tuple[str, ...]]) -> None:
    import lz4.frame

    good = build_batch([NewRecord(b"k", random.Random(1).randbytes(200_000), (), NOW_MS)])
    linked = lz4.frame.compress(bytes(good[HEADER_BYTES:]), block_linked=True)
    batch = assemble(parse_header(good)._replace(attributes=LZ4), linked)
    assert is_read(bytes(batch))
    with pytest.raises(KafkaError, match="linked") as refusal:
        validate(memoryview(batch), Rules(TopicConfig(**settings_of_topic)), NOW_MS, 9)
    assert refusal.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.thorough
@pytest.mark.parametrize("reads_records", [False, True])
@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD], ids=lambda codec: CODEC_NAMES[codec])
def test_a_bomb_is_refused_within_its_limit(codec: int, reads_records: bool) -> None:
    header = parse_header(build_batch([NewRecord(None, b"x", (), NOW_MS)], codec=codec))
    bomb = assemble(header, compress(codec, bytes(256 << 20)))
    is_taken(bytes(build_batch([NewRecord(None, b"x")], codec=codec)))  # the import does not count
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="unpacks to more than"):
            check_content(memoryview(bomb), codec, 1, reads_records=reads_records)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 80 << 20


def test_too_many_records_for_the_loop_are_refused_unread() -> None:
    batch = build_batch([NewRecord(None, None)], codec=ZSTD)
    with pytest.raises(Malformed, match=f"more than {RECORDS_MAX}"):
        check_content(memoryview(batch), ZSTD, RECORDS_MAX + 1, reads_records=True)
    assert compute_crc(batch) == parse_header(batch).crc
    assert is_taken(bytes(build_batch([NewRecord(None, b"x")] * 20_000, codec=NONE)))
