"""What a `.log` file holds, batch by batch and record by record, in the words of kafka-dump-log.

A large log is cut into stretches of whole batches, and put into words by as many processes as there are processors;
what they say is told in the order of the file.
Source: kafka.tools.DumpLogSegments.dumpLog.
"""

from __future__ import annotations

import io
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing.pool import AsyncResult
from typing import NamedTuple

from kafkalite.common.errors import Malformed
from kafkalite.inspection.dump.log_text import NO_LIMIT, LogDump, show_windows
from kafkalite.inspection.files.log_file import LogFile, Window
from kafkalite.inspection.files.printer import GAPS, Complaint, Printer

_PARALLEL_BYTES = 64 << 20  # below it a second process is not worth its start
_STRETCH_BYTES = 8 << 20
_UNKNOWN = -2  # the offset in front of a stretch that another process shows

Gaps = list[tuple[int, int]]


class _Shown(NamedTuple):
    """What another process made of a stretch."""

    text: bytes
    complaints: list[Complaint]
    last_offset: int
    gaps: Gaps


def dump_log(path: str, how: LogDump, printer: Printer, advance: Callable[[int], None]) -> None:
    """Raises OSError when the file cannot be read."""
    name = os.path.basename(path)
    if name.endswith(".log"):
        offset = int(name.split(".")[0])
        printer.object("log", offset=offset) if printer.as_json else printer.line(f"Log starting offset: {offset}")
    else:
        _say_which_snapshot(name, printer)
    gaps: Gaps = []
    valid_bytes = 0
    with LogFile(path) as log:
        end = min(log.size_bytes, how.max_bytes)

        def windows() -> Iterator[Window]:
            nonlocal valid_bytes
            try:
                for window in log.windows(0, end):
                    yield window
                    valid_bytes = window.start + window.bounds[-1]
                    advance(window.bounds[-1])
            except Malformed as error:
                printer.complain(f"{error} in file {path}.")

        if end >= _PARALLEL_BYTES and (os.cpu_count() or 1) > 1 and "fork" in multiprocessing.get_all_start_methods():
            _show_in_parallel(path, windows(), how, printer, gaps)
        else:
            show_windows(windows(), how, printer, -1, gaps)
        trailing_bytes = end - valid_bytes
        advance(trailing_bytes)
        if trailing_bytes and how.max_bytes == NO_LIMIT:
            if printer.as_json:
                printer.object("trailing", position=valid_bytes, bytes=trailing_bytes)
            else:
                printer.line(f"Found {trailing_bytes} invalid bytes at the end of {name}")
    if gaps:
        gaps.reverse()
        printer.complain(
            f"Non-consecutive offsets in {os.path.abspath(path)}",
            *[f"  {a} is followed by {b}" for a, b in gaps],
            rank=GAPS,
        )


def _show_in_parallel(path: str, windows: Iterator[Window], how: LogDump, printer: Printer, gaps: Gaps) -> None:
    printer.flush()
    count = os.cpu_count() or 1
    last_offset = -1

    def take(result: AsyncResult[_Shown]) -> None:
        nonlocal last_offset
        shown = result.get()
        printer.add(shown.text, shown.complaints)
        for before, offset in shown.gaps:
            if before != _UNKNOWN:
                gaps.append((before, offset))
            elif last_offset not in (-1, offset - 1):
                gaps.append((last_offset, offset))
        if shown.last_offset != _UNKNOWN:
            last_offset = shown.last_offset

    # forked, so that a decoder need not be put into bytes; no thread was started yet
    with multiprocessing.get_context("fork").Pool(count, _begin, (path, how, printer.as_json)) as pool:
        waiting: deque[AsyncResult[_Shown]] = deque()
        for start, end in _stretches(windows):
            waiting.append(pool.apply_async(_show_stretch, (start, end)))
            if len(waiting) > 2 * count:
                take(waiting.popleft())
        while waiting:
            take(waiting.popleft())


def _stretches(windows: Iterator[Window]) -> Iterator[tuple[int, int]]:
    """Parts of a file that begin and end with a batch."""
    start = end = 0
    for window in windows:
        end = window.start + window.bounds[-1]
        if end - start >= _STRETCH_BYTES:
            yield start, end
            start = end
    if end > start:
        yield start, end


# in the other processes

_task: tuple[str, LogDump, bool]


def _begin(path: str, how: LogDump, as_json: bool) -> None:
    global _task
    _task = path, how, as_json


def _show_stretch(start: int, end: int) -> _Shown:
    path, how, as_json = _task
    out = io.BytesIO()
    printer = Printer(out, as_json=as_json)
    gaps: Gaps = []
    with LogFile(path) as log:
        last_offset = show_windows(log.windows(start, end), how, printer, _UNKNOWN, gaps)
    printer.flush()
    return _Shown(out.getvalue(), printer.told, last_offset, gaps)


def _say_which_snapshot(name: str, printer: Printer) -> None:
    """KRaft's `<end offset>-<epoch>.checkpoint`, which holds batches as a log does."""
    stem = name.split(".")[0]
    offset, _, epoch = stem.partition("-")
    if not epoch.isdigit() or not offset.isdigit():
        printer.object("bootstrap") if printer.as_json else printer.line("KRaft bootstrap snapshot")
    elif printer.as_json:
        printer.object("snapshot", end_offset=int(offset), epoch=int(epoch))
    else:
        printer.line(f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}")
