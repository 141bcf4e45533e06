"""The messages between the broker and a worker process.

    broker                                     worker
                                               Ready              it can be given a job
    Clean(job, rate)                           Progress           from time to time, while it works
                                               CleanedSegment     the files of a group are on the disk
    Swapped(True)                              ...                they are in place: it cleans the next group
                                               Outcome            the job has ended
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
    """The worker is alive."""


class Ending(Enum):
    """How a cleaning ended."""

    DONE = "done"
    ABORTED = "aborted"  # the log is no longer to be cleaned, or no longer the same
    FAILED = "failed"  # its data cannot be cleaned, or the cleaner has a bug
    REFUSED = "refused"  # by the system: no space, no memory, a disk; a retry may help
    DIED = "died"  # the worker


class Outcome(NamedTuple):
    """`reason` in words for all endings but DONE, `result` for DONE. `errno` is 0 unless the system refused."""

    ending: Ending
    reason: str = ""
    errno: int = 0
    result: CleanResult | None = None


class LogLine(NamedTuple):
    """A line for the broker's log. `level` is logging's number."""

    level: int
    logger: str
    text: str


ToWorker = Clean | Swapped | Abort | Rate
FromWorker = Ready | Progress | CleanedSegment | Outcome | LogLine
