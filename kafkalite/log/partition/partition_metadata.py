"""The topic id of a partition, kept in its file partition.metadata.

Source: org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile, KIP-516.
"""

from __future__ import annotations

import logging
import uuid

from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.log_context import LogLocation
from kafkalite.log.storage.checkpoint_file import LaterVersion, encode_topic_id, read_topic_id
from kafkalite.log.storage.file_names import PARTITION_METADATA

logger = logging.getLogger(__name__)


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
