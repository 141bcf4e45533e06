"""A batch that fits the shape of a good one is good; shapes are remembered for batches that repeat."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import HEADER_BYTES, NewRecord, build_batch
from kafkalite.record.record import check_record
from kafkalite.record.validation import batch_shapes
from kafkalite.record.validation.batch_shapes import BatchShape, known_shapes, remember
from kafkalite.record.validation.record_validation import check_structure

NOW_MS = 1_700_000_000_000
SPOILED = (0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    known_shapes.clear()
    yield
    known_shapes.clear()


def body_of(records: list[NewRecord]) -> bytes:
    return bytes(build_batch(records)[HEADER_BYTES:])


def shape_of_batch(body: bytes, count: int) -> BatchShape:
    runs = batch_shapes._runs_of(body, count)
    assert runs
    return BatchShape(body, runs)


def is_good(body: bytes, count: int) -> bool:
    end = 0
    try:
        for _ in range(count):
            end = check_record(body, end, len(body))
    except (Malformed, IndexError):
        return False
    return end == len(body)


def drawn(chance: random.Random) -> list[NewRecord]:
    records: list[NewRecord] = []
    for _ in range(chance.randrange(1, 4)):
        size = chance.choice([0, 1, 60, 100, 300])
        key = chance.choice([None, b"", b"key", b"k" * 70])
        headers = chance.choice([(), (("h", b"x"),), (("", None), ("h" * 70, b"y" * 80))])
        for _ in range(chance.choice([1, 1, 2, 5, 80])):
            records.append(NewRecord(key, chance.randbytes(size), headers, NOW_MS + 40 * len(records)))
    return records


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_only_good_batches_fit(seed: int) -> None:
    chance = random.Random(seed)
    records = drawn(chance)
    count, body = len(records), body_of(records)
    shape = shape_of_batch(body, count)
    assert shape.fits(body, 0)
    assert shape.fits(memoryview(bytearray(b"head" + body)), 4)
    for _ in range(60):
        spoiled = bytearray(body)
        for _ in range(chance.choice([1, 1, 2])):
            at = chance.randrange(len(spoiled))
            spoiled[at] = chance.choice([*SPOILED, spoiled[at] ^ 1, spoiled[at] ^ 0x80])
        if shape.fits(spoiled, 0):
            assert is_good(bytes(spoiled), count)


def test_other_contents_and_other_times_of_the_same_size_fit() -> None:
    def batch(byte: bytes, step_ms: int) -> bytes:
        return body_of([NewRecord(b"k" + byte, byte * 100, (("h", byte),), NOW_MS + i * step_ms) for i in range(50)])

    shape = shape_of_batch(batch(b"a", 0), 50)
    assert shape.fits(batch(b"b", 1), 0)
    assert not shape.fits(body_of([NewRecord(b"key", b"a" * 99, (("h", b"a"),), NOW_MS)] * 50), 0)


def test_every_byte_of_a_structure_counts() -> None:
    body = body_of([NewRecord(b"k", b"v" * 20, (("h", None),), NOW_MS)] * 40)
    shape = shape_of_batch(body, 40)
    for at in range(len(body)):
        for byte in (body[at] ^ 2, body[at] ^ 0x80):
            spoiled = body[:at] + bytes([byte]) + body[at + 1 :]
            if shape.fits(spoiled, 0):
                assert is_good(spoiled, 40), (at, byte)


def test_large_batches_are_compared_where_they_are() -> None:
    records = [NewRecord(None, b"v" * 1000, (), NOW_MS)] * 500
    body = body_of(records)
    shape = shape_of_batch(body, 500)
    assert shape.fits(memoryview(body), 0)
    for at in (0, 6, len(body) - 1010, len(body) - 1):
        assert not shape.fits(body[:at] + bytes([body[at] ^ 2]) + body[at + 1 :], 0)


def test_what_repeats_is_remembered() -> None:
    body = body_of([NewRecord(None, b"v" * 100, (), NOW_MS)])
    for _ in range(batch_shapes._LEARNT_EVERY):
        check_structure(body, 1)
    assert list(known_shapes) == [(len(body), 1)]
    check_structure(body_of([NewRecord(None, b"w" * 100, (), NOW_MS)]), 1)
    with pytest.raises(Malformed):
        check_structure(body[:-1] + b"\2", 1)


def test_what_is_remembered_is_bounded() -> None:
    many = body_of([NewRecord(None, b"v", (), NOW_MS)] * 1001)
    varied = body_of([NewRecord(None, b"v" * size, (), NOW_MS) for size in range(20)])
    headers = body_of([NewRecord(None, b"v", (("h", b""),) * 17, NOW_MS)])
    for _ in range(batch_shapes._LEARNT_EVERY):
        for body, count in ((many, 1001), (varied, 20), (headers, 1)):
            remember(body, count)
    assert not known_shapes
    for size in range(16 * 200):
        remember(body_of([NewRecord(None, b"v" * size, (), NOW_MS)]), 1)
    assert 0 < len(known_shapes) <= 128
