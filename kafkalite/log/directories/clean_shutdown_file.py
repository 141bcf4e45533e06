"""The two files that record how the last run on a log directory ended.

    .kafka_cleanshutdown       there after a clean shutdown; removed before any log is loaded
    .kafkalite_cleanshutdown   there if that shutdown was ours, so that a start notices whether Apache Kafka ran here
                               since; also while logs that another broker left are being taken over

Source: kafka.log.LogManager, org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from kafkalite.log.storage.file_names import CLEAN_SHUTDOWN, OWN_CLEAN_SHUTDOWN
from kafkalite.log.storage.files import Files

# Kafka reads the two fields that it knows; the third tells the next start which broker stopped here last.
_CONTENT = b'{"version":0,"brokerEpoch":-1,"by":"kafkalite"}'


class LastShutdown(NamedTuple):
    """`by_another`: the last broker on the directory was not ours, although the one before it was."""

    clean: bool
    by_another: bool


class CleanShutdownFile:
    """The files in one log directory. Methods raise OSError."""

    def __init__(self, log_dir: str, files: Files) -> None:
        self._log_dir = log_dir
        self._files = files
        self._path = f"{log_dir}/{CLEAN_SHUTDOWN}"
        self._own_path = f"{log_dir}/{OWN_CLEAN_SHUTDOWN}"

    def read(self, is_new: Callable[[], bool]) -> LastShutdown:
        """`is_new`: whether no broker has used the directory yet, which is as good as a clean shutdown."""
        has_own = os.path.exists(self._own_path)
        try:
            content = self._files.read(self._path)
        except FileNotFoundError:
            return LastShutdown(clean=is_new(), by_another=has_own)
        return LastShutdown(clean=True, by_another=content != _CONTENT)

    def remove(self, *, takes_over: bool, durable: bool) -> None:
        """Marks the directory as in use: from now on a stop counts as unclean until `write`.

        Removed before any log changes and, where `durable`, on the disk by then: a file that a power cut brought back
        would spare torn records their check. `takes_over`: should this run be killed, the next start takes over, too,
        unless `end_takeover` was called.
        """
        if takes_over:
            self._files.write_atomically(self._own_path, b"")
        else:
            self._files.unlink_if_exists(self._own_path)
        self._files.unlink_if_exists(self._path)
        if durable:
            self._files.sync(self._log_dir)

    def end_takeover(self) -> None:
        self._files.unlink_if_exists(self._own_path)
        self._files.sync(self._log_dir)

    def write(self) -> None:
        self._files.write_atomically(self._path, _CONTENT)
        self._files.write_atomically(self._own_path, b"", durable=False)
