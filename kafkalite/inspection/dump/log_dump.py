"""Dump of a `.log` file, batch by batch and record by record, in the words of kafka-dump-log.

A large log is cut into stretches of whole batches, which as many processes as there are processors turn into text; the
texts are printed in the order of the file.
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
from kafkalite.config.settings import INT_MAX
from kafkalite.inspection.dump.log_text import LogDumpOptions, LogPrinter
from kafkalite.inspection.files.log_file import LogFile, Window
from kafkalite.inspection.files.printer import GAPS, Complaint, Printer

_PARALLEL_BYTES = 64 << 20  # below it a second process is not worth its start
_STRETCH_BYTES = 8 << 20
_UNKNOWN = -2  # the offset in front of a stretch that another process prints


class _StretchText(NamedTuple):
    """A stretch as another process printed it."""

    text: bytes
    complaints: list[Complaint]
    last_offset: int
    gaps: list[tuple[int, int]]


def dump_log(path: str, options: LogDumpOptions, printer: Printer, advance: Callable[[int], None]) -> None:
    """Raises OSError when the file cannot be read."""
    name = os.path.basename(path)
    if name.endswith(".log"):
        offset = int(name.split(".")[0])
        printer.show("log", f"Log starting offset: {offset}", offset=offset)
    else:
        _print_snapshot_name(name, printer)
    log_printer = LogPrinter(options, printer)
    valid_bytes = 0
    with LogFile(path) as log:
        end = min(log.size_bytes, options.max_bytes)

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
            _print_in_parallel(path, windows(), options, printer, log_printer)
        else:
            log_printer.print_windows(windows())
        trailing_bytes = end - valid_bytes
        advance(trailing_bytes)
        if trailing_bytes and options.max_bytes == INT_MAX:
            text = f"Found {trailing_bytes} invalid bytes at the end of {name}"
            printer.show("trailing", text, position=valid_bytes, bytes=trailing_bytes)
    gaps = [f"  {a} is followed by {b}" for a, b in reversed(log_printer.gaps)]
    # compaction leaves gaps, and a replica has those of its leader
    printer.complain_of(f"Non-consecutive offsets in {os.path.abspath(path)}", gaps, GAPS, is_fault=False)


def _print_in_parallel(
    path: str, windows: Iterator[Window], options: LogDumpOptions, printer: Printer, log_printer: LogPrinter
) -> None:
    printer.flush()
    count = os.cpu_count() or 1

    def take(result: AsyncResult[_StretchText]) -> None:
        stretch = result.get()
        printer.add(stretch.text, stretch.complaints)
        for before, offset in stretch.gaps:
            if before == _UNKNOWN:
                log_printer.follow(offset, offset)
            else:
                log_printer.gaps.append((before, offset))
        if stretch.last_offset != _UNKNOWN:
            log_printer.last_offset = stretch.last_offset

    # forked, so that a decoder need not be pickled; no thread was started yet
    with multiprocessing.get_context("fork").Pool(count, _begin, (path, options, printer.as_json)) as pool:
        waiting: deque[AsyncResult[_StretchText]] = deque()
        for start, end in _stretches(windows):
            waiting.append(pool.apply_async(_print_stretch, (start, end)))
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

_task: tuple[str, LogDumpOptions, bool]


def _begin(path: str, options: LogDumpOptions, as_json: bool) -> None:
    global _task
    _task = path, options, as_json


def _print_stretch(start: int, end: int) -> _StretchText:
    path, options, as_json = _task
    out = io.BytesIO()
    printer = Printer(out, as_json=as_json)
    log_printer = LogPrinter(options, printer, _UNKNOWN)
    with LogFile(path) as log:
        log_printer.print_windows(log.windows(start, end))
    printer.flush()
    return _StretchText(out.getvalue(), printer.at_end, log_printer.last_offset, log_printer.gaps)


def _print_snapshot_name(name: str, printer: Printer) -> None:
    """KRaft's `<end offset>-<epoch>.checkpoint`, which holds batches as a log does."""
    offset, _, epoch = name.split(".")[0].partition("-")
    if not epoch.isdigit() or not offset.isdigit():
        printer.show("bootstrap", "KRaft bootstrap snapshot")
        return
    numbers = {"end_offset": int(offset), "epoch": int(epoch)}
    printer.show("snapshot", f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}", **numbers)
