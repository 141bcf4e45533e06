"""The leader epochs of a log: one (epoch, start offset) per epoch, both ascending.

The first batch of an epoch adds an entry. The file is written then, but fsynced only when there were entries before:
entries above the recovery point that a crash loses are found again in the batches. The entry of an election, which may
have no batches yet, is fsynced always (`elect`). If it is on the disk already, in a file with many others
(`note_recorded`), this one gets it with the first batch: to replace 10,000 files takes seconds of the event loop, even
without an fsync.
Source: org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache; KIP-101, KIP-279, KIP-320.
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Iterable

from kafkalite.log.storage.checkpoint_file import decode_entries, encode_entries, number_of
from kafkalite.log.storage.files import Files

logger = logging.getLogger(__name__)

UNDEFINED = (-1, -1)
_UNKNOWN = -2


class LeaderEpochCache:
    """The epochs of one partition's log. Invariant: `_epochs` and `_starts` ascend strictly and are equally long.

    `latest` is the newest epoch, -1 without any, `written` the newest one in the file: they differ between an election
    that is recorded elsewhere and the first batch, and after a write that failed (`written` is -2 then, of no batch, so
    that the next batch has the file written again). `was_begun` says that `load` found a file. `mark_dirty` is called
    with the paths to fsync when the file was written without. Methods that change the entries raise OSError.
    """

    __slots__ = ("_epochs", "_files", "_recorded", "_starts", "latest", "mark_dirty", "path", "was_begun", "written")

    def __init__(self, path: str, files: Files) -> None:
        self._files = files
        self.path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._recorded = UNDEFINED
        self.latest = -1
        self.written = -1
        self.was_begun = False
        self.mark_dirty: Callable[..., object] = lambda *paths: None  # a loader lists them itself

    def load(self) -> None:
        """Reads the entries; a corrupt file is logged and counts as empty. Raises OSError."""
        try:
            text = self._files.read(self.path)
            self.was_begun = True
            entries = decode_entries(text, 2)
            pairs = [(number_of(epoch), number_of(start)) for epoch, start in entries]
        except FileNotFoundError:
            return
        except ValueError as error:
            logger.warning("cannot read %s (%s); continuing without it", self.path, error)
            return
        for epoch, start in pairs:
            if epoch >= 0 and start >= 0:
                self._insert(epoch, start)
        self.written = self.latest

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Batches from `start_offset` on are of `epoch`. Entries that contradict it are dropped.

        When the file cannot be written, the entries stay as they were.
        """
        self.assign_all([(epoch, start_offset)], durable=bool(self._epochs))

    def elect(self, epoch: int, start_offset: int) -> None:
        """As `assign`, for an epoch in which nothing is written yet, and on the disk when this returns."""
        if self.is_recorded(epoch, start_offset) and epoch > self.latest:
            self._insert(epoch, start_offset)
        else:
            self.assign_all([(epoch, start_offset)], durable=True)
        self._recorded = UNDEFINED

    def note_recorded(self, epoch: int, start_offset: int) -> None:
        """The election to `epoch` is on the disk already, in a file of many elections: `elect` with the same arguments
        need not wait for it."""
        self._recorded = epoch, start_offset

    def is_recorded(self, epoch: int, start_offset: int) -> bool:
        return self._recorded == (epoch, start_offset)

    def assign_all(self, entries: Iterable[tuple[int, int]], *, durable: bool) -> None:
        """As `assign`, for several (epoch, start offset), with one write of the file."""
        before = self._epochs.copy(), self._starts.copy(), self.latest
        for epoch, start_offset in entries:
            if epoch != self.latest or start_offset < self._starts[-1]:
                self._insert(epoch, start_offset)
        is_changed = self._epochs != before[0] or self._starts != before[1]
        if not is_changed and self.written == self.latest:
            return
        try:
            # the file of an election that is recorded elsewhere waits for the next flush
            self._write(durable=durable and is_changed)
        except OSError:
            self._epochs, self._starts, self.latest = before
            raise

    def epoch_at(self, offset: int) -> int:
        """The epoch of the batch at `offset`, -1 if it is not known."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else -1

    def end_offset_for(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The end of `epoch`: (that epoch or the next lower one known, the first offset behind it).

        `end_offset` is the log's. UNDEFINED for an epoch later than all; for one before the first, (epoch, the start
        offset of the first).
        """
        if epoch < 0 or not self._epochs or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return epoch, end_offset
        at = bisect_right(self._epochs, epoch)
        return (self._epochs[at - 1] if at else epoch), self._starts[at]

    def truncate_from_end(self, end_offset: int, *, keeps_one: bool = False) -> bool:
        """The log ends at `end_offset` now: drops the epochs that begin there or later. Returns whether there were any.

        `keeps_one`: a log without records keeps its last epoch.
        """
        keep = len(self._starts)
        first = 1 if keeps_one and keep and self._starts[0] == end_offset else 0
        while keep > first and self._starts[keep - 1] >= end_offset:
            keep -= 1
        if keep == len(self._starts):
            return False
        del self._epochs[keep:], self._starts[keep:]
        self.latest = self._epochs[-1] if keep else -1
        self._write(durable=False)
        return True

    def truncate_from_start(self, start_offset: int) -> None:
        """The log begins at `start_offset` now, and so does the epoch of that offset."""
        gone = bisect_right(self._starts, start_offset) - 1
        if gone < 0 or (gone == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:gone], self._starts[:gone]
        self._starts[0] = start_offset
        self._write(durable=False)

    def forget_before(self, start_offset: int) -> None:
        """As `truncate_from_start`. A failed write is logged: the next start truncates the epochs again."""
        try:
            self.truncate_from_start(start_offset)
        except OSError as error:
            logger.warning("cannot write %s: %s", self.path, error)

    def put_in_front(self, entries: list[tuple[int, int]]) -> None:
        """Puts `entries` before the others; the last of them may be of the first known epoch."""
        if self._epochs and entries[-1][0] >= self._epochs[0]:
            del self._epochs[0], self._starts[0]
        self._epochs[:0] = [epoch for epoch, _ in entries]
        self._starts[:0] = [start for _, start in entries]
        self.latest = self._epochs[-1]
        self._write(durable=False)

    def clear(self, *, durable: bool = False) -> None:
        self._epochs.clear()
        self._starts.clear()
        self.latest = -1
        self._write(durable=durable)

    def _insert(self, epoch: int, start_offset: int) -> None:
        epochs, starts = self._epochs, self._starts
        dropped = []
        while starts and starts[-1] >= start_offset:
            dropped.append((epochs.pop(), starts.pop()))
        self.latest = epoch
        if epochs and epochs[-1] == epoch:
            return  # it continues: the dropped one was of an election after which nothing was written
        while epochs and epochs[-1] >= epoch:
            dropped.append((epochs.pop(), starts.pop()))
        if dropped and (len(dropped) > 1 or dropped[0][1] != start_offset):
            logger.warning("epoch %d from offset %d on contradicts %s in %s", epoch, start_offset, dropped, self.path)
        epochs.append(epoch)
        starts.append(start_offset)

    def _encode(self) -> bytes:
        return encode_entries(f"{epoch} {start}" for epoch, start in zip(self._epochs, self._starts, strict=True))

    def _write(self, *, durable: bool) -> None:
        self.written = _UNKNOWN
        self._files.write_atomically(self.path, self._encode(), durable=durable)
        self.written = self.latest
        if not durable:
            self.mark_dirty(self.path, os.path.dirname(self.path))
