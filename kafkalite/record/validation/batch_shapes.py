"""Shapes of records and of whole batches: the bytes that make their structure, whatever else they contain.

The shape of a record are the bytes of its lengths and counts, and how long its deltas are. Records of one producer
often have one shape, and so have its batches. `BatchShape.fits` compares the bytes that made the structure of a batch,
which was found good, with those of another batch of the same size: in runs of records of one shape each byte as a
column, a slice of the batch whose step is the size of a record. Equal bytes mean an equal structure, so the other batch
is good, too. CPU of the check in us, with `check_structure` and with this:

    1 x 100 B  1.1, 0.2        16 x 1 KB  8.9, 1.6        150 x 100 B  18, 3.3        512 x 1 KB  38, 12

`known_shapes` remembers them. It is a memo of bytes, of all brokers of a process, and decides nothing: a batch of
another shape is checked record by record.
"""

from __future__ import annotations

from itertools import cycle
from struct import Struct

from kafkalite.record.batch import Buffer
from kafkalite.record.record import read_varint

FURTHER_BYTE = bytes(range(0x80, 0x100))  # of a varint
LAST_BYTE = bytes(range(0x80))
_HEADERS_MAX = 16
_RUNS_MAX = 8
_COPIED_BYTES_MAX = 128 * 1024  # a column of a view takes twice the time, and the view is not copied
_KNOWN_MAX = 128
_RECORDS_MAX = 1000  # of a batch whose shape is remembered: at most 70 KB, and 9 MB for all
_LEARNT_EVERY = 16
"""Where sizes vary, most batches have a shape of their own, and to remember it takes longer than the check."""

RecordShape = list[tuple[int, bytes]]  # distances from the start of a record, and the bytes that may be there


def shape_of(data: bytes, start: int) -> RecordShape:
    """The shape of the good record at `start`; empty if it has many headers.

    Lengths and counts are the same in all records of a shape. Deltas are as long: no check depends on their values.
    """
    at = start
    while data[at] > 0x7F:
        at += 1
    same = list(range(start, at + 1))
    at += 2  # attributes
    shape: RecordShape = []
    for _ in range(2):  # deltas of time and offset
        while data[at] > 0x7F:
            shape.append((at - start, FURTHER_BYTE))
            at += 1
        shape.append((at - start, LAST_BYTE))
        at += 1
    at = _skip_fields(data, at, 2, same)
    headers, behind = read_varint(data, at)
    if headers > _HEADERS_MAX:
        return []
    same += range(at, behind)
    _skip_fields(data, behind, 2 * headers, same)
    return [(at - start, data[at : at + 1]) for at in same] + shape


def _skip_fields(data: bytes, at: int, count: int, lengths: list[int]) -> int:
    """The position behind `count` fields. Appends the positions of the bytes of their lengths."""
    for _ in range(count):
        size, behind = read_varint(data, at)
        lengths += range(at, behind)
        at = behind + max(size, 0)
    return at


def rows_alike(data: bytes, start: int, size: int, rows: int, shape: RecordShape) -> int:
    """How many of `rows` records of `size` bytes from `start` have this shape before one has not."""
    for distance, allowed in shape:
        column = data[start + distance : start + rows * size : size]
        if allowed is LAST_BYTE:
            fits = column.isascii()
        elif allowed is FURTHER_BYTE:
            fits = not column.translate(None, FURTHER_BYTE)
        else:
            fits = column == allowed * rows
        if not fits:
            rows -= len(column.lstrip(allowed))
    return rows


class BatchShape:
    """The shape of a good batch. `unpack` cuts the bytes of its single records out of it, which must be as `expected`;
    the columns of runs of records have the bytes that they had, or last or further bytes of varints."""

    __slots__ = ("_columns", "_expected", "_further_bytes", "_has_runs", "_last_bytes", "_unpack")

    def __init__(self, data: bytes, runs: list[_Run]) -> None:
        layout, end = ">", 0
        self._columns: list[tuple[slice, bytes]] = []
        self._last_bytes: list[slice] = []
        self._further_bytes: list[slice] = []
        for start, size, rows, shape in runs:
            if rows == 1:
                for first, behind in _stretches(sorted(start + distance for distance, _ in shape)):
                    layout += f"{first - end}x{behind - first}s"
                    end = behind
                continue
            for distance, allowed in shape:
                column = slice(start + distance, start + rows * size, size)
                if allowed is LAST_BYTE:
                    self._last_bytes.append(column)
                elif allowed is FURTHER_BYTE:
                    self._further_bytes.append(column)
                else:
                    self._columns.append((column, allowed * rows))
        self._unpack = Struct(layout).unpack_from
        self._expected = self._unpack(data)
        self._has_runs = bool(self._columns)

    def fits(self, records: Buffer, start: int) -> bool:
        """Whether the records from `start` to the end have this shape. There are as many bytes of them."""
        if self._unpack(records, start) != self._expected:
            return False
        if not self._has_runs:
            return True
        data: Buffer = memoryview(records)[start:]
        if len(data) <= _COPIED_BYTES_MAX:
            data = bytes(data)
        for column, expected in self._columns:
            if data[column] != expected:
                return False
        for column in self._last_bytes:
            if not bytes(data[column]).isascii():
                return False
        return not any(bytes(data[column]).translate(None, FURTHER_BYTE) for column in self._further_bytes)


def _stretches(places: list[int]) -> list[tuple[int, int]]:
    """Ascending places as (first, behind the last) of neighbours."""
    stretches: list[tuple[int, int]] = []
    for place in places:
        if stretches and stretches[-1][1] == place:
            stretches[-1] = stretches[-1][0], place + 1
        else:
            stretches.append((place, place + 1))
    return stretches


_Run = tuple[int, int, int, RecordShape]  # start, size of a record, number of records, their shape

known_shapes: dict[tuple[int, int], BatchShape] = {}
"""By the size and the number of the records of a batch."""
_turns = cycle(range(_LEARNT_EVERY))


def remember(data: bytes, count: int) -> None:
    """Remember the shape of `count` good records, sometimes, unless they are of many shapes."""
    if count <= _RECORDS_MAX and next(_turns) == 0 and (runs := _runs_of(data, count)):
        if len(known_shapes) >= _KNOWN_MAX:
            known_shapes.clear()
        known_shapes[len(data), count] = BatchShape(data, runs)


def _runs_of(data: bytes, count: int) -> list[_Run]:
    """The runs of records of one shape; empty if there are too many."""
    runs: list[_Run] = []
    start = 0
    while count:
        size, behind = read_varint(data, start)
        shape = shape_of(data, start)
        if not shape or len(runs) == _RUNS_MAX:
            return []
        size += behind - start
        rows = min(count - 1, (len(data) - start) // size - 1)
        rows = 1 + rows_alike(data, start + size, size, rows, shape) if rows else 1
        runs.append((start, size, rows, shape))
        start += rows * size
        count -= rows
    return runs
