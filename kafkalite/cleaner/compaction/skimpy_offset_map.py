"""The offset map: the latest offset of each key in the dirty range of a log.

A table of slots of three words, 24 bytes as in Apache Kafka: 128 bits of the key's hash, then twice the offset,
plus one for a tombstone. So as many keys fit as in Apache Kafka: `memory_bytes` / 24 slots, of which `load_factor` may
be used. The keys themselves are not stored: two keys with the same hash would be one key with the later offset;
`key_hash` gives the probability. A slot whose first word is 0 is empty. So a first word of 0 becomes 1, which raises
the probability of a collision to 2^-128 (1 + 2^-63).

Open addressing by columns: one gather finds the home slots of all rows, and most searches end there. The others use
double hashing (at a load of 0.9 a key is found in 2.6 probes, slot by slot in 5.5). After 16 probes they go slot by
slot, so that every slot is reached. Rows that end at empty slots write their hashes there; the last row written to a
slot has it, as reading it back shows, and the others search again. Rows of one key have the same hash, so they end at
the same slot. At the end all offsets are written in the order of the rows, so that the latest one stays.
A slot's three words are adjacent: one cache miss for a row instead of three.

The table begins small and grows sixteenfold, so that a small log touches little memory, and a put stays in the caches
as long as it can; with a growth of four, the rows of the first millions cost half as much again. While it grows, its
entries are copied, and the old table is freed before the new one is allocated: for that moment it takes a thirtieth
more memory than `memory_bytes`.
Once the map is built, it names the records to retain. In the dirty range a record is retained iff its offset is in the
map. The offsets are sorted once, in the memory of the map, and two searches find the retained records of a batch
without decompressing it. Records before the dirty range, and dirty records in the same piece, are looked up by key: a
record is retained unless the map has a later offset of its key. Records past the end of the map are retained.
Source: org.apache.kafka.storage.internals.log.SkimpyOffsetMap, kafka.log.Cleaner.shouldRetainRecord; a plain version
for tests is in tests/support/plain_offset_map.py.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafkalite.cleaner.compaction.decompressed_batches import RecordKeys
from kafkalite.cleaner.compaction.key_hash import HashOfKeys, KeyHash, Words
from kafkalite.cleaner.job.job import CleaningFailed
from kafkalite.record.columns.batch_columns import Array, Flags
from kafkalite.record.columns.varint_columns import Bytes

SLOT_BYTES = 24
_SLOT_WORDS = 3

# the slots of a block stay in the second-level cache until their offsets are written
_BLOCK_ROWS = 8192
# afterwards slot by slot: one search in a hundred at a load of 0.9
_HASHED_PROBES = 16
_WINDOW_MAX = 64
_SLOTS_MIN = 1 << 13
_GROWTH = 16
# The load at which a table grows, unless it has its last size. More probes cost more than a cache miss: with 777,000
# keys a put takes 150 ns at a load of 0.14, and 220 ns at 0.56.
_CROWDED = 0.5
_HALF = np.uint64(32)
_ONE = np.uint64(1)
# 2^64 / golden ratio: spreads the hashes of similar keys
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class SkimpyOffsetMap:
    """At most `capacity` keys and their latest offsets, in `memory_bytes`.

    `size`: the number of keys.
    Keys are columns of positions in `data`, as in `record_columns.Columns`, without null keys.
    """

    def __init__(
        self, memory_bytes: int, load_factor: float, seed: bytes | None = None, *, hash_of: HashOfKeys | None = None
    ) -> None:
        """`seed`, `hash_of`: for tests; without them the hash is drawn at random."""
        self.slots = memory_bytes // SLOT_BYTES
        self.capacity = min(int(self.slots * load_factor), self.slots)
        self.size = 0
        self._hash_of = hash_of or KeyHash(seed)
        # one slot stays empty at least, so that every search ends
        slots = max(self.slots, self.capacity + 1)
        assert slots >> 32 == 0, "slots are numbered with 32 bits"
        self._sizes = [slots]  # of the table, in slots, ascending
        while self._sizes[0] // _GROWTH >= _SLOTS_MIN:
            self._sizes.insert(0, self._sizes[0] // _GROWTH)
        self._use(self._sizes[0])

    @property
    def table_bytes(self) -> int:
        """The present size of the table."""
        return self._table.nbytes

    def put(
        self, data: Bytes, key_start: Array, key_end: Array, offset: Array, is_tombstone: Flags | None = None
    ) -> int:
        """Store the offset of each row's key, and whether the row is a tombstone. Offsets ascend in and between calls.

        Returns how many rows were taken: fewer than given when the map is full, and the next row's key is a new one.
        """
        first, last = self._hash(data, key_start, key_end)
        value = offset.view(np.uint64) << _ONE
        if is_tombstone is not None:
            value |= is_tombstone
        count = 0
        for begin in range(0, len(value), _BLOCK_ROWS):
            block = slice(begin, begin + _BLOCK_ROWS)
            taken = self._put(first[block], last[block], value[block])
            count += taken
            if taken < len(value[block]):
                break
        return count

    def get(self, data: Bytes, key_start: Array, key_end: Array) -> Array:
        """The latest offset of each row's key, -1 for an unknown key."""
        first, last = self._hash(data, key_start, key_end)
        offsets = np.empty(len(first), np.int64)
        for begin in range(0, len(first), _BLOCK_ROWS):
            block = slice(begin, begin + _BLOCK_ROWS)
            slot, is_found = self._find(first[block], last[block])
            slot *= _SLOT_WORDS
            slot += 2
            offsets[block] = np.where(is_found, (self._table.take(slot) >> _ONE).view(np.int64), -1)
        return offsets

    def into_offsets(self) -> tuple[Array, Array]:
        """All offsets, and those of tombstones, both ascending. Empties the map.

        They are made in the memory of the table: for millions of keys there is none for both.
        """
        table = self._table
        self.clear()
        count = 0
        for begin in range(0, len(table), _BLOCK_ROWS * _SLOT_WORDS):
            block = table[begin : begin + _BLOCK_ROWS * _SLOT_WORDS]
            value = block[2::_SLOT_WORDS][block[::_SLOT_WORDS] != 0]
            table[count : count + len(value)] = value  # never past the records that were read
            count += len(value)
            del block
        table.resize(count, refcheck=False)  # the remaining memory goes back to the system
        table.sort()
        tombstones = [np.empty(0, np.uint64)]
        for begin in range(0, count, _BLOCK_ROWS):
            value = table[begin : begin + _BLOCK_ROWS]
            tombstones.append(value[value & _ONE != 0] >> _ONE)
            value >>= _ONE
        return table.view(np.int64), np.concatenate(tombstones).view(np.int64)

    def clear(self) -> None:
        """Remove all keys. The memory goes back to the system, the hash stays."""
        self.size = 0
        self._use(self._sizes[0])

    def _hash(self, data: Bytes, key_start: Array, key_end: Array) -> tuple[Words, Words]:
        first, last = self._hash_of(data, key_start, key_end)
        first |= first == 0
        return first, last

    def _put(self, first: Words, last: Words, value: Words) -> int:
        slot, is_found = self._find(first, last)
        new = np.flatnonzero(~is_found)
        room = self.capacity - self.size
        if len(new) > room:
            count = _before_key(room, first, last, new)
            first, last, value, slot = first[:count], last[:count], value[:count], slot[:count]
            new = new[: np.searchsorted(new, count)]
        if len(new):
            if self._grow_for(len(new)):
                slot, is_found = self._find(first, last)
                new = np.flatnonzero(~is_found)
            self._claim(first, last, slot, new)
        slot *= _SLOT_WORDS
        slot += 2
        self._table[slot] = value  # in the order of the rows: the last one of a key stays
        return len(value)

    def _find(self, first: Words, last: Words) -> tuple[Array, Flags]:
        """The slot where the search for each row's key ends, and whether it holds the key; if not, it is empty."""
        slots = self._slots_now
        slot = _share_of((first ^ last) * _SPREAD, slots)
        found, is_found = self._compare(first, last, slot)
        going = np.flatnonzero(~is_found)
        going = going[found.take(going) != 0]
        here, first, last = slot.take(going), first.take(going), last.take(going)
        step = 1 + _share_of(last * _SPREAD, slots - 1)
        probes = width = 1
        while len(going):
            if probes < _HASHED_PROBES:
                probes += 1
                here += step
                here -= (here >= slots) * slots
            else:
                # slot by slot, a window at a time: the first word in it that ends the search
                width = min(8 * width, _WINDOW_MAX)
                window = here[:, None] + np.arange(1, width + 1)
                found = self._table.take(window * _SLOT_WORDS, mode="wrap")
                ends = (found == first[:, None]) | (found == 0)
                ends[:, -1] = True
                here = (here + 1 + ends.argmax(axis=1)) % slots
            found, same = self._compare(first, last, here)
            slot[going] = here
            is_found[going] = same
            same |= found == 0
            on = np.flatnonzero(~same)
            going, here, step = going.take(on), here.take(on), step.take(on)
            first, last = first.take(on), last.take(on)
        return slot, is_found

    def _compare(self, first: Words, last: Words, slot: Array) -> tuple[Words, Flags]:
        """The first words of the slots, and whether each slot holds the row's key."""
        at = slot * _SLOT_WORDS
        found = self._table.take(at)
        same = found == first
        at += 1
        same &= self._table.take(at) == last
        return found, same

    def _claim(self, first: Words, last: Words, slot: Array, rows: Array) -> None:
        """Gives each key of `rows` an empty slot: its `slot`, where its search ended, or a later one of its
        sequence."""
        table = self._table
        while len(rows):
            at = slot.take(rows) * _SLOT_WORDS
            wanted_first, wanted_last = first.take(rows), last.take(rows)
            # where several want the same slot, the last of them gets all three words
            table[at] = wanted_first
            mine = table.take(at) == wanted_first
            at += 1
            table[at] = wanted_last
            mine &= table.take(at) == wanted_last
            at += 1
            table[at] = rows.view(np.uint64)
            self.size += int(np.count_nonzero(table.take(at) == rows.view(np.uint64)))
            lost = ~mine
            rows = rows[lost]
            if len(rows):
                slot[rows] = self._find(wanted_first[lost], wanted_last[lost])[0]

    def _use(self, slots: int) -> None:
        """Begin an empty table. The system allocates its pages when they are touched."""
        self._table: Words = np.zeros(slots * _SLOT_WORDS, np.uint64)
        self._slots_now = slots

    def _grow_for(self, new_keys: int) -> bool:
        """Grow the table if its load would be too high with `new_keys` more. Returns whether it has grown."""
        enough = (slots for slots in self._sizes if self.size + new_keys <= slots * _CROWDED)
        slots = max(self._slots_now, next(enough, self._sizes[-1]))
        if slots == self._slots_now:
            return False
        rows = self._table.reshape(-1, _SLOT_WORDS)
        held = rows[rows[:, 0] != 0]
        del rows
        self._use(0)
        self._use(slots)
        self.size = 0
        for begin in range(0, len(held), _BLOCK_ROWS):
            first, last, value = np.ascontiguousarray(held[begin : begin + _BLOCK_ROWS].T)
            slot, _ = self._find(first, last)
            self._claim(first, last, slot, np.arange(len(first)))
            self._table[slot * _SLOT_WORDS + 2] = value
        return True


