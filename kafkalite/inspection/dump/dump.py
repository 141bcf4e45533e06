"""`kafkalite log dump`: the files it is given, in the words of kafka-dump-log or as JSON, one object a line.

A large log is cut into stretches of whole batches, which as many processes as there are processors turn into text; the
texts are printed in the order of the file.
Source: kafka.tools.DumpLogSegments.
"""

from __future__ import annotations

import io
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.pool import AsyncResult

from kafkalite.common.errors import ConfigError, Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.settings import INT_MAX
from kafkalite.inspection.dump import index_dump
from kafkalite.inspection.dump.log_text import LogPrinter
from kafkalite.inspection.files.log_file import LogFile, Window
from kafkalite.inspection.files.printer import GAPS, Complaint, DumpOptions, Printer, Progress
from kafkalite.log.storage.file_names import DELETE_DIRECTORY, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX

_CHECKPOINT = ".checkpoint"  # of KRaft: batches, as in a log
_BATCHES = (LOG, _CHECKPOINT)
_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, _CHECKPOINT)


def dump(paths: Sequence[str], options: DumpOptions, printer: Printer) -> int:
    """Prints the files, and those in the directories. Returns the exit code: 1 when there are faults.

    Raises ConfigError for a path that is not there.
    """
    files = list(_files(paths))
    progress = Progress(sum(_size_bytes(path) for path in files if path.endswith(_BATCHES)))
    failed = False
    try:
        for path in files:
            printer.show("file", f"Dumping {path}", path=path)
            try:
                _dump_file(path, options, printer, progress)
            except (OSError, ValueError) as error:
                failed = True
                printer.complain(f"{path}: {error}")
    finally:
        progress.clear()
    printer.finish()
    return 1 if failed or printer.faults else 0


def _dump_file(path: str, options: DumpOptions, printer: Printer, progress: Progress) -> None:
    name = os.path.basename(path)
    suffix = name[name.rfind(".") :] if "." in name else ""
    if suffix in _BATCHES:
        dump_log(path, options, printer, progress.advance)
    elif suffix == OFFSET_INDEX:
        index_dump.dump_offset_index(path, options, printer)
    elif suffix == TIME_INDEX:
        index_dump.dump_time_index(path, options, printer)
    elif suffix == TXN_INDEX:
        index_dump.dump_txn_index(path, printer)
    elif suffix == SNAPSHOT:
        index_dump.dump_snapshot(path, printer)
    else:
        printer.complain(f"Ignoring unknown file {path}")


def _size_bytes(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # a link that leads nowhere, reported when its turn comes
        return 0


def _files(paths: Iterable[str]) -> Iterable[str]:
    """The named files as they are; of a directory all files that can be dumped, in the order of their names."""
    for path in paths:
        if os.path.isdir(path):
            for directory, below, names in os.walk(path):
                below[:] = sorted(name for name in below if not name.endswith(DELETE_DIRECTORY))
                yield from (os.path.join(directory, name) for name in sorted(names) if name.endswith(_SUFFIXES))
        elif os.path.lexists(path):
            yield path
        else:
            raise ConfigError(f"there is no file or directory {path}")


_PARALLEL_BYTES = 64 << 20  # below it a second process is not worth its start
_STRETCH_BYTES = 8 << 20
_UNKNOWN = -2  # the offset in front of a stretch that another process prints


class _StretchText(NamedTuple):
    """A stretch as another process printed it."""

    text: bytes
    complaints: list[Complaint]
    last_offset: int
    gaps: list[tuple[int, int]]


def dump_log(path: str, options: DumpOptions, printer: Printer, advance: Callable[[int], None]) -> None:
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
    path: str, windows: Iterator[Window], options: DumpOptions, printer: Printer, log_printer: LogPrinter
) -> None:
    printer.flush()
    count = os.cpu_count() or 1

    def print_stretch_of(result: AsyncResult[_StretchText]) -> None:
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
                print_stretch_of(waiting.popleft())
        while waiting:
            print_stretch_of(waiting.popleft())


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

_task: tuple[str, DumpOptions, bool]


def _begin(path: str, options: DumpOptions, as_json: bool) -> None:
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
