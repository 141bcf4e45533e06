"""A read that keeps about a hundredth of a topic, and the share of the topic's bytes that it took from files.

The kernel counts them for this process (proc(5), rchar of /proc/PID/io): planning is in it, and whatever the reader did
not count itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from kafkalite.reader.topic_reader import read

_IO = Path("/proc/self/io")


class Shares(NamedTuple):
    """Parts of a topic: records that were kept, and bytes of its segments that were read."""

    kept: float
    read: float


def shares(data_dir: str, topic: str, records: int, column: str) -> Shares:
    """Read all columns of the records in the middle, chosen by a filter on offset or timestamp. Records of one
    millisecond are kept together, which of a small topic may be more than a hundredth."""
    first, end = records * 99 // 200, records * 101 // 200
    if column == "timestamp":
        first, end = (_timestamp(data_dir, topic, offset) for offset in (first, end))
    filters = [(column, ">=", first), (column, "<", end)]
    before = _bytes_read()
    rows = sum(batch.num_rows for batch in read(data_dir, topic, filters=filters))
    taken = _bytes_read() - before
    size = sum(path.stat().st_size for path in Path(data_dir).glob(f"{topic}-*/*.log"))
    return Shares(rows / records, taken / size)


def _timestamp(data_dir: str, topic: str, offset: int) -> Any:
    return read(data_dir, topic, filters=[("offset", "=", offset)]).read_all()["timestamp"][0].as_py()


def _bytes_read() -> int:
    found = dict(line.split(": ") for line in _IO.read_text().splitlines())
    return int(found["rchar"])
