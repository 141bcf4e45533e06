"""Check of the sparse indexes of a segment against its batches: may a reader start at the position of an entry?

An entry (offset, position) of the offset index must point at the begin of a batch with nothing at or past the offset in
front of it. An entry (timestamp, offset) of the time index must be right that nothing up to the offset is later, and
that the batch which holds the offset is that late. Both ascend; zeros behind the entries are room not used yet.
Source: org.apache.kafka.storage.internals.log.{OffsetIndex, TimeIndex, LogSegment}; KIP-33.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalite.inspection.files.directory_listing import read_written
from kafkalite.inspection.files.findings import Fault
from kafkalite.inspection.verify.segment_scan import SegmentScan
from kafkalite.log.storage.file_names import LOG, OFFSET_INDEX, TIME_INDEX
from kafkalite.record.columns.batch_columns import Array, Flags

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
ENTRIES_MAX = 5  # named in one fault
_UNINDEXED_BYTES = 256 << 10  # entries are missing where that much log has none
_MOST = 0.75  # of an interval: at most 0.3 % of short random sessions are called wrong, of 4,000 of each kind
_GAP_FACTOR = 8  # a stretch that is so many times longer than any other one is missing entries


class Index(NamedTuple):
    """`entries` without the zeros at the end; `padding_bytes` is how many of these there are."""

    path: str
    entries: npt.NDArray[np.void]
    padding_bytes: int


def check_indexes(scan: SegmentScan, *, is_last: bool, names: dict[str, int]) -> list[Fault]:
    """The faults of the indexes of a segment that was scanned. `names` are the files of its directory.

    Raises OSError.
    """
    stem = scan.segment.path[: -len(LOG)]
    faults: list[Fault] = []
    found: list[Index | None] = []
    for suffix, entry in ((OFFSET_INDEX, OFFSET_ENTRY), (TIME_INDEX, TIME_ENTRY)):
        path = stem + suffix
        if path.rpartition("/")[2] not in names:
            faults.append(Fault(path, "", "the index is missing"))
            found.append(None)
        else:
            found.append(_read(path, entry, faults))
    offsets, times = found
    columns = scan.columns()
    if offsets is not None:
        faults += _check_offsets(scan, offsets, columns[0], columns[1])
    if times is not None:
        faults += _check_times(scan, times, columns[1], columns[2], is_last)
    if offsets is not None and times is not None and not faults:
        faults += _check_ends(scan, offsets, times, columns[0], columns[1])
    return faults


def _read(path: str, entry: np.dtype[np.void], faults: list[Fault]) -> Index:
    written, size = read_written(path)
    width = entry.itemsize
    if size % width:
        faults.append(Fault(path, "", f"its size of {size} bytes is no multiple of {width}"))
    # a last entry that is half a hole is whole in the file
    data = np.frombuffer(written + bytes(min(size - len(written), width - 1)), np.uint8)
    entries = data[: len(data) // width * width].view(entry)
    used = np.flatnonzero(entries.view(np.uint8).reshape(-1, width).any(axis=1))
    count = int(used[-1]) + 1 if len(used) else 0
    return Index(path, entries[:count], size - count * width)


def _faults(index: Index, wrong: Flags, what: str) -> list[Fault]:
    """One fault for all entries that are wrong in the same way: the index is made again as a whole, or not at all."""
    rows = np.flatnonzero(wrong).tolist()
    if not rows:
        return []
    numbers = ", ".join(map(str, rows[:ENTRIES_MAX]))
    more = f" and {len(rows) - ENTRIES_MAX} more" if len(rows) > ENTRIES_MAX else ""
    return [Fault(index.path, f"{'entry' if len(rows) == 1 else 'entries'} {numbers}{more}", what)]


def _check_offsets(scan: SegmentScan, index: Index, positions: Array, lasts: Array) -> list[Fault]:
    offset = index.entries["offset"].astype(np.int64) + scan.segment.base_offset
    position = index.entries["position"].astype(np.int64)
    if not len(offset):
        return _check_length(scan, index, position, positions)
    if not len(positions):
        return _faults(index, np.ones(len(offset), bool), "it points into a log without batches")
    disorder = np.zeros(len(offset), bool)
    disorder[1:] = (offset[1:] <= offset[:-1]) | (position[1:] <= position[:-1])
    row = np.searchsorted(positions, position).clip(max=len(positions) - 1)
    behind = position >= scan.size_bytes
    astray = (positions[row] != position) & ~behind
    # batches in front of the position end before the offset; the offset is not past the end of the log
    reached = np.maximum.accumulate(lasts)
    before = np.where(row > 0, reached[np.maximum(row - 1, 0)], -1)
    wrong_offset = ~behind & ~astray & ((before >= offset) | (offset > reached[-1]))
    return [
        *_faults(index, behind, f"it points behind the end of the log, which has {scan.size_bytes} bytes"),
        *_faults(index, astray, "it points at a place where no batch begins"),
        *_faults(index, wrong_offset, "its offset does not lie where it points"),
        *_faults(index, disorder & ~behind & ~astray & ~wrong_offset, "it does not ascend"),
        *_check_length(scan, index, position, positions),
    ]


def _check_length(scan: SegmentScan, index: Index, position: Array, positions: Array) -> list[Fault]:
    """A stretch of log without entries that is much longer than any other: reads there hop over every batch."""
    if not len(positions):
        return []
    ends = np.concatenate([[0], position, [positions[-1]]])
    gaps = np.diff(ends)
    if len(position) < 2:
        bare = len(position) == 0 and int(positions[-1]) > _UNINDEXED_BYTES
    else:
        bare = int(gaps[-1]) > max(_UNINDEXED_BYTES, _GAP_FACTOR * int(gaps[:-1].max()))
    if not bare:
        return []
    return [Fault(index.path, "", f"it has no entries for the last {int(gaps[-1])} bytes of its log")]


def _check_times(scan: SegmentScan, index: Index, lasts: Array, latest: Array, is_last: bool) -> list[Fault]:
    timestamp = index.entries["timestamp"].astype(np.int64)
    offset = index.entries["offset"].astype(np.int64) + scan.segment.base_offset
    known = np.maximum.accumulate(latest) if len(latest) else latest
    faults: list[Fault] = []
    if len(timestamp):
        if not len(lasts):
            return _faults(index, np.ones(len(timestamp), bool), "it speaks of a log without batches")
        disorder = np.zeros(len(timestamp), bool)
        disorder[1:] = (timestamp[1:] <= timestamp[:-1]) | (offset[1:] < offset[:-1])
        reached = np.maximum.accumulate(lasts)
        row = np.searchsorted(reached, offset).clip(max=len(lasts) - 1)
        outside = (offset > reached[-1]) | (offset < scan.segment.base_offset)
        # of a batch that goes on behind the offset only the records up to it count: they cannot be later than it is
        up_to = np.where(reached[row] == offset, known[row], np.where(row > 0, known[np.maximum(row - 1, 0)], -1))
        too_early = ~outside & (up_to > timestamp)
        too_late = ~outside & (latest[row] < timestamp)
        faults += [
            *_faults(index, outside, "its offset is not in the log"),
            *_faults(index, too_early, "there are later records up to its offset"),
            *_faults(index, too_late, "no record at its offset is that late"),
            *_faults(index, disorder & ~outside & ~too_early & ~too_late, "it does not ascend"),
        ]
    if not is_last and len(known) and not faults:
        last = int(timestamp[-1]) if len(timestamp) else 0  # an entry of time 0 at the first offset looks like padding
        if int(known[-1]) > last:
            faults.append(
                Fault(index.path, "", f"it does not know the latest record of its segment, of {int(known[-1])}")
            )
    return faults


def _check_ends(scan: SegmentScan, offsets: Index, times: Index, positions: Array, lasts: Array) -> list[Fault]:
    """Finds last entries of the offset index that are gone, by the entries of the time index written with them.

    An append adds to both indexes, a close to the time index alone, and a reopen counts the index interval from 0. So
    any number of closes leaves time entries without offset entries, which lie less than an interval apart; the interval
    is less than the shortest distance of two offset entries. A close right behind an indexed batch adds that batch to
    the first distance, so most of the interval must lie behind it.
    """
    if not len(offsets.entries) or not len(positions):
        return []
    indexed = int(offsets.entries["offset"][-1])
    beyond = times.entries["offset"][times.entries["offset"] > indexed]
    if len(beyond) < 2:  # the last one may come from a roll
        return []
    reached = np.maximum.accumulate(lasts) - scan.segment.base_offset
    behind, first = np.searchsorted(reached, [indexed + 1, int(beyond[0])]).clip(max=len(positions) - 1)
    entries = offsets.entries["position"].astype(np.int64)
    interval = np.diff(entries, prepend=0).min()
    if positions[first] - entries[-1] < interval or positions[first] - positions[behind] < interval * _MOST:
        return []
    return [Fault(offsets.path, "", "it ends before the time index does: its last entries are gone")]
