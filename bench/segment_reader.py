"""`python -m bench segment-reader`: a segment file to Arrow record batches, alone, in one process on one core.

Segments of kafkalite's own batches are written below a temporary directory, with keys of ten bytes, values of mixed
length that look like JSON, and times that go up. Each is read warm, several times, and the best time counts: other work
disturbs it least. Seconds are of CPU, the kernel's included. Pin it with taskset where other work is done.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from bench.report import machine
from kafkalite.reader.chunk_reader import COLUMNS, count_rows, read_split
from kafkalite.reader.planning.split import Chunk, ReadReport, RowFilter
from kafkalite.record.batch import HEADER_BYTES, NewRecord, build_batch, stamp
from kafkalite.record.compression import CODECS

_DIFFERENT = 64  # batches, which are repeated
_KEYS = 1_000_000
_TIME = 1_700_000_000_000
_SPARK = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class Segment:
    chunk: Chunk
    record_count: int


def write_segment(path: str, codec: str, record_bytes: int, batch_records: int, size_bytes: int) -> Segment:
    """A segment of about `size_bytes` of records before compression."""
    random = np.random.default_rng(record_bytes)
    noise = random.bytes(1 << 19).hex().encode()
    batches = []
    for _ in range(_DIFFERENT):
        rows = []
        for i in range(batch_records):
            size = int(random.integers(record_bytes * 7 // 10, record_bytes * 13 // 10)) - 10
            at = int(random.integers(0, len(noise) - size))
            value = b'{"id":"%s","state":"open","currency":"EUR","note":"' % noise[at : at + 16]
            rows.append(
                NewRecord(b"%010d" % int(random.integers(0, _KEYS)), (value + noise[at:])[:size], (), _TIME + i)
            )
        batches.append(build_batch(rows, codec=CODECS[codec]))
    count = 0
    with open(path, "wb") as file:
        while count * record_bytes < size_bytes:
            batch = batches[count // batch_records % _DIFFERENT]
            stamp(batch, count, 0)
            file.write(batch)
            count += batch_records
    with open(path, "rb") as file:
        head = file.read(HEADER_BYTES)
    return Segment(Chunk("orders", 0, path, 0, os.path.getsize(path), head, 0, count), count)


def read_columns(segment: Segment, names: Sequence[str], row_filter: RowFilter, report: ReadReport) -> int:
    """The number of rows of these columns."""
    schema = pa.schema([(name, COLUMNS[name].arrow) for name in names])
    chunk = segment.chunk._replace(row_filter=row_filter)
    return sum(batch.num_rows for batch in read_split((chunk,), schema, report=report))


def seconds_of(work: Callable[[], int], expected: int, times: int) -> float:
    """CPU seconds of the best of some runs, each of which must find `expected` rows."""
    found = []
    for _ in range(times):
        begin = time.process_time()
        rows = work()
        found.append(time.process_time() - begin)
        if rows != expected:
            raise SystemExit(f"bench: {rows} rows where there are {expected}")
    return min(found)


def line(name: str, what: str, seconds: float, segment: Segment, record_bytes: int, read: int) -> None:
    count = segment.record_count
    print(
        f"{name:28} {what:28} {count / seconds / 1e6:9.2f} M/s {seconds / count * 1e9:8.1f} ns "
        f"{count * record_bytes / seconds / 1e9:8.2f} GB/s  {read / segment.chunk.size_bytes:7.1%} of the file read"
    )


def measure(name: str, segment: Segment, record_bytes: int, times: int, columns: bool) -> None:
    """The lines of one segment."""
    works: dict[str, tuple[Sequence[str], RowFilter]] = {"all of Spark's columns": (_SPARK, RowFilter())}
    if columns:
        every = RowFilter()
        hundredth = RowFilter(min_offset=segment.record_count * 99 // 100)
        works |= {
            "value": (("value",), every), "key, offset": (("key", "offset"), every),
            "offset, timestamp": (("offset", "timestamp"), every), "offset": (("offset",), every),
            "value, the last hundredth": (("value",), hundredth),
        }  # fmt: skip
    for what, (names, bounds) in works.items():
        rows = segment.record_count - max(0, bounds.min_offset)
        report = ReadReport()
        read_columns(segment, names, bounds, report)
        seconds = seconds_of(partial(read_columns, segment, names, bounds, report), rows, times)
        line(name, what, seconds, segment, record_bytes, report.bytes_read // (times + 1))
    if columns:
        report = ReadReport()
        count_rows((segment.chunk,), report=report)
        seconds = seconds_of(lambda: count_rows((segment.chunk,)), segment.record_count, times)
        line(name, "count", seconds, segment, record_bytes, report.bytes_read)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench segment-reader", description=__doc__)
    parser.add_argument("--mb", type=int, default=200, help="of records before compression (default 200)")
    parser.add_argument("--times", type=int, default=5, help="how often each is read (default 5)")
    parser.add_argument("--codec", nargs="+", choices=CODECS, default=list(CODECS))
    parser.add_argument("--record-bytes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--batch-bytes", type=int, nargs="+", default=[16_000, 500_000], help="before compression")
    options = parser.parse_args(arguments)
    if not 1 <= options.mb <= 16_000 or not 1 <= options.times <= 1000 or min(options.record_bytes) < 30:
        parser.error("--mb is 1 to 16000, --times 1 to 1000, --record-bytes 30 or more")
    facts = ", ".join(f"{value} {key}" if key == "cores" else value for key, value in machine().items())
    print(f"{facts}; numpy {np.__version__}, pyarrow {pa.__version__}\n")
    with tempfile.TemporaryDirectory(prefix="kafkalite-bench-") as directory:
        path = os.path.join(directory, f"{0:020d}.log")
        for record_bytes in options.record_bytes:
            for batch_bytes in options.batch_bytes:
                for codec in options.codec:
                    count = max(1, batch_bytes // record_bytes)
                    segment = write_segment(path, codec, record_bytes, count, options.mb * 1_000_000)
                    measure(
                        f"{record_bytes} B x {count} {codec}", segment, record_bytes, options.times, codec == "none"
                    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
