"""The worker process: cleans one log at a time, by jobs from a socket, and exits with the broker that started it.

    python -P -m worker_main <descriptor of the socket>

It holds the heavy parts of compaction, numpy and the offset map, and no part of the broker: no event loop, no open
logs. It yields to all other processes: a lower priority, the scheduler's batch class, and first choice for the kernel
when memory runs out. It polls the socket between two pieces of work, so it aborts a job soon after the request; at
the end of the stream, which is the end of the broker, it exits. It ignores signals of terminals and service managers:
they are meant for the broker, which ends its workers.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from select import POLLIN, poll
from typing import Protocol

from kafkalite.cleaner.job.job import CleaningFailed, CleanResult
from kafkalite.cleaner.job.throttle import Throttle
from kafkalite.cleaner.job.worker_messages import (
    Abort,
    Aborted,
    Clean,
    Failed,
    Fault,
    FromWorker,
    LogLine,
    Progress,
    Rate,
    Ready,
    Swapped,
    ToWorker,
)
from kafkalite.cleaner.workers.message_frames import Frames, encode
from kafkalite.log.segment.cleaned_segment import CleanedSegment
from kafkalite.log.storage.files import Files

_NICENESS = 10
_OOM_SCORE = b"500"  # of 1000
_PROGRESS_EVERY_S = 2.0
_RECEIVE_BYTES = 1 << 16


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

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._poll = poll()  # select() refuses descriptors from 1024 on, and the broker may have had so many files open
        self._poll.register(connection, POLLIN)
        self._frames = Frames()
        self._received: list[ToWorker] = []

    def send(self, message: FromWorker) -> None:
        try:
            self._connection.sendall(encode(message))
        except OSError:
            os._exit(0)

    def receive(self, timeout_s: float | None = None) -> ToWorker | None:
        while not self._received:
            if timeout_s is not None and not self._poll.poll(timeout_s * 1000):
                return None
            try:
                data = self._connection.recv(_RECEIVE_BYTES)
            except OSError:
                data = b""
            if not data:
                os._exit(0)
            self._received += self._frames.feed(data)  # type: ignore[arg-type]
        return self._received.pop(0)


CleanFunction = Callable[..., CleanResult]


def serve(channel: Channel, clean: CleanFunction, files: Files) -> None:
    """Perform jobs for ever."""
    channel.send(Ready())
    while True:
        message = channel.receive()
        if isinstance(message, Clean):  # any other message belongs to a job that has ended
            perform(message, channel, clean, files)


def perform(message: Clean, channel: Channel, clean: CleanFunction, files: Files) -> None:
    """Perform one job, and send its outcome."""
    job = _RunningJob(channel, message.bytes_per_second)
    outcome: FromWorker
    try:
        outcome = clean(message.job, files, job.swap, job.throttled)
        outcome.stats.throttled_seconds = job.throttle.slept_seconds
    except JobAborted:
        outcome = Aborted()
    except CleaningFailed as error:
        outcome = Failed(Fault.DATA, str(error))
    except MemoryError as error:
        outcome = Failed(Fault.SYSTEM, f"out of memory: {error}" if str(error) else "out of memory", errno.ENOMEM)
    except OSError as error:
        outcome = Failed(Fault.SYSTEM, _without_errno(error), error.errno or 0)
    except Exception as error:
        channel.send(LogLine(logging.ERROR, "kafkalite.cleaner.workers.worker_main", traceback.format_exc()))
        outcome = Failed(Fault.BUG, f"{type(error).__name__}: {error}")
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
        self._bytes_done = 0
        self._sent_at_s = time.monotonic()

    def swap(self, segment: CleanedSegment) -> bool:
        """The files of a group are complete; whether to go on."""
        self._receive(0)
        self._answer = None
        self._channel.send(segment)
        while (answer := self._take_answer()) is None:
            self._receive(None)
        return answer.go_on

    def _take_answer(self) -> Swapped | None:
        answer, self._answer = self._answer, None
        return answer

    def throttled(self, count: int) -> None:
        """`count` bytes were read or written; sleeps as the rate requires."""
        self._bytes_done += count
        self._receive(0)
        self.throttle.take(count)

    def _send_progress(self) -> None:
        now_s = time.monotonic()
        if now_s - self._sent_at_s >= _PROGRESS_EVERY_S:
            self._sent_at_s = now_s
            self._channel.send(Progress(self._bytes_done))

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


def main(arguments: Sequence[str]) -> None:
    """Serve over the socket whose descriptor is the only argument."""
    _yield_to_others()
    channel = SocketChannel(socket.socket(fileno=int(arguments[0])))
    logging.basicConfig(level=logging.INFO, handlers=[_BrokerLogHandler(channel)])
    from kafkalite.cleaner.compaction.clean_log import clean  # 100 ms, numpy: after the signals are ignored

    serve(channel, clean, Files())


if __name__ == "__main__":
    main(sys.argv[1:])
