"""The worker process: cleans one log at a time, by jobs from a socket, and exits with the broker that started it.

The socket is its stdin. The process loads numpy and the offset map, and no part of the broker: no event loop, no open
logs. It yields to all other processes: a lower priority, the scheduler's batch class, and first choice for the kernel
when memory runs out. It polls the socket between two pieces of work, so it aborts a job soon after the request; at the
end of the stream, which is the end of the broker, it exits. It ignores signals of terminals and service managers: they
are meant for the broker, which ends its workers.
A throttle (log.cleaner.io.max.bytes.per.second, of which each busy worker has a share) makes it sleep when it is fast.
Source: kafka.log.LogCleaner (CleanerThread), org.apache.kafka.storage.internals.utils.Throttler.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import signal
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Protocol

from kafkalite.cleaner.job.job import (
    Abort,
    Clean,
    CleaningFailed,
    CleanResult,
    Ending,
    FromWorker,
    LogLine,
    Outcome,
    Progress,
    Rate,
    Ready,
    Swapped,
    ToWorker,
)
from kafkalite.common.clock import monotonic_s
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.storage.files import Files

_SLEEP_S_MIN = 0.02


class Throttle:
    """`bytes_per_second` may be changed at any time. `slept_seconds` is the total. `sleep` may return early: it is
    called again. `clock` returns seconds since some moment."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.bytes_per_second = bytes_per_second
        self.slept_seconds = 0.0
        self._clock = clock
        self._sleep = sleep
        self._unpaid_bytes = 0.0  # of those taken until `_at_s`, not yet covered by the rate
        self._at_s = clock()

    def take(self, count: int) -> None:
        """`count` bytes were read or written; returns when the next may be."""
        self._unpaid_bytes += count
        while (wait_s := self._wait_s()) >= _SLEEP_S_MIN:
            before_s = self._clock()
            self._sleep(wait_s)
            self.slept_seconds += self._clock() - before_s

    def _wait_s(self) -> float:
        now_s = self._clock()
        passed_s, self._at_s = now_s - self._at_s, now_s
        rate = self.bytes_per_second
        self._unpaid_bytes = max(0.0, self._unpaid_bytes - passed_s * rate) if math.isfinite(rate) else 0.0
        return self._unpaid_bytes / rate if self._unpaid_bytes else 0.0


_NICENESS = 10
_OOM_SCORE = b"500"  # of 1000
_PROGRESS_EVERY_S = 2.0


class JobAborted(Exception):
    """The broker has aborted the job."""


class Channel(Protocol):
    """The worker's end of the stream."""

    def send(self, message: FromWorker) -> None: ...

    def receive(self, timeout_s: float | None = None) -> ToWorker | None:
        """The next message; waits for it, at most `timeout_s`, and returns None if none came."""
        ...


class SocketChannel:
    """A `Channel` over a stream socket. When the broker ends, the process exits on the spot: the next broker may
    already use the same directories, and removes unfinished files itself."""

    def __init__(self, connection: Connection[FromWorker, ToWorker]) -> None:
        self._connection = connection

    def send(self, message: FromWorker) -> None:
        try:
            self._connection.send(message)
        except OSError:
            os._exit(0)

    def receive(self, timeout_s: float | None = None) -> ToWorker | None:
        try:
            return self._connection.recv() if self._connection.poll(timeout_s) else None
        except (OSError, EOFError):
            os._exit(0)


CleanFunction = Callable[..., CleanResult]


def serve(channel: Channel, clean: CleanFunction, files: Files) -> None:
    """Performs jobs until the process is ended."""
    channel.send(Ready())
    while True:
        message = channel.receive()
        if isinstance(message, Clean):  # any other message belongs to a job that has ended
            perform(message, channel, clean, files)


def perform(message: Clean, channel: Channel, clean: CleanFunction, files: Files) -> None:
    """Perform one job, and send its outcome."""
    job = _RunningJob(channel, message.bytes_per_second)
    try:
        result = clean(message.job, files, job.swap, job.throttled)
        result.stats.throttled_seconds = job.throttle.slept_seconds
        outcome = Outcome(Ending.DONE, result=result)
    except JobAborted:
        outcome = Outcome(Ending.ABORTED, "the broker has aborted it")
    except CleaningFailed as error:
        outcome = Outcome(Ending.FAILED, str(error))
    except MemoryError as error:
        outcome = Outcome(Ending.REFUSED, f"out of memory: {error}" if str(error) else "out of memory", errno.ENOMEM)
    except OSError as error:
        outcome = Outcome(Ending.REFUSED, _without_errno(error), error.errno or 0)
    except Exception as error:
        channel.send(LogLine(logging.ERROR, "kafkalite.cleaner.workers.worker_main", traceback.format_exc()))
        outcome = Outcome(Ending.FAILED, f"{type(error).__name__}: {error}")
    channel.send(outcome)


def _without_errno(error: OSError) -> str:
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


class _RunningJob:
    """The callbacks of one job, by which it exchanges messages with the broker."""

    def __init__(self, channel: Channel, bytes_per_second: float) -> None:
        self.throttle = Throttle(bytes_per_second, sleep=self._receive)
        self._channel = channel
        self._answer: Swapped | None = None
        self._sent_at_s = monotonic_s()

    def swap(self, segment: CleanedSegment) -> bool:
        """The files of a group are complete; whether to continue."""
        self._receive(0)
        self._answer = None
        self._channel.send(segment)
        while (answer := self._take_answer()) is None:
            self._receive(None)
        return answer.may_continue

    def _take_answer(self) -> Swapped | None:
        answer, self._answer = self._answer, None
        return answer

    def throttled(self, count: int) -> None:
        """`count` bytes were read or written; sleeps as the rate requires."""
        self._receive(0)
        self.throttle.take(count)

    def _send_progress(self) -> None:
        now_s = monotonic_s()
        if now_s - self._sent_at_s >= _PROGRESS_EVERY_S:
            self._sent_at_s = now_s
            self._channel.send(Progress())

    def _receive(self, timeout_s: float | None) -> None:
        """Obey the broker's messages. With a timeout, wait for the first at most so long. Raises JobAborted."""
        if timeout_s:
            timeout_s = min(timeout_s, _PROGRESS_EVERY_S)
        while (message := self._channel.receive(timeout_s)) is not None:
            if isinstance(message, Abort):
                raise JobAborted
            if isinstance(message, Rate):
                self.throttle.bytes_per_second = message.bytes_per_second
            elif isinstance(message, Swapped):
                self._answer = message
                return
            timeout_s = 0
        self._send_progress()


class _BrokerLogHandler(logging.Handler):
    """Sends log lines to the broker's log."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.send(LogLine(record.levelno, record.name, self.format(record)))


def _yield_to_others() -> None:
    """Ignore signals and lower the priority, as far as the system allows."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(_NICENESS)
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb") as file:
        file.write(_OOM_SCORE)


def main() -> None:
    """Serve over the socket that is stdin."""
    _yield_to_others()
    channel = SocketChannel(Connection(0))
    logging.basicConfig(level=logging.INFO, handlers=[_BrokerLogHandler(channel)])
    from kafkalite.cleaner.compaction.clean_log import clean  # 100 ms, numpy: after the signals are ignored

    serve(channel, clean, Files())


if __name__ == "__main__":
    main()
