"""The small files beside the segments of a log: its leader epochs and its topic id, in step with the next flush.

An epoch begins with its first batch, or when its leader is elected, which may write nothing. It goes with its records,
at either end of the log. The topic id is kept in partition.metadata.
Source: kafka.log.UnifiedLog (maybeAssignEpochStartOffset), KIP-101, KIP-279;
org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile, KIP-516.
"""

from __future__ import annotations

import logging
import uuid

from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.log_context import LogLocation
from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.log.storage.checkpoint_file import LaterVersion, encode_topic_id, read_topic_id
from kafkalite.log.storage.file_names import PARTITION_METADATA

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


class PartitionMetadata:
    """Reads and writes the file at `path`. `is_corrupt`: it is there and has no id, so that nothing is lost when it is
    written again."""

    __slots__ = ("_flusher", "_is_read", "_location", "_topic_id", "is_corrupt", "path")

    def __init__(self, location: LogLocation, flusher: Flusher) -> None:
        self.path = f"{location.directory}/{PARTITION_METADATA}"
        self._location = location
        self._flusher = flusher
        self._topic_id: uuid.UUID | None = None
        self._is_read = False
        self.is_corrupt = False

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The topic id, read from the file at the first use; None if the file does not exist, or has none, which is
        logged."""
        if not self._is_read:
            self._is_read = True
            try:
                self._topic_id = read_topic_id(self._location.files, self.path)
            except (ValueError, OSError) as error:
                self.is_corrupt = isinstance(error, ValueError) and not isinstance(error, LaterVersion)
                logger.warning("cannot read %s (%s); the topic's id is what the metadata say", self.path, error)
        return self._topic_id

    def set_topic_id(self, topic_id: uuid.UUID) -> None:
        """Writes the file; the next flush fsyncs it. Raises StorageError."""
        try:
            self._location.files.write_atomically(self.path, encode_topic_id(topic_id), durable=False)
        except OSError as error:
            raise self._location.refusal(f"cannot write {self.path}", error) from error
        self._topic_id, self._is_read, self.is_corrupt = topic_id, True, False
        self._flusher.mark_dirty(self.path)
