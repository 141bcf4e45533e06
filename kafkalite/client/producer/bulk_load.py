"""Arrow record batches into topics: rows to partitions, partitions to batches, batches to the producer.

Rows are collected to chunks, so that each partition of a chunk has enough for whole batches; rows of a partition keep
their order. The columns are those of Spark's Kafka sink: key, value (binary or string), topic, partition, headers; and
`timestamp` if the options include it.

The partition of a row is the requested one, that of the key's hash, or for null keys the sticky one: rows without a key
stay in one partition until about a batch is full, then use the next, so that batches are full and partitions even. Keys
are hashed in lanes: each step takes four bytes of all keys.

The records of a batch are contiguous in one buffer. A record is a run of varints (its length, deltas, the key's
length), the key, the value's length, the value, and the headers. The varints of all records are made in numpy; one
kernel of Arrow joins the pieces, 75 ns a record and outside the interpreter lock.
Source: org.apache.spark.sql.kafka010.{KafkaWriter, KafkaRowWriter},
org.apache.kafka.clients.producer.internals.BuiltInPartitioner; KIP-480 and KIP-794.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalite.client.cluster_client import WriteFailed
from kafkalite.client.producer.options import WriteOptions
from kafkalite.client.producer.producer import Producer, RecordRun
from kafkalite.common.checksum import MURMUR2_SEED
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.record.batch import HEADER_BYTES
from kafkalite.record.columns.varint_columns import encode_varint_rows, varint_sizes

Array = npt.NDArray[np.int64]

CHUNK_BYTES = 16 << 20
_CHUNK_ROWS = 250_000
_ENCODED_BYTES = 4 << 20  # encoded at a time: more than may be in flight
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

# bytes that a record may need beyond its size alone in a batch: for the deltas of time and offset, and its length
_DELTAS_BYTES_MAX = 9 + 4 + 1
_EMPTY = pa.scalar(b"", pa.binary())


class Rows(NamedTuple):
    """Rows that become records. `keys` and `values` are binary arrays, None if all are null. `headers` is a list of
    structs of key and value, None for none. `timestamps` in milliseconds.
    """

    keys: pa.Array | None
    values: pa.Array | None
    headers: pa.Array | None
    timestamps: Array

    def __len__(self) -> int:
        return len(self.timestamps)

    def take(self, order: Array) -> Rows:
        """The rows in another order, or some of them."""
        chosen = pa.array(order)
        keys, values, headers = (None if field is None else field.take(chosen) for field in self[:3])
        return Rows(keys, values, headers, self.timestamps[order])

    def part(self, start: int, end: int) -> Rows:
        """The rows from `start` to before `end`, without a copy."""
        keys, values, headers = (None if field is None else field.slice(start, end - start) for field in self[:3])
        return Rows(keys, values, headers, self.timestamps[start:end])


def sizes_alone(rows: Rows) -> Array:
    """The bytes of a batch that holds this one record, for each row."""
    count = len(rows)
    keys, values = _lengths(rows.keys, count), _lengths(rows.values, count)
    body = 3 + varint_sizes(keys) + np.maximum(keys, 0) + varint_sizes(values) + np.maximum(values, 0)
    counts, entries = _headers(rows.headers, count)
    body += varint_sizes(counts)
    if entries is not None:
        body += _lengths(entries, count)
    size: Array = HEADER_BYTES + body + varint_sizes(body)
    return size


def cut(sizes: Array, batch_bytes: int, first: int = 0, end: int | None = None) -> list[int]:
    """Where batches of at most `batch_bytes` begin among the rows from `first` to `end`, whose `sizes_alone` these are.
    A row that is larger has a batch of its own."""
    end = len(sizes) if end is None else end
    ends = np.cumsum(sizes[first:end] + (_DELTAS_BYTES_MAX - HEADER_BYTES))
    starts, row, done = [], 0, 0
    while row < end - first:
        starts.append(first + row)
        row = max(row + 1, int(np.searchsorted(ends, done + batch_bytes - HEADER_BYTES, "right")))
        done = int(ends[row - 1])
    return starts


def encode(rows: Rows, starts: list[int]) -> list[RecordRun]:
    """The rows as the records of batches, of which each begins at a row of `starts`; the first is 0."""
    count = len(rows)
    if not count:
        return []
    bounds = np.array([*starts, count])
    first = np.repeat(bounds[:-1], np.diff(bounds))
    keys, values = _lengths(rows.keys, count), _lengths(rows.values, count)
    counts, entries = _headers(rows.headers, count)
    base_timestamps = rows.timestamps[bounds[:-1]]
    time_deltas = rows.timestamps - rows.timestamps[first]
    offset_deltas = np.arange(count) - first
    body = 1 + varint_sizes(time_deltas) + varint_sizes(offset_deltas)
    body += varint_sizes(keys) + np.maximum(keys, 0) + varint_sizes(values) + np.maximum(values, 0)
    body += varint_sizes(counts) + (0 if entries is None else _lengths(entries, count))
    # the attributes, a byte of zeros, are the varint 0
    head = _binary_parts(*encode_varint_rows([body, np.zeros(count, np.int64), time_deltas, offset_deltas, keys]))
    pieces = [head, _or_empty(rows.keys), _binary_parts(*encode_varint_rows([values])), _or_empty(rows.values)]
    if entries is None:
        pieces.append(pa.scalar(b"\0", pa.binary()))
    else:
        pieces += [_binary_parts(*encode_varint_rows([counts])), entries]
    joined = _join(pieces)
    data, offsets = memoryview(joined.buffers()[2]).cast("B"), _offsets(joined)
    max_timestamps = np.maximum.reduceat(rows.timestamps, bounds[:-1])
    return [
        RecordRun(data[offsets[start] : offsets[end]], int(end - start), int(base), int(latest))
        for start, end, base, latest in zip(bounds[:-1], bounds[1:], base_timestamps, max_timestamps, strict=True)
    ]


def _headers(headers: pa.Array | None, count: int) -> tuple[Array, pa.Array | None]:
    """The number of headers of each row, and their bytes behind that number; None if no row has any."""
    if headers is None:
        return np.zeros(count, np.int64), None
    lists = headers.fill_null([]) if headers.null_count else headers
    lists_offsets = lists.offsets.to_numpy()
    counts = np.diff(lists_offsets).astype(np.int64)
    if not counts.any():
        return counts, None
    entries = lists.values.slice(int(lists_offsets[0]), int(lists_offsets[-1] - lists_offsets[0]))
    keys, values = (_as_binary(pc.struct_field(entries, [part])) for part in (0, 1))
    pieces = [
        _binary_parts(*encode_varint_rows([_lengths(keys, len(keys))])),
        keys,
        _binary_parts(*encode_varint_rows([_lengths(values, len(values))])),
        values,
    ]
    joined = _join(pieces)
    offsets = _offsets(joined)[lists_offsets - lists_offsets[0]]
    return counts, pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), joined.buffers()[2]])


def _join(pieces: list[pa.Array]) -> pa.Array:
    return pc.binary_join_element_wise(*pieces, _EMPTY, null_handling="replace", null_replacement=b"")


def _binary_parts(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int32]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _as_binary(array: pa.Array) -> pa.Array:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _or_empty(array: pa.Array | None) -> pa.Array:
    return _EMPTY if array is None else array


def _lengths(array: pa.Array | None, count: int) -> Array:
    """The length of each value; -1 for null."""
    if array is None:
        return np.full(count, -1, np.int64)
    offsets = _offsets(array)
    lengths = np.diff(offsets).astype(np.int64)
    if array.null_count:
        lengths[pc.is_null(array).to_numpy(zero_copy_only=False)] = -1
    return lengths


def _offsets(array: pa.Array) -> npt.NDArray[np.int32]:
    offsets = np.frombuffer(array.buffers()[1], np.int32)
    return offsets[array.offset : array.offset + len(array) + 1]


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
    if order is not None:  # descending: longer keys are always the first lanes
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
    """Chooses partitions for the rows of a topic, chunk after chunk. Rows without a key begin at partition `first`."""

    def __init__(self, partition_count: int, batch_bytes: int, first: int) -> None:
        self.partition_count = partition_count
        self._batch_bytes = batch_bytes
        self._partition = first % partition_count
        self._filled_bytes = 0

    def choose(self, keys: pa.Array | None, partitions: pa.Array | None, sizes: Array) -> Array:
        """A partition for each row. `partitions` has the requested ones, or null; `sizes` the rows' bytes."""
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


