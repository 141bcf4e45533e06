"""The map says of every key what a dict says, in columns of any shape, up to the last key that fits."""

import itertools
import tracemalloc
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.cleaner.compaction import skimpy_offset_map
from kafkalite.cleaner.compaction.key_hash import Words
from kafkalite.cleaner.compaction.skimpy_offset_map import SLOT_BYTES, SkimpyOffsetMap
from kafkalite.record.columns.batch_columns import Array
from kafkalite.record.columns.varint_columns import Bytes
from tests.support.plain_offset_map import PlainOffsetMap

DEDUPE_BUFFER_BYTES = 128 << 20
SEED = b"the same every time"


def columns_of(keys: list[bytes]) -> tuple[Bytes, Array, Array]:
    end = np.cumsum([len(key) for key in keys], dtype=np.int64)
    return np.frombuffer(b"".join(keys), np.uint8), end - np.array([len(key) for key in keys], np.int64), end


def put(offsets: SkimpyOffsetMap, keys: list[bytes], first_offset: int, marked: list[bool] | None = None) -> int:
    offset = np.arange(first_offset, first_offset + len(keys))
    return offsets.put(*columns_of(keys), offset, None if marked is None else np.array(marked, np.bool_))


def latest(offsets: SkimpyOffsetMap) -> list[tuple[int, bool]]:
    """All offsets, and whether each is of a tombstone. The map is empty afterwards."""
    offset, tombstones = offsets.into_offsets()
    assert tombstones.tolist() == sorted(set(tombstones.tolist()))
    return [(one, one in set(tombstones.tolist())) for one in offset.tolist()]


def get(offsets: SkimpyOffsetMap, keys: list[bytes]) -> list[int]:
    found: list[int] = offsets.get(*columns_of(keys)).tolist()
    return found


