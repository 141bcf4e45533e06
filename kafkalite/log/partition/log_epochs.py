"""Changes of a log's leader epochs, which keep the file and the next flush in step with it.

An epoch begins with its first batch, or when its leader is elected, which may write nothing. It goes with its records,
at either end of the log.
Source: kafka.log.UnifiedLog (maybeAssignEpochStartOffset), KIP-101, KIP-279.
"""

from __future__ import annotations

import logging

from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.log_location import LogLocation
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache

logger = logging.getLogger(__name__)


class LogEpochs:
    __slots__ = ("_epochs", "_flusher", "_location")

    def __init__(self, location: LogLocation, epochs: LeaderEpochCache, flusher: Flusher) -> None:
        self._location = location
        self._epochs = epochs
        self._flusher = flusher

    def begin(self, leader_epoch: int, start_offset: int) -> None:
        """The batch at `start_offset` is the first of its epoch. Raises OSError."""
        self._epochs.assign(leader_epoch, start_offset)
        self._mark_dirty()

    def elect(self, leader_epoch: int, end_offset: int) -> None:
        """Notes an election before anything is written. It is on the disk when this returns. Raises StorageError."""
        try:
            self._flusher.refuse_if_failed()
            self._epochs.elect(leader_epoch, end_offset)
        except OSError as error:
            raise self._location.refusal(f"cannot begin an epoch of {self._location.name}", error) from error

    def drop_from(self, end_offset: int) -> None:
        """Drops the epochs that begin at the end of the log: their leader was elected here, and wrote nothing. Raises
        StorageError."""
        try:
            if self._epochs.truncate_from_end(end_offset):
                self._mark_dirty()
        except OSError as error:
            raise self._location.refusal(f"cannot write {self._epochs.path}", error) from error

    def drop_before(self, start_offset: int) -> None:
        """The log begins at `start_offset` now."""
        try:
            self._epochs.truncate_from_start(start_offset)
            self._mark_dirty()
        except OSError as error:  # the next start truncates the epochs again
            logger.warning("cannot write %s: %s", self._epochs.path, error)

    def _mark_dirty(self) -> None:
        self._flusher.mark_dirty(self._epochs.path, self._location.directory)