class _Divided(NamedTuple):
    """Rows of one topic in the order of their partitions, and for each batch its first row, its partition, and the
    bytes up to its end."""

    topic: str
    rows: Rows
    starts: list[int]
    partitions: list[int]
    ends: Array


class BulkLoad:
    """Writes record batches with the same columns; after `finish` all rows are acknowledged. Raises WriteFailed."""

    def __init__(
        self,
        options: WriteOptions,
        producer: Producer,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        self._options = options
        self._producer = producer
        self._now_ms = now_ms
        self._chunk_bytes = chunk_bytes
        self._partitioners: dict[str, Partitioner] = {}
        self._collected: list[pa.RecordBatch] = []
        self._collected_bytes = 0
        self._collected_rows = 0
        self.row_count = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Buffer a batch of rows; whole chunks are sent."""
        self._collected.append(batch)
        self._collected_bytes += batch.nbytes
        self._collected_rows += batch.num_rows
        if self._collected_bytes >= self._chunk_bytes or self._collected_rows >= _CHUNK_ROWS:
            self._send_chunk()

    def finish(self) -> None:
        """Send the remaining rows, and wait until all are acknowledged."""
        self._send_chunk()
        self._producer.flush()

    def _send_chunk(self) -> None:
        if self._collected_rows:
            table = pa.Table.from_batches(self._collected).combine_chunks()
            batches = [self._divide(*each) for batch in table.to_batches() for each in self._by_topic(batch)]
            for each in batches:
                self._send(each)
        self.row_count += self._collected_rows
        self._collected, self._collected_bytes, self._collected_rows = [], 0, 0

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._options.topic is not None:
            yield self._options.topic, batch
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise WriteFailed("a row has null in the column 'topic'; set the option 'topic' for all rows")
        encoded = topics.dictionary_encode()
        for number, topic in enumerate(encoded.dictionary.to_pylist()):
            yield topic, batch.filter(pc.equal(encoded.indices, number)) if len(encoded.dictionary) > 1 else batch

    def _divide(self, topic: str, batch: pa.RecordBatch) -> _Divided:
        """The rows of one topic, divided into batches."""
        self._producer.open_topic(topic)
        rows = self._rows(batch)
        sizes = sizes_alone(rows)
        self._check_sizes(topic, sizes)
        chosen = self._choose(topic, batch, rows, sizes)
        if (chosen != chosen[0]).any():
            order = np.argsort(chosen, kind="stable")
            rows, sizes, chosen = rows.take(order), sizes[order], chosen[order]
        firsts = np.flatnonzero(np.diff(chosen, prepend=-1)).tolist()
        starts: list[int] = []
        for first, end in zip(firsts, [*firsts[1:], len(chosen)], strict=True):
            starts += cut(sizes, self._producer.batch_bytes(topic), first, end)
        ends = np.cumsum(sizes)[[start - 1 for start in [*starts[1:], len(chosen)]]]
        return _Divided(topic, rows, starts, chosen[starts].tolist(), ends)

    def _send(self, divided: _Divided) -> None:
        """Encode some batches while the broker handles the previous ones."""
        topic, rows, starts, partitions, ends = divided
        first = done = 0
        while first < len(starts):
            stop = max(first + 1, int(np.searchsorted(ends, done + _ENCODED_BYTES, "right")))
            end = starts[stop] if stop < len(starts) else len(rows)
            runs = encode(rows.part(starts[first], end), [start - starts[first] for start in starts[first:stop]])
            for partition, run in zip(partitions[first:stop], runs, strict=True):
                self._producer.add((topic, partition), run)
            self._producer.send()
            first, done = stop, int(ends[stop - 1])

    def _choose(self, topic: str, batch: pa.RecordBatch, rows: Rows, sizes: Array) -> Array:
        count = self._producer.partition_counts[topic]
        partitioner = self._partitioners.get(topic)
        if partitioner is None:
            first = random.randrange(count)
            partitioner = self._partitioners[topic] = Partitioner(count, self._producer.batch_bytes(topic), first)
        asked = batch.column("partition") if "partition" in batch.schema.names else None
        if asked is not None and asked.null_count < len(asked):
            least, most = pc.min_max(asked).as_py().values()
            if least < 0 or most >= count:
                wrong = least if least < 0 else most
                raise WriteFailed(f"a row asks for partition {wrong} of topic {topic!r}, which has 0 to {count - 1}")
        return partitioner.choose(rows.keys, asked, sizes)

    def _check_sizes(self, topic: str, sizes: Array) -> None:
        most, setting = self._producer.row_bytes(topic)
        if len(sizes) and int(sizes.max()) > most:
            raise WriteFailed(
                f"a row for topic {topic!r} needs {int(sizes.max())} bytes, and {setting} is {most}; "
                "raise it, or write smaller rows"
            )

    def _rows(self, batch: pa.RecordBatch) -> Rows:
        names = batch.schema.names
        headers = batch.column("headers").cast(_HEADERS) if "headers" in names else None
        timestamps = np.full(batch.num_rows, self._now_ms(), np.int64)
        if self._options.include_timestamp:
            given = batch.column("timestamp").cast(pa.timestamp("us", batch.schema.field("timestamp").type.tz))
            micros = given.view(pa.int64())
            valid = pc.is_valid(micros).to_numpy(zero_copy_only=False)
            timestamps = np.where(valid, pc.fill_null(micros, 0).to_numpy() // 1000, timestamps)
        keys = _binary(batch.column("key")) if "key" in names else None
        return Rows(keys, _binary(batch.column("value")), headers, timestamps)


def _binary(column: pa.Array) -> pa.Array | None:
    """None if all are null."""
    if column.null_count == len(column):
        return None
    return column if column.type == pa.binary() else column.cast(pa.binary())