class HashOfLength:
    """A hash of few values: keys of the same length modulo `count` have the same one, beginning with all zeros."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __call__(self, data: Bytes, key_start: Array, key_end: Array) -> tuple[Words, Words]:
        value = ((key_end - key_start) % self._count).astype(np.uint64)
        return value // np.uint64(3), value % np.uint64(3)


class HashOfOneWay:
    """Different keys of one byte whose searches all begin at the last slot, and go on slot by slot."""

    def __call__(self, data: Bytes, key_start: Array, key_end: Array) -> tuple[Words, Words]:
        unspread = pow(int(skimpy_offset_map._SPREAD), -1, 1 << 64)
        last = data.take(key_start).astype(np.uint64) * np.uint64(unspread)
        return last ^ np.uint64(-unspread % (1 << 64)), last


class TestCapacity:
    def test_it_is_that_of_apache_kafka(self) -> None:
        offsets = SkimpyOffsetMap(DEDUPE_BUFFER_BYTES, 0.9)
        assert (offsets.slots, offsets.capacity) == (5_592_405, 5_033_164)
        assert offsets.slots == DEDUPE_BUFFER_BYTES // SLOT_BYTES

    @pytest.mark.parametrize(
        ("memory", "load", "capacity"), [(0, 0.9, 0), (23, 1, 0), (24, 1, 1), (48, 0.9, 1), (240, 2, 10)]
    )
    def test_small_and_odd_ones(self, memory: int, load: float, capacity: int) -> None:
        offsets = SkimpyOffsetMap(memory, load)
        keys = [b"%d" % i for i in range(12)]
        assert offsets.capacity == capacity
        assert get(offsets, keys) == [-1] * 12
        assert put(offsets, keys, 0) == capacity
        assert get(offsets, keys) == [*range(capacity), *[-1] * (12 - capacity)]

    def test_the_row_whose_key_is_new_and_does_not_fit_is_the_one_it_stops_at(self) -> None:
        offsets = SkimpyOffsetMap(3 * SLOT_BYTES, 1)
        assert put(offsets, [b"a", b"b", b"a", b"c", b"b", b"b", b"d", b"a"], 10) == 6
        assert offsets.size == 3
        assert get(offsets, [b"a", b"b", b"c", b"d"]) == [12, 15, 13, -1]
        assert put(offsets, [b"d", b"a"], 16) == 0
        assert put(offsets, [b"a", b"c", b"e"], 20) == 2
        assert get(offsets, [b"a", b"b", b"c", b"e"]) == [20, 15, 21, -1]

    def test_it_is_filled_to_the_last_slot_even_if_all_searches_are_the_same(self) -> None:
        offsets = SkimpyOffsetMap(200 * SLOT_BYTES, 1, hash_of=HashOfOneWay())
        keys = [bytes([i]) for i in range(1, 202)]
        assert put(offsets, keys[:50], 0) == 50
        assert put(offsets, keys[40:], 50) == 160
        assert get(offsets, keys) == [*range(40), *range(50, 210), -1]


class TestRows:
    def test_the_last_row_of_a_key_wins_in_a_chunk_and_between_chunks(self) -> None:
        offsets = SkimpyOffsetMap(DEDUPE_BUFFER_BYTES, 0.9)
        put(offsets, [b"a", b"b", b"a", b"", b"a"], 100)
        assert get(offsets, [b"a", b"b", b"", b"c"]) == [104, 101, 103, -1]
        put(offsets, [b"b", b"", b"b"], 200)
        assert get(offsets, [b"a", b"b", b"", b"c"]) == [104, 202, 201, -1]
        assert offsets.size == 3

    def test_the_mark_is_that_of_the_last_row(self) -> None:
        offsets = SkimpyOffsetMap(DEDUPE_BUFFER_BYTES, 0.9)
        put(offsets, [b"a", b"b", b"c", b"a"], 0, [False, True, True, True])
        put(offsets, [b"c", b"d"], 4)
        assert latest(offsets) == [(1, True), (3, True), (4, False), (5, False)]

    def test_no_rows(self) -> None:
        offsets = SkimpyOffsetMap(DEDUPE_BUFFER_BYTES, 0.9)
        assert put(offsets, [], 0) == 0
        assert get(offsets, []) == []
        assert latest(offsets) == []
        assert offsets.size == 0

    def test_offsets_of_any_size(self) -> None:
        offsets = SkimpyOffsetMap(DEDUPE_BUFFER_BYTES, 0.9)
        put(offsets, [b"first"], 0, [True])
        put(offsets, [b"last"], (1 << 63) - 2, [True])
        assert get(offsets, [b"first", b"last"]) == [0, (1 << 63) - 2]
        assert latest(offsets) == [(0, True), ((1 << 63) - 2, True)]

    def test_after_clear_it_is_as_new(self) -> None:
        offsets = SkimpyOffsetMap(4 * SLOT_BYTES, 1)
        put(offsets, [b"a", b"b", b"c"], 0)
        offsets.clear()
        assert (offsets.size, get(offsets, [b"a"])) == (0, [-1])
        assert put(offsets, [b"d", b"e", b"f", b"g", b"h"], 7) == 4


class TestKeysOfOneHash:
    def test_they_are_one_key_and_the_later_offset_is_its(self) -> None:
        """The effect of a collision: the earlier record of the two keys goes. `key_hash` says how likely that is."""
        offsets = SkimpyOffsetMap(DEDUPE_BUFFER_BYTES, 0.9, hash_of=HashOfLength(1))
        put(offsets, [b"a", b"bb"], 0)
        put(offsets, [b"ccc"], 2)
        assert offsets.size == 1
        assert get(offsets, [b"a", b"bb", b"never put"]) == [2, 2, 2]

    def test_a_hash_of_zeros_is_a_hash_like_others(self) -> None:
        offsets = SkimpyOffsetMap(8 * SLOT_BYTES, 1, hash_of=HashOfLength(3))
        assert get(offsets, [b"", b"1", b"22", b"333"]) == [-1] * 4
        put(offsets, [b"", b"1"], 0)
        assert get(offsets, [b"", b"1", b"22", b"333"]) == [0, 1, -1, 0]

    def test_half_a_hash_in_common_is_not_enough(self) -> None:
        """Lengths 3 to 5 have the same first word, and three different last ones; so have 6 to 8."""
        offsets = SkimpyOffsetMap(9 * SLOT_BYTES, 1, hash_of=HashOfLength(9))
        keys = [bytes(i) for i in range(3, 9)]
        assert put(offsets, keys, 0) == 6
        assert put(offsets, keys[3:], 6) == 3
        assert get(offsets, keys) == [0, 1, 2, 6, 7, 8]


# what takes a hundred thousand keys otherwise, borders of blocks, windows and growth, with a few
tiny_steps = mock.patch.multiple(skimpy_offset_map, _BLOCK_ROWS=7, _HASHED_PROBES=3, _WINDOW_MAX=4, _SLOTS_MIN=2)

some_keys = st.integers(0, 60).map(lambda i: b"%d" % i * (i % 4))
long_keys = st.integers(0, 200).map(lambda size: b"k" * size) | st.sampled_from([b"l" * 600, b"m" * 600, b"l" * 10_000])
chunks = st.lists(st.lists(st.tuples(some_keys | long_keys, st.booleans()), max_size=40), max_size=6)


@tiny_steps
@settings(deadline=None, max_examples=150)
@given(chunks, st.integers(0, 90), st.sampled_from([0.5, 0.9, 1.0]))
def test_it_is_a_dict_that_is_full_at_some_point(
    chunks: list[list[tuple[bytes, bool]]], slots: int, load_factor: float
) -> None:
    model: dict[bytes, tuple[int, bool]] = {}
    offsets = SkimpyOffsetMap(slots * SLOT_BYTES + 5, load_factor, SEED)
    first_offset = 3
    for chunk in chunks:
        expected = 0
        for row, (key, marked) in enumerate(chunk):
            if key not in model and len(model) == int(slots * load_factor):
                break
            model[key] = first_offset + row, marked
            expected += 1
        assert put(offsets, [key for key, _ in chunk], first_offset, [marked for _, marked in chunk]) == expected
        assert offsets.size == len(model)
        first_offset += len(chunk) + 10
    asked = sorted({key for chunk in chunks for key, _ in chunk} | {b"never put"})
    assert get(offsets, asked) == [model.get(key, (-1, False))[0] for key in asked]
    assert latest(offsets) == sorted(model.values())


def workload(rows: int, keys: int) -> list[bytes]:
    random = np.random.default_rng(7)
    return [b"key %d" % i if i % 5 else b"%050d" % i for i in random.integers(0, keys, rows).tolist()]


@pytest.mark.parametrize("chunk_rows", [1, 1000, 50_000])
def test_it_agrees_with_the_plain_map(chunk_rows: int) -> None:
    rows = workload(50_000 if chunk_rows > 1 else 500, 20_000)
    memory = 20_000 * SLOT_BYTES
    offsets, plain = SkimpyOffsetMap(memory, 0.9), PlainOffsetMap(memory)
    taken = 0
    for begin in range(0, len(rows), chunk_rows):
        chunk = rows[begin : begin + chunk_rows]
        count = put(offsets, chunk, begin)
        taken += count
        if count < len(chunk):
            break
    for offset, key in enumerate(rows[:taken]):
        plain.put(key, offset)
    assert offsets.size == plain.size == min(offsets.capacity, len(set(rows)))
    assert offsets.slots == plain.slots
    asked = sorted({*rows, *(b"no %d" % i for i in range(1000))})
    assert get(offsets, asked) == [plain.get(key) for key in asked]


def test_the_plain_map_says_when_it_is_full() -> None:
    plain = PlainOffsetMap(2 * SLOT_BYTES)
    plain.put(b"a", 0)
    plain.put(b"b", 1)
    with pytest.raises(ValueError, match="2 slots"):
        plain.put(b"c", 2)
    assert [plain.get(key) for key in (b"a", b"b", b"c")] == [0, 1, -1]
    with pytest.raises(ValueError, match="23 bytes"):
        PlainOffsetMap(23)


def test_it_grows_with_its_keys_and_small_logs_touch_little() -> None:
    offsets = SkimpyOffsetMap(DEDUPE_BUFFER_BYTES, 0.9)
    small = offsets.table_bytes
    model: dict[bytes, int] = {}
    sizes = set()
    for begin in range(0, 400_000, 50_000):
        keys = [b"%d" % i for i in range(begin, begin + 50_000)]
        put(offsets, keys, begin)
        model.update(zip(keys, itertools.count(begin), strict=False))
        sizes.add(offsets.table_bytes)
    assert small < 1 << 20
    assert small < min(sizes) < max(sizes) <= DEDUPE_BUFFER_BYTES
    assert len(sizes) > 1
    assert get(offsets, list(model)) == list(model.values())
    offsets.clear()
    assert offsets.table_bytes == small


def test_neither_growing_nor_its_end_takes_much_more_memory_than_it_was_given() -> None:
    memory_bytes = 24 << 20
    keys = [b"%d" % i for i in range(100_000)]
    tracemalloc.start()
    try:
        offsets = SkimpyOffsetMap(memory_bytes, 0.9)
        for begin in range(0, len(keys), 10_000):
            put(offsets, keys[begin : begin + 10_000], begin, [begin % 30_000 == 0] * 10_000)
        assert offsets.table_bytes > memory_bytes // 2, "it has grown to its last size"
        tracemalloc.reset_peak()
        held_bytes = tracemalloc.get_traced_memory()[0]
        found, tombstones = offsets.into_offsets()
        assert tracemalloc.get_traced_memory()[1] - held_bytes < memory_bytes // 8
        assert held_bytes - tracemalloc.get_traced_memory()[0] > memory_bytes // 2, "the table is gone"
    finally:
        tracemalloc.stop()
    assert found.tolist() == list(range(100_000))
    assert tombstones.tolist() == [offset for offset in range(100_000) if offset // 10_000 % 3 == 0]
    assert (offsets.size, get(offsets, keys[:1])) == (0, [-1])


def test_the_old_table_is_gone_before_the_larger_one_is_there() -> None:
    first, more = [b"%d" % i for i in range(80_000)], [b"x%d" % i for i in range(10_000)]
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        offsets = SkimpyOffsetMap(64 << 20, 0.9)
        put(offsets, first, 0)
        small_bytes = offsets.table_bytes
        tracemalloc.reset_peak()
        put(offsets, more, len(first))
        peak_bytes = tracemalloc.get_traced_memory()[1] - before_bytes
    finally:
        tracemalloc.stop()
    assert offsets.table_bytes > 10 * small_bytes
    # the entries that were copied out, and columns of a block
    assert peak_bytes < offsets.table_bytes + small_bytes
    assert get(offsets, first + more) == list(range(90_000))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_one_of_five_million_keys_is_there_with_its_offset() -> None:
    """Twice as many rows as keys, to the last key of the default buffer; the next new one is refused."""
    offsets = SkimpyOffsetMap(DEDUPE_BUFFER_BYTES, 0.9)
    capacity = offsets.capacity
    random = np.random.default_rng(1)
    number = np.concatenate((random.permutation(capacity), random.integers(0, capacity, capacity)))
    model: dict[bytes, int] = {}
    chunk_rows = 150_000
    for begin in range(0, len(number), chunk_rows):
        keys = [b"key-%d" % i for i in number[begin : begin + chunk_rows].tolist()]
        assert put(offsets, keys, begin) == len(keys)
        model.update(zip(keys, itertools.count(begin), strict=False))
    assert offsets.size == len(model) == capacity == 5_033_164
    assert put(offsets, [b"key-17", b"one too many"], len(number)) == 1
    model[b"key-17"] = len(number)
    keys = list(model)
    for begin in range(0, len(keys), chunk_rows):
        chunk = keys[begin : begin + chunk_rows]
        assert get(offsets, chunk) == [model[key] for key in chunk]
    assert get(offsets, [b"one too many", b"key-x"]) == [-1, -1]
    assert offsets.into_offsets()[0].tolist() == sorted(model.values())
