"""Elections of this broker, many in one file of a data directory, on the disk before any of them takes effect.

A leader notes its epoch before anything else (KIP-279), in the epoch file of the log, which takes two fsyncs. A broker
that is elected for thousands of partitions at once writes them here, with two fsyncs for all. The file of a log gets
the epoch with its first batch. If there is none, the next start finds it here.

    0                                         as in Kafka's checkpoints: a version, the number of lines
    2
    orders 0 mKyTPz5xRZ2sHyIl7o2TcA 5 1200    topic, partition, topic id, epoch, its first offset: the end of the log
    orders 3 mKyTPz5xRZ2sHyIl7o2TcA 5 0

The epochs are restored that the log's own file would have after the start: batches carry their epochs, and an
epoch behind them, in which nothing was written, is forgotten (`log_loader`). So entries may stay when they are out
of date; the next write leaves them out. Apache Kafka ignores the file.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Mapping

from kafkalite.common.errors import StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition, format_uuid, parse_uuid
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.storage.checkpoint_file import decode_entries, encode_entries, number_of
from kafkalite.log.storage.file_names import ELECTIONS
from kafkalite.log.storage.files import Files, Job

logger = logging.getLogger(__name__)

_NO_ID = "-"


class Election(NamedTuple):
    """This broker leads under `epoch` from `start_offset` on, where the log ended."""

    topic_id: uuid.UUID | None
    epoch: int
    start_offset: int


class ElectionFile:
    """The file in the data directory at `path`. Used by the owner of the logs; jobs run on any thread, one at a time.

    Invariant: every election that a log knows to be recorded, and whose own file is not on the disk, is in the file.
    """

    def __init__(self, path: str, files: Files) -> None:
        self._path = f"{path}/{ELECTIONS}"
        self._files = files
        self._elections: dict[TopicPartition, Election] = {}
        self._lines: dict[TopicPartition, str] = {}

    @property
    def elections(self) -> Mapping[TopicPartition, Election]:
        return self._elections

    def load(self) -> None:
        """Reads the file; a corrupt one is logged and counts as empty. Raises OSError."""
        try:
            for topic, partition, topic_id, epoch, start_offset in decode_entries(self._files.read(self._path), 5):
                known = None if topic_id == _NO_ID else parse_uuid(topic_id)
                numbers = number_of(epoch), number_of(start_offset)
                self._add((topic, number_of(partition)), Election(known, *numbers))
        except FileNotFoundError:
            return
        except ValueError as error:
            logger.warning("cannot read %s (%s); continuing without it", self._path, error)

    def restore(self, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        """Gives logs without any epoch the one that their own file did not get."""
        for key, (topic_id, epoch, start_offset) in self._elections.items():
            log = logs.get(key)
            if (
                log is None
                or log.epochs.latest >= 0
                or log.metadata.topic_id != topic_id
                or log.end_offset != start_offset
            ):
                continue
            log.epochs.note_recorded(epoch, start_offset)
            try:
                log.assign_epoch(epoch)
            except StorageError as error:
                logger.error("%s", error)

    def record(
        self, elected: Collection[tuple[PartitionLog, int]], logs: Mapping[TopicPartition, PartitionLog]
    ) -> tuple[Job, Callable[[], None]]:
        """A job that writes the elections of these logs to these epochs, beside earlier ones that are still needed, and
        a call that notifies the logs when it is done. `logs` are all of the broker, since one may have been moved to
        another directory. The job raises OSError."""
        for key, election in list(self._elections.items()):
            if not _is_needed(logs.get(key), election):
                del self._elections[key], self._lines[key]
        for log, epoch in elected:
            self._add((log.topic, log.partition), Election(log.metadata.topic_id, epoch, log.end_offset))
        path, data, files = self._path, encode_entries(self._lines.values()), self._files
        recorded = [(log.epochs, epoch, log.end_offset) for log, epoch in elected]

        def notify() -> None:
            for epochs, epoch, start_offset in recorded:
                epochs.note_recorded(epoch, start_offset)

        return lambda: files.write_atomically(path, data, durable=True), notify

    def _add(self, key: TopicPartition, election: Election) -> None:
        topic_id = _NO_ID if election.topic_id is None else format_uuid(election.topic_id)
        self._elections[key] = election
        self._lines[key] = f"{key[0]} {key[1]} {topic_id} {election.epoch} {election.start_offset}"


def _is_needed(log: PartitionLog | None, election: Election) -> bool:
    """Whether the log's own file may lack the election, and should have it."""
    if log is None or log.metadata.topic_id != election.topic_id:
        return False
    return log.epochs.latest == election.epoch or log.epochs.is_recorded(election.epoch, election.start_offset)
