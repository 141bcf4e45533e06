"""Arrow record batches into topics: rows to partitions, partitions to batches, batches to the producer.

Rows are collected to chunks, so that each partition of a chunk has enough for whole batches; rows of a partition keep
their order. The columns are those of Spark's Kafka sink: key, value (binary or string), topic, partition, headers; and
`timestamp` where the options ask for it.
Source: org.apache.spark.sql.kafka010.{KafkaWriter, KafkaRowWriter}.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalite.client.retries import WriteFailed
from kafkalite.producer.options import WriteOptions
from kafkalite.producer.partitioner import Partitioner
from kafkalite.producer.producer import Producer
from kafkalite.producer.record_encoder import Rows, cut, encode, sizes_alone

Array = npt.NDArray[np.int64]

CHUNK_BYTES = 16 << 20
_CHUNK_ROWS = 250_000
_ENCODED_BYTES = 4 << 20  # encoded at a time: more than may be in flight
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class _Divided(NamedTuple):
    """Rows of one topic in the order of their partitions, and for each batch its first row, its partition, and the
    bytes up to its end."""

    topic: str
    rows: Rows
    starts: list[int]
    partitions: list[int]
    ends: Array


class BulkLoad:
    """Takes record batches with the same columns; after `finish` all rows are acknowledged. Raises WriteFailed."""

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
        """Take a batch of rows; whole chunks are sent."""
        self._collected.append(batch)
        self._collected_bytes += batch.nbytes
        self._collected_rows += batch.num_rows
        if self._collected_bytes >= self._chunk_bytes or self._collected_rows >= _CHUNK_ROWS:
            self._send_chunk()

    def finish(self) -> None:
        """Send the rest, and wait until all rows are acknowledged."""
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
        """Encode some batches while the broker is at work on those before them."""
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