def _share_of(mixed: Words, number: int) -> Array:
    """From 0 to number - 1, by the upper half of `mixed`, which is changed."""
    mixed >>= _HALF
    mixed *= np.uint64(number)
    mixed >>= _HALF
    return mixed.view(np.int64)


def _before_key(number: int, first: Words, last: Words, rows: npt.NDArray[np.int64]) -> int:
    """The number of rows before the first row of the key with this number among the distinct keys of `rows`."""
    ordered = rows[np.lexsort((last.take(rows), first.take(rows)))]  # stable: rows of one key ascend
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = np.diff(first.take(ordered)).astype(np.bool_) | np.diff(last.take(ordered)).astype(np.bool_)
    firsts = np.sort(ordered[is_first])
    return int(firsts[number]) if number < len(firsts) else len(first)


class RetainedRecords:
    """The first piece of the dirty range turns the map into its sorted offsets: no key is looked up from there on."""

    def __init__(self, offset_map: SkimpyOffsetMap, first_dirty_offset: int, latest_offset: int) -> None:
        self._map: SkimpyOffsetMap | None = offset_map
        self.first_dirty_offset = first_dirty_offset
        self.latest_offset = latest_offset
        self._offsets: Array = np.empty(0, np.int64)
        self._tombstones: Array = np.empty(0, np.int64)

    def reach(self, base_offset: int) -> None:
        """The cleaning has reached `base_offset`: no lookup for a lower offset follows."""
        if self._map is not None and base_offset >= self.first_dirty_offset:
            self._offsets, self._tombstones = self._map.into_offsets()
            self._map = None

    def covers(self, base_offset: Array, last_offset: Array) -> Flags:
        """Whether all offsets of each batch are in the range of the map, and its offsets are sorted."""
        if self._map is not None:
            return np.zeros(len(base_offset), np.bool_)
        inside: Flags = (base_offset >= self.first_dirty_offset) & (last_offset <= self.latest_offset)
        return inside

    def count_between(self, base_offset: Array, last_offset: Array) -> tuple[Array, Array]:
        """The number of retained records of each covered batch, tombstones included, and of tombstones."""
        return tuple(  # type: ignore[return-value]
            np.searchsorted(offsets, last_offset, "right") - np.searchsorted(offsets, base_offset)
            for offsets in (self._offsets, self._tombstones)
        )

    def offsets_between(self, base_offset: Array, last_offset: Array) -> tuple[Array, Array]:
        """(row of the batch, offset) of each of these records."""
        offsets = self._offsets
        first = np.searchsorted(offsets, base_offset)
        count = np.searchsorted(offsets, last_offset, "right") - first
        row = np.repeat(np.arange(len(count)), count)
        at = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
        return row, offsets[at]

    def are_tombstones(self, offset: Array) -> Flags:
        """Whether the retained record at each offset of the dirty range is a tombstone."""
        return _are_in(offset, self._tombstones)

    def look_up(self, data: Bytes, keys: RecordKeys, offset: Array) -> Flags:
        """Whether each record is retained, be it a tombstone or not. Raises CleaningFailed."""
        retained: Flags = offset > self.latest_offset
        rows = np.flatnonzero(~retained & keys.is_present)
        if not len(rows):
            return retained
        wanted = offset[rows]
        if self._map is not None:
            retained[rows] = self._map.get(data, keys.start[rows], keys.end[rows]) <= wanted
        elif wanted.min() < self.first_dirty_offset:
            raise CleaningFailed(f"offset {wanted.min()} follows higher ones")
        else:
            retained[rows] = _are_in(wanted, self._offsets)
        return retained


def _are_in(offset: Array, among: Array) -> Flags:
    """Whether each offset is in `among`, which ascends."""
    if not len(among):
        return np.zeros(len(offset), np.bool_)
    at = np.minimum(np.searchsorted(among, offset), len(among) - 1)
    found: Flags = among[at] == offset
    return found
