"""Check of the sparse indexes of a segment against its batches: a reader must be able to start at every entry.

An entry (offset, position) of the offset index must point at the begin of a batch, and all batches before it must end
before the offset. For an entry (timestamp, offset) of the time index no record up to the offset may be later, and the
batch that holds the offset must have a record at least that late. Both ascend; zeros after the entries are unused room.
Source: org.apache.kafka.storage.internals.log.{OffsetIndex, TimeIndex, LogSegment}; KIP-33.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.inspection.files.directory_listing import read_written
from kafkalite.inspection.files.findings import Fault
from kafkalite.inspection.verify.segment_scan import Segment, SegmentScan
from kafkalite.log.storage.file_names import LOG, OFFSET_INDEX, TIME_INDEX
from kafkalite.record.columns.batch_columns import Array, Flags

OFFSET_ENTRY = np.dtype([("offset", ">i4"), ("position", ">i4")])
TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">i4")])
_ENTRIES_MAX = 5  # entries that one fault names
_UNINDEXED_BYTES = 256 << 10  # a longer stretch of log without entries lacks some
_MOST = 0.75  # of an interval: a false fault in at most 0.3 % of short random sessions, 4,000 of each kind
_GAP_FACTOR = 8  # a stretch so many times longer than any other one lacks entries


class Index(NamedTuple):
    """`entries` without the zeros at the end."""

    path: str
    entries: npt.NDArray[np.void]

    def column(self, name: str) -> Array:
        values: Array = self.entries[name].astype(np.int64)
        return values


class Batches(NamedTuple):
    """The batches of a segment. `reached` is the greatest offset up to the end of a batch, `known` the latest time."""

    segment: Segment
    size_bytes: int
    position: Array
    reached: Array
    latest: Array
    known: Array


def check_indexes(scan: SegmentScan, *, is_last: bool, names: dict[str, int]) -> list[Fault]:
    """The faults of the indexes of a segment that was scanned. `names` are the files of its directory.

    Raises OSError.
    """
    position, last_offset, latest = scan.columns()
    reached, known = np.maximum.accumulate(last_offset), np.maximum.accumulate(latest)
    batches = Batches(scan.segment, scan.size_bytes, position, reached, latest, known)
    faults: list[Fault] = []
    offsets = _read(batches, OFFSET_INDEX, OFFSET_ENTRY, names, faults)
    times = _read(batches, TIME_INDEX, TIME_ENTRY, names, faults)
    if offsets is not None:
        faults += _check_offsets(batches, offsets)
    if times is not None:
        faults += _check_times(batches, times, is_last)
    if offsets is not None and times is not None and not faults:
        faults += _check_ends(batches, offsets, times)
    return faults


def _read(
    batches: Batches, suffix: str, entry: np.dtype[np.void], names: dict[str, int], faults: list[Fault]
) -> Index | None:
    path = batches.segment.path.removesuffix(LOG) + suffix
    if os.path.basename(path) not in names:
        faults.append(Fault(path, "", "the index is missing"))
        return None
    written, size = read_written(path)
    width = entry.itemsize
    if size % width:
        faults.append(Fault(path, "", f"its size of {size} bytes is no multiple of {width}"))
    # a last entry that is half a hole is whole in the file
    data = np.frombuffer(written + bytes(min(size - len(written), width - 1)), np.uint8)
    entries = data[: len(data) // width * width].view(entry)
    used = np.flatnonzero(entries.view(np.uint8).reshape(-1, width).any(axis=1))
    return Index(path, entries[: int(used[-1]) + 1 if len(used) else 0])


def _faults(index: Index, wrong: Flags, what: str) -> list[Fault]:
    """One fault for all entries with the same error, because an index is rebuilt as a whole or not at all."""
    rows = np.flatnonzero(wrong).tolist()
    if not rows:
        return []
    numbers = ", ".join(map(str, rows[:_ENTRIES_MAX]))
    more = f" and {len(rows) - _ENTRIES_MAX} more" if len(rows) > _ENTRIES_MAX else ""
    return [Fault(index.path, f"{'entry' if len(rows) == 1 else 'entries'} {numbers}{more}", what)]


def _check_offsets(batches: Batches, index: Index) -> list[Fault]:
    offset = index.column("offset") + batches.segment.base_offset
    position = index.column("position")
    if not len(batches.position):
        return _faults(index, np.ones(len(offset), bool), "it points into a log without batches")
    disorder = np.zeros(len(offset), bool)
    disorder[1:] = (offset[1:] <= offset[:-1]) | (position[1:] <= position[:-1])
    row = np.searchsorted(batches.position, position).clip(max=len(batches.position) - 1)
    behind = position >= batches.size_bytes
    astray = (batches.position[row] != position) & ~behind
    # batches in front of the position end before the offset; the offset is not past the end of the log
    before = np.where(row > 0, batches.reached[np.maximum(row - 1, 0)], -1)
    wrong_offset = ~behind & ~astray & ((before >= offset) | (offset > batches.reached[-1]))
    return [
        *_faults(index, behind, f"it points behind the end of the log, which has {batches.size_bytes} bytes"),
        *_faults(index, astray, "it points at a place where no batch begins"),
        *_faults(index, wrong_offset, "its offset does not lie where it points"),
        *_faults(index, disorder & ~behind & ~astray & ~wrong_offset, "it does not ascend"),
        *_check_length(batches, index),
    ]


def _check_length(batches: Batches, index: Index) -> list[Fault]:
    """Finds a last stretch without entries that is much longer than any other: a read there visits every batch."""
    position = index.column("position")
    gaps = np.diff(np.concatenate([[0], position, [batches.position[-1]]])).tolist()
    if len(position) == 1:
        return []
    longest = max(gaps[:-1], default=0)
    if gaps[-1] <= max(_UNINDEXED_BYTES, _GAP_FACTOR * longest):
        return []
    return [Fault(index.path, "", f"it has no entries for the last {gaps[-1]} bytes of its log")]


def _check_times(batches: Batches, index: Index, is_last: bool) -> list[Fault]:
    timestamp = index.column("timestamp")
    offset = index.column("offset") + batches.segment.base_offset
    reached, latest, known = batches.reached, batches.latest, batches.known
    faults: list[Fault] = []
    if len(timestamp):
        if not len(reached):
            return _faults(index, np.ones(len(timestamp), bool), "it speaks of a log without batches")
        disorder = np.zeros(len(timestamp), bool)
        disorder[1:] = (timestamp[1:] <= timestamp[:-1]) | (offset[1:] < offset[:-1])
        row = np.searchsorted(reached, offset).clip(max=len(reached) - 1)
        outside = (offset > reached[-1]) | (offset < batches.segment.base_offset)
        # of a batch that extends past the offset only the records up to it count: none is later than the entry
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
        last = int(timestamp[-1]) if len(timestamp) else 0  # an entry of time 0 at the first offset equals padding
        if known[-1] > last:
            faults.append(Fault(index.path, "", f"it does not know the latest record of its segment, of {known[-1]}"))
    return faults


def _check_ends(batches: Batches, offsets: Index, times: Index) -> list[Fault]:
    """Finds that the last entries of the offset index are lost, by the entries of the time index written with them.

    An append adds to both indexes, a close to the time index alone, and a reopen counts the index interval from 0. So
    any number of closes leaves time entries without offset entries, which lie less than an interval apart; the interval
    is less than the shortest distance of two offset entries. A close right behind an indexed batch adds that batch to
    the first distance, so most of the interval must lie behind it.
    """
    offset, position = offsets.column("offset"), offsets.column("position")
    if not len(offset) or not len(batches.position):
        return []
    beyond = times.column("offset")
    beyond = beyond[beyond > offset[-1]]
    if len(beyond) < 2:  # the last one may come from a roll
        return []
    reached = batches.reached - batches.segment.base_offset
    rows = np.searchsorted(reached, [offset[-1] + 1, beyond[0]]).clip(max=len(reached) - 1)
    behind, first = batches.position[rows].tolist()
    interval = np.diff(position, prepend=0).min()
    if first - position[-1] < interval or first - behind < interval * _MOST:
        return []
    return [Fault(offsets.path, "", "it ends before the time index does: its last entries are gone")]
