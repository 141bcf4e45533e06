"""Rows of a segment's bytes by the plain readers, an object each: the truth for readers by columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from kafkalite.reader.planning.split import Chunk
from kafkalite.record.batch import CONTROL, HEADER_BYTES, MAGIC, parse_header
from kafkalite.record.message_set import V0, entry_header, read_messages
from kafkalite.record.record import read_records

FAR = 1 << 62


class Row(NamedTuple):
    """A record as Spark's Kafka source shows it, its time in milliseconds."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def plain_rows(parts: Iterable[bytes], wanted: Callable[[Row], bool] = lambda row: True) -> list[Row]:
    """The wanted rows of whole batches, and of entries of formats v0 and v1."""
    rows = []
    for part in parts:
        if part[16] < MAGIC:
            header = entry_header(part)
            kind = -1 if header.magic == V0 else header.timestamp_type
            records = read_messages(part)
        else:
            header = parse_header(part)
            kind = header.timestamp_type
            records = [] if header.attributes & CONTROL else read_records(part)
        rows += [Row(one.offset, one.timestamp, kind, one.key, one.value, one.headers) for one in records]
    return [row for row in rows if wanted(row)]


def chunk_of(path: Path, **fields: Any) -> Chunk:
    """The whole file as a chunk of orders-0."""
    data = path.read_bytes()
    whole = Chunk("orders", 0, str(path), 0, len(data), data[:HEADER_BYTES], 0, FAR)
    return whole._replace(**fields)
