"""Name and directory of one log, for error messages.

A refused change is reported to `Files` as well, because the whole disk may have failed; a failed read is not.
"""

from __future__ import annotations

import errno

from kafkalite.common.errors import Malformed, StorageError
from kafkalite.log.storage.files import Files, storage_error


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
        return self.files.report_io_error(what, self.directory, error)

    def unreadable(self, error: OSError | Malformed) -> StorageError:
        """The error for a reader."""
        if isinstance(error, Malformed):
            return storage_error(f"{self.name} is damaged", self.directory, OSError(errno.EIO, str(error)))
        return storage_error(f"cannot read {self.name}", self.directory, error)
