"""What the broker and a worker process say to each other, and how it travels: a length, then a pickle.

    broker                                     worker
                                               Ready              it can be given a job
    Clean(job, rate)                           Progress           from time to time, while it works
                                               Cleaned(segment)   the files of a group are on the disk
    Swapped(True)                              ...                they are in their place: go on with the next group
                                               Finished(result)   or Failed, or GaveUp
    Abort, Rate                                                   at any time

Both ends are the same program of the same user, so pickles are as safe as memory. The end of the stream is the end of
the other side.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kafkalite.cleaner.job.job import CleanedSegment, CleanJob, CleanResult

_LENGTH_BYTES = 4


class Clean(NamedTuple):
    job: CleanJob
    bytes_per_second: float


class Swapped(NamedTuple):
    """The answer to `Cleaned`. False: give up."""

    go_on: bool


class Abort(NamedTuple):
    """Give up the job, and remove what was written."""


class Rate(NamedTuple):
    """The throttle's new setting."""

    bytes_per_second: float


class Ready(NamedTuple):
    """Everything is imported."""


class Progress(NamedTuple):
    """The worker is alive. `bytes_done` were read and written so far."""

    bytes_done: int


class Cleaned(NamedTuple):
    segment: CleanedSegment


class Finished(NamedTuple):
    result: CleanResult


class Fault(Enum):
    """Whose fault it was that a job failed."""

    DATA = "data"  # CleaningFailed: the log cannot be compacted
    SYSTEM = "system"  # OSError, MemoryError: it may work another time
    BUG = "bug"  # anything else


class Failed(NamedTuple):
    """`errno` is 0 unless the fault is the system's."""

    fault: Fault
    reason: str
    errno: int = 0


class GaveUp(NamedTuple):
    """What `Abort` asked for is done."""


class LogLine(NamedTuple):
    """Something for the broker's log. `level` is logging's number."""

    level: int
    logger: str
    text: str


ToWorker = Clean | Swapped | Abort | Rate
FromWorker = Ready | Progress | Cleaned | Finished | Failed | GaveUp | LogLine


def encode(message: ToWorker | FromWorker) -> bytes:
    import pickle  # 5 ms, and most brokers never need a worker in their first minutes

    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


class Frames:
    """Messages out of a stream that comes in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[ToWorker | FromWorker]:
        """The messages that are complete now."""
        import pickle

        buffer = self._buffer
        buffer += data
        found = []
        at = 0
        while len(buffer) - at >= _LENGTH_BYTES:
            end = at + _LENGTH_BYTES + int.from_bytes(buffer[at : at + _LENGTH_BYTES], "big")
            if len(buffer) < end:
                break
            found.append(pickle.loads(buffer[at + _LENGTH_BYTES : end]))
            at = end
        del buffer[:at]
        return found
