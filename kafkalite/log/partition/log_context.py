"""The place and the topic id of one log, and the dependencies shared by all logs of a broker.

The dependencies are the clock, background queues, the file system and the expiration of producers. A refused change is
reported to `Files` as well, because the whole disk may have failed; a failed read is not.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import uuid
from collections.abc import Callable, Iterator

from kafkalite.common.clock import Clock
from kafkalite.common.errors import Malformed, StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.recovery.log_loader import LoadedLog, LoadOptions, load
from kafkalite.log.state.producer_state import EXPIRATION_MS
from kafkalite.log.state.transaction_verification import VerificationSetting
from kafkalite.log.storage.checkpoint_file import LaterVersion, encode_topic_id, read_topic_id
from kafkalite.log.storage.file_names import FAILED_SYNC, PARTITION_METADATA
from kafkalite.log.storage.files import Background, Files, SyncFailed, run_inline, storage_error


class LogLocation:
    """`name` is topic-partition, as in Kafka's messages."""

    __slots__ = ("directory", "files", "key", "name")

    def __init__(self, topic: str, partition: int, directory: str, files: Files) -> None:
        self.key = topic, partition
        self.name = f"{topic}-{partition}"
        self.directory = directory
        self.files = files

    def refusal(self, what: str, error: OSError) -> StorageError:
        """The error for the requester of a change; reports `error` to the owner of the directory."""
        if isinstance(error, SyncFailed):
            remember_failed_sync(self.files, self.directory)
        return self.files.report_io_error(what, self.directory, error)

    @contextlib.contextmanager
    def refusing(self, what: str) -> Iterator[None]:
        """Raises an OSError as StorageError: "cannot <what> <topic-partition>"; see `refusal`."""
        try:
            yield
        except OSError as error:
            raise self.refusal(f"cannot {what} {self.name}", error) from error

    def unreadable(self, error: OSError | Malformed) -> StorageError:
        """The error for a reader."""
        if isinstance(error, Malformed):
            return storage_error(f"{self.name} is damaged", self.directory, OSError(errno.EIO, str(error)))
        return storage_error(f"cannot read {self.name}", self.directory, error)


def remember_failed_sync(files: Files, directory: str) -> None:
    """Marks a log's directory after a failed fsync. The page cache may still hold data that the kernel will not write,
    so the next start writes that data again (see `recovery`). A machine crash may lose the mark, but it loses the page
    cache, too."""
    with contextlib.suppress(OSError):
        files.create_empty(f"{directory}/{FAILED_SYNC}")


logger = logging.getLogger(__name__)

BeforeTruncation = Callable[[TopicPartition, int, int, bool], None]


class LogContext:
    """Fields: `serial_queue` makes a background queue whose jobs run in order. `counting` is the queue of the jobs that
    count records, one log after another. `run_completions` runs the completions of background jobs that have ended.
    `record_validation` is the broker's kafkalite.record.validation.
    `verification` says whether transactions must be verified, and may change. `before_truncation` is called with a log,
    its next start and end offset, and whether all its segments go. It returns when no checkpoint is above the offsets;
    it raises OSError. `on_failure` is called with a log that takes no more records.
    """

    __slots__ = (
        "before_truncation", "clock", "counting", "files", "on_failure", "producer_expiration_ms", "record_validation",
        "run_completions", "serial_queue", "verification",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        serial_queue: Callable[[], Background] = lambda: run_inline,
        files: Files | None = None,
        producer_expiration_ms: int = EXPIRATION_MS,
        run_completions: Callable[[], None] = lambda: None,
        verification: VerificationSetting | None = None,
        record_validation: str = "records",
        before_truncation: BeforeTruncation = lambda key, start_offset, end_offset, empties: None,
        on_failure: Callable[[TopicPartition], object] = lambda key: None,
    ) -> None:
        self.before_truncation = before_truncation
        self.on_failure = on_failure
        self.clock = clock
        self.record_validation = record_validation
        self.serial_queue = serial_queue
        self.counting = serial_queue()
        self.run_completions = run_completions
        self.files = Files() if files is None else files
        self.producer_expiration_ms = producer_expiration_ms
        self.verification = VerificationSetting() if verification is None else verification

    def load(self, key: TopicPartition, directory: str, config: TopicConfig, options: LoadOptions) -> LoadedLog:
        """The content of a log's directory. Raises StorageError."""
        try:
            return load(directory, config, options, self.clock.wall_ms(), self.files, self.producer_expiration_ms)
        except OSError as error:
            raise storage_error(f"cannot load {key[0]}-{key[1]}", directory, error) from error


class PartitionMetadata:
    """The topic id of a partition, in the file partition.metadata at `path`. `is_corrupt`: the file is there and has no
    id, so that nothing is lost when it is written again. `mark_dirty` has the next flush fsync a path.
    Source: org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile, KIP-516."""

    __slots__ = ("_is_read", "_location", "_mark_dirty", "_topic_id", "is_corrupt", "path")

    def __init__(self, location: LogLocation, mark_dirty: Callable[[str], None]) -> None:
        self.path = f"{location.directory}/{PARTITION_METADATA}"
        self._location = location
        self._mark_dirty = mark_dirty
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
        with self._location.refusing("write the topic id of"):
            self._location.files.write_atomically(self.path, encode_topic_id(topic_id), durable=False)
        self._topic_id, self._is_read, self.is_corrupt = topic_id, True, False
        self._mark_dirty(self.path)
