"""The partition of each row: the one that is asked for, that of the key's hash, or for null keys one after the other.

Keys are hashed in lanes, four bytes of all keys a step. Rows without a key stay in one partition until about a batch
has come together, and then go on to the next, so that batches are full and partitions even.
Source: org.apache.kafka.clients.producer.internals.BuiltInPartitioner, org.apache.kafka.common.utils.Utils.murmur2;
KIP-480 and KIP-794.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalite.common.checksum import MURMUR2_SEED

Array = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint32]

_MULTIPLIER = np.uint32(0x5BD1E995)
_SHIFT = np.uint32(24)


def murmur2(keys: pa.Array) -> _Words:
    """The hash of each binary value, unsigned; a null's is that of no bytes."""
    data, offsets = _parts(keys)
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    hashes: _Words = np.uint32(MURMUR2_SEED) ^ lengths.astype(np.uint32)
    order = np.argsort(-lengths, kind="stable") if len(lengths) and lengths.min() != lengths.max() else None
    if order is not None:  # descending: keys that go on are always the first lanes
        starts, hashes, lengths = starts[order], hashes[order], lengths[order]
    words = lengths >> 2
    for step in range(int(words.max(initial=0))):
        width = len(words) if words[-1] > step else int(np.searchsorted(-words, -step, "left"))
        word = _word(data, starts[:width] + 4 * step, 4) * _MULTIPLIER
        word ^= word >> _SHIFT
        word *= _MULTIPLIER
        hashes[:width] = hashes[:width] * _MULTIPLIER ^ word
    for left in (1, 2, 3):
        rows = np.flatnonzero((lengths & 3) == left)
        if len(rows):
            hashes[rows] = (hashes[rows] ^ _word(data, starts[rows] + (lengths[rows] & ~3), left)) * _MULTIPLIER
    hashes ^= hashes >> np.uint32(13)
    hashes *= _MULTIPLIER
    hashes ^= hashes >> np.uint32(15)
    if order is None:
        return hashes
    result = np.empty_like(hashes)
    result[order] = hashes
    return result


class Partitioner:
    """Chooses partitions for the rows of one topic, chunk after chunk. `first` is where rows without a key begin."""

    def __init__(self, partition_count: int, batch_bytes: int, first: int) -> None:
        self.partition_count = partition_count
        self._batch_bytes = batch_bytes
        self._partition = first % partition_count
        self._filled_bytes = 0

    def choose(self, keys: pa.Array | None, partitions: pa.Array | None, sizes: Array) -> Array:
        """A partition for each row. `partitions` has those that are asked for, or null; `sizes` the rows' bytes."""
        count = len(sizes)
        if self.partition_count == 1:
            return np.zeros(count, np.int64)
        chosen = np.full(count, -1, np.int64)
        if partitions is not None:
            chosen = pc.fill_null(partitions, -1).to_numpy().astype(np.int64)
        if keys is not None:
            keyed = (chosen < 0) & pc.is_valid(keys).to_numpy(zero_copy_only=False)
            if keyed.all():
                return self._of_hash(murmur2(keys))
            if keyed.any():
                chosen[keyed] = self._of_hash(murmur2(keys.filter(pa.array(keyed))))
        rest = chosen < 0
        if rest.any():
            chosen[rest] = self._one_after_the_other(sizes[rest])
        return chosen

    def _of_hash(self, hashes: _Words) -> Array:
        positive: Array = (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64)
        return positive % self.partition_count

    def _one_after_the_other(self, sizes: Array) -> Array:
        before = self._filled_bytes + np.cumsum(sizes) - sizes
        turns: Array = before // self._batch_bytes
        chosen: Array = (self._partition + turns) % self.partition_count
        self._filled_bytes += int(sizes.sum())
        turns_done, self._filled_bytes = divmod(self._filled_bytes, self._batch_bytes)
        self._partition = (self._partition + turns_done) % self.partition_count
        return chosen


def _parts(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int32]]:
    _, offsets, data = keys.buffers()
    bounds = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), bounds


def _word(data: npt.NDArray[np.uint8], at: Array, size: int) -> _Words:
    """The little-endian number of `size` bytes at each position."""
    word: _Words = data[at].astype(np.uint32)
    for byte in range(1, size):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word
