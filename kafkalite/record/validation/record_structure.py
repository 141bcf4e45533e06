"""The structure of the records of a producer's batch: that they can be read, without reading their values.

Records of one producer often have one shape: the same lengths, and deltas of as many bytes. The bytes that make the
shape of a record, some ten of them, are compared with those of many records behind it at once, each as a column: a
slice of the batch whose step is the size of a record. 8,000 records of 100 bytes take 0.12 ms instead of 4.5 in the
loop that checks all other records one by one. Many records of varied sizes without headers are left to
`record_starts.find_unknown`.
`record.check_record` is the plain version, with which the tests compare.
Source: org.apache.kafka.common.record.DefaultRecord, with its rules for malformed records.
"""

from __future__ import annotations

from itertools import repeat

from kafkalite.common.errors import Malformed
from kafkalite.record.batch import Buffer
from kafkalite.record.record import check_record, read_varint

_RUN_MIN = 16
"""To find the shape and compare it costs as much as the loop for so many records."""
_AHEAD_GROWTH = 64
_AHEAD_MAX = 4096
"""Records of varied sizes before the next attempt at a run, if the last ones found none."""
_COLUMNS_MIN = 500
"""From so many records of varied sizes on, columns take half the time of the loop. The first of them import numpy: 0.2
s of CPU, once, and 18 MB."""
_ROWS_FIRST = 128
_ROWS_GROWTH = 8
_HEADERS_MAX = 16
_FURTHER_BYTE = bytes(range(0x80, 0x100))  # of a varint
_LAST_BYTE = bytes(range(0x80))

_Shape = list[tuple[int, bytes]]  # distances from the start of a record, and the bytes that may be there


def check_structure(body: Buffer, count: int) -> None:
    """Check that `body` is `count` whole records. Raises Malformed."""
    data = bytes(body)
    last = len(data)
    left = count
    end = 0
    ahead = 1
    try:
        while left > ahead + _RUN_MIN:
            start, end = _check_varied(data, end, ahead)
            left -= ahead
            run = _run_length(data, start, end, left)
            left -= run
            end += run * (end - start)
            ahead = 1 if run >= _RUN_MIN else min(ahead * _AHEAD_GROWTH, _AHEAD_MAX)
        _, end = _check_varied(data, end, left)
    except IndexError:
        end = last + 1
    if end != last:
        where = "its records end inside it" if end < last else "it ends inside a record"
        raise Malformed(f"{where}, which has {last} bytes for {count} records")


def _run_length(data: bytes, start: int, end: int, count: int) -> int:
    """The number of records, `count` at most, that follow the good record from `start` to `end` and have its shape.

    0 also where too few seem to follow.
    """
    size = end - start
    if data[start : end + _RUN_MIN * size : size] != data[start : start + 1] * (_RUN_MIN + 1):
        return 0
    shape = _shape_of(data, start)
    count = min(count, (len(data) - end) // size)
    rows = _ROWS_FIRST
    run = 0
    while shape and run < count:
        rows = min(rows, count - run)
        alike = _rows_alike(data, end + run * size, size, rows, shape)
        run += alike
        if alike < rows:
            break
        rows *= _ROWS_GROWTH  # not all at once: a byte that differs wastes the rows behind it
    return run


def _rows_alike(data: bytes, start: int, size: int, rows: int, shape: _Shape) -> int:
    """How many of `rows` records of `size` bytes from `start` have this shape before one has not."""
    for distance, allowed in shape:
        column = data[start + distance : start + rows * size : size]
        if allowed is _LAST_BYTE:
            fits = column.isascii()
        elif allowed is _FURTHER_BYTE:
            fits = not column.translate(None, _FURTHER_BYTE)
        else:
            fits = column == allowed * rows
        if not fits:
            rows -= len(column.lstrip(allowed))
    return rows


def _shape_of(data: bytes, start: int) -> _Shape:
    """The shape of the good record at `start`; empty if it has many headers.

    Lengths and counts are the same in all records of a shape. Deltas are as long: no check depends on their values.
    """
    at = start
    while data[at] > 0x7F:
        at += 1
    same = list(range(start, at + 1))
    at += 2  # attributes
    shape: _Shape = []
    for _ in range(2):  # deltas of time and offset
        while data[at] > 0x7F:
            shape.append((at - start, _FURTHER_BYTE))
            at += 1
        shape.append((at - start, _LAST_BYTE))
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


def _check_varied(data: bytes, end: int, count: int) -> tuple[int, int]:
    """As `_check_each`, and faster for many records without headers."""
    if count < _COLUMNS_MIN or data[end - 1 : end] != b"\0":  # the header count of the record before
        return _check_each(data, end, count)
    from kafkalite.record.columns.record_starts import find_unknown

    found = find_unknown(data, end, count)
    if found is None:
        return _check_each(data, end, count)
    unknown, start, end = found
    for begin in unknown:
        check_record(data, begin, len(data))
    return start, end


def _check_each(data: bytes, end: int, count: int) -> tuple[int, int]:
    """Check `count` records from `end`; returns where the last of them begins and ends. Raises Malformed, IndexError.

    Common records are checked here: lengths below 8,192, times within 17 minutes of the first, short headers. Others
    are left to `check_record`.
    """
    # inline: 0.5 us a record instead of 2 (python -m bench.validation)
    last = len(data)
    start = end
    for _ in repeat(None, count):
        start = end
        try:
            size = data[start]
            at = start + 1
            if size > 0x7F:
                size += (data[at] << 7) - 0x80
                at += 1
            end = at + (size >> 1)
            at += 1  # attributes
            time = data[at]
            if time > 0x7F:
                at += 1
                time = data[at]
                if time > 0x7F:
                    at += 1
                    time = data[at]
            at += 1
            offset = data[at]
            if offset > 0x7F:
                at += 1
                offset = data[at]
            key = data[at + 1]
            at += 2
            if key > 0x7F:
                key += (data[at] << 7) - 0x80
                at += 1
            if key != 1:
                at += key >> 1
            value = data[at]
            at += 1
            if value > 0x7F:
                value += (data[at] << 7) - 0x80
                at += 1
            if value != 1:
                at += value >> 1
            odd = headers = data[at]
            at += 1
            while headers and not odd & 0x81:
                name = data[at]
                at += 1 + (name >> 1)
                content = data[at]
                at += 1 + (content >> 1)
                odd |= name | content
                headers -= 2
            if (
                at == end
                and not (time | offset | odd) & 0x80
                and not (size | odd) & 1
                and size < 0x4000
                and (key == 1 or (not key & 1 and key < 0x4000))
                and (value == 1 or (not value & 1 and value < 0x4000))
            ):
                continue
        except IndexError:
            pass
        end = check_record(data, start, last)
    return start, end
