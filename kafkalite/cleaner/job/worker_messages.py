"""The messages between the broker and a worker process.

    broker                                     worker
                                               Ready              it can be given a job
    Clean(job, rate)                           Progress           from time to time, while it works
                                               CleanedSegment     the files of a group are on the disk
    Swapped(True)                              ...                they are in place: it cleans the next group
                                               CleanResult        or Failed, or Aborted
    Abort, Rate                                                   at any time

The end of the stream means that the other side has exited.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from kafkalite.cleaner.job.job import CleanJob, CleanResult
from kafkalite.log.segment.cleaned_segment import CleanedSegment


class Clean(NamedTuple):
    job: CleanJob
    bytes_per_second: float


class Swapped(NamedTuple):
    """The answer to a CleanedSegment. False: abort the job."""

    go_on: bool


class Abort(NamedTuple):
    """Abort the job, and remove the files that it has written."""


class Rate(NamedTuple):
    """The throttle's new rate."""

    bytes_per_second: float


class Ready(NamedTuple):
    """Everything is imported."""


class Progress(NamedTuple):
    """The worker is alive. `bytes_done` were read and written so far."""

    bytes_done: int


class Fault(Enum):
    """The cause of a failed job."""

    DATA = "data"  # CleaningFailed: the log cannot be cleaned
    SYSTEM = "system"  # OSError, MemoryError: a retry may help
    BUG = "bug"  # any other exception


class Failed(NamedTuple):
    """`errno` is 0 unless the fault is the system's."""

    fault: Fault
    reason: str
    errno: int = 0


class Aborted(NamedTuple):
    """The answer to `Abort`."""


class LogLine(NamedTuple):
    """A line for the broker's log. `level` is logging's number."""

    level: int
    logger: str
    text: str


ToWorker = Clean | Swapped | Abort | Rate
FromWorker = Ready | Progress | CleanedSegment | CleanResult | Failed | Aborted | LogLine
