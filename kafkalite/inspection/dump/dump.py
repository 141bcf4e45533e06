"""`kafkalite log dump`: the files it is given, in the words of kafka-dump-log or as JSON, one object a line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kafkalite.common.errors import ConfigError
from kafkalite.inspection.dump.index_dump import (
    IndexDumpOptions,
    dump_offset_index,
    dump_snapshot,
    dump_time_index,
    dump_txn_index,
)
from kafkalite.inspection.dump.log_dump import dump_log
from kafkalite.inspection.dump.log_text import LogDumpOptions
from kafkalite.inspection.files.printer import Printer
from kafkalite.inspection.files.progress import Progress
from kafkalite.log.storage.file_names import DELETE_DIRECTORY, LOG, OFFSET_INDEX, SNAPSHOT, TIME_INDEX, TXN_INDEX

_CHECKPOINT = ".checkpoint"  # of KRaft: batches, as in a log
_BATCHES = (LOG, _CHECKPOINT)
_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT, _CHECKPOINT)


class DumpOptions(NamedTuple):
    """How logs and indexes are shown."""

    logs: LogDumpOptions = LogDumpOptions()
    indexes: IndexDumpOptions = IndexDumpOptions()


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
        dump_log(path, options.logs, printer, progress.advance)
    elif suffix == OFFSET_INDEX:
        dump_offset_index(path, options.indexes, printer)
    elif suffix == TIME_INDEX:
        dump_time_index(path, options.indexes, printer)
    elif suffix == TXN_INDEX:
        dump_txn_index(path, printer)
    elif suffix == SNAPSHOT:
        dump_snapshot(path, printer)
    else:
        printer.complain(f"Ignoring unknown file {path}")


def _size_bytes(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:  # a link that leads nowhere, reported when its turn comes
        return 0


def _files(paths: Iterable[str]) -> Iterable[str]:
    """The named files as they are; of a directory all files that can be shown, in the order of their names."""
    for path in paths:
        if os.path.isdir(path):
            for directory, below, names in os.walk(path):
                below[:] = sorted(name for name in below if not name.endswith(DELETE_DIRECTORY))
                yield from (os.path.join(directory, name) for name in sorted(names) if name.endswith(_SUFFIXES))
        elif os.path.lexists(path):
            yield path
        else:
            raise ConfigError(f"there is no file or directory {path}")
