"""The process that compacts: it is given jobs over a socket, one at a time, and ends with the broker that began it.

    python -P -m worker_main <descriptor of the socket>

It has everything that is heavy in compaction, numpy and the offset map, and nothing of the broker: no event loop, no
open logs. It yields to everybody: a lower priority, the scheduler's batch class, and first choice for the kernel when
memory runs out. Between two pieces of work it looks at the socket, so it gives up a job soon after it is told to; the
end of the stream is the end of the broker, and its own. Signals from a terminal or a service manager are meant for the
broker, which sees to its workers.
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

from kafkalite.cleaner.job.job import CleanedSegment, CleaningFailed, CleanResult
from kafkalite.cleaner.job.throttle import Throttle
from kafkalite.cleaner.job.worker_messages import (
    Abort,
    Clean,
    Cleaned,
    Failed,
    Fault,
    Finished,
    Frames,
    FromWorker,
    GaveUp,
    LogLine,
    Progress,
    Rate,
    Ready,
    Swapped,
    ToWorker,
    encode,
)
from kafkalite.log.storage.files import Files

_NICENESS = 10
_OOM_SCORE = b"500"  # of 1000
_TELL_EVERY_S = 2.0
_RECEIVE_BYTES = 1 << 16


class Aborted(Exception):
    """The broker wants the job to be given up."""


class Channel(Protocol):
    """The worker's end of the conversation."""

    def send(self, message: FromWorker) -> None: ...

    def receive(self, timeout_s: float | None = None) -> ToWorker | None:
        """The next message; waits for it, at most `timeout_s`, and returns None if none came."""
        ...


class SocketChannel:
    """A `Channel` over a stream socket. With the broker the process ends, on the spot: the next broker may be at work
    in the same directories, and what is unfinished there is its business."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._poll = poll()  # select() refuses numbers from 1024 on, and the broker may have had so many files open
        self._poll.register(connection, POLLIN)
        self._frames = Frames()
        self._heard: list[ToWorker] = []

    def send(self, message: FromWorker) -> None:
        try:
            self._connection.sendall(encode(message))
        except OSError:
            os._exit(0)

    def receive(self, timeout_s: float | None = None) -> ToWorker | None:
        while not self._heard:
            if timeout_s is not None and not self._poll.poll(timeout_s * 1000):
                return None
            try:
                data = self._connection.recv(_RECEIVE_BYTES)
            except OSError:
                data = b""
            if not data:
                os._exit(0)
            self._heard += self._frames.feed(data)  # type: ignore[arg-type]
        return self._heard.pop(0)


CleanFunction = Callable[..., CleanResult]


def serve(channel: Channel, clean: CleanFunction, files: Files) -> None:
    """Do what is asked, for ever."""
    channel.send(Ready())
    while True:
        message = channel.receive()
        if isinstance(message, Clean):  # whatever else comes is about a job that is over
            perform(message, channel, clean, files)


def perform(order: Clean, channel: Channel, clean: CleanFunction, files: Files) -> None:
    """Do one job, and say how it ended."""
    work = _Work(channel, order.bytes_per_second)
    try:
        result = clean(order.job, files, work.swap, work.take, work.progress)
    except Aborted:
        outcome: FromWorker = GaveUp()
    except CleaningFailed as error:
        outcome = Failed(Fault.DATA, str(error))
    except MemoryError as error:
        outcome = Failed(Fault.SYSTEM, f"out of memory: {error}" if str(error) else "out of memory", errno.ENOMEM)
    except OSError as error:
        outcome = Failed(Fault.SYSTEM, _in_words(error), error.errno or 0)
    except Exception as error:
        channel.send(LogLine(logging.ERROR, "kafkalite.cleaner.workers.worker_main", traceback.format_exc()))
        outcome = Failed(Fault.BUG, f"{type(error).__name__}: {error}")
    else:
        result.stats.throttled_seconds = work.throttle.slept_seconds
        outcome = Finished(result)
    channel.send(outcome)


def _in_words(error: OSError) -> str:
    """Without the number, which says nothing to people."""
    if error.strerror is None:
        return str(error)
    return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"


class _Work:
    """What one job is given to speak with the broker."""

    def __init__(self, channel: Channel, bytes_per_second: float) -> None:
        self.throttle = Throttle(bytes_per_second, sleep=self._listen)
        self._channel = channel
        self._answer: Swapped | None = None
        self._bytes_done = 0
        self._told_at_s = time.monotonic()

    def swap(self, segment: CleanedSegment) -> bool:
        """The files of a group are there; whether to go on."""
        self._listen(0)
        self._answer = None
        self._channel.send(Cleaned(segment))
        while (answer := self._hear_answer()) is None:
            self._listen(None)
        return answer.go_on

    def _hear_answer(self) -> Swapped | None:
        answer, self._answer = self._answer, None
        return answer

    def take(self, count: int) -> None:
        """`count` bytes were read or written."""
        self._bytes_done += count
        self._listen(0)
        self._tell()
        self.throttle.take(count)

    def progress(self, *_: object) -> None:
        """Some more was done."""
        self._listen(0)
        self._tell()

    def _tell(self) -> None:
        now_s = time.monotonic()
        if now_s - self._told_at_s >= _TELL_EVERY_S:
            self._told_at_s = now_s
            self._channel.send(Progress(self._bytes_done))

    def _listen(self, timeout_s: float | None) -> None:
        """Take to heart what the broker has said; with a time, until something came or that has passed."""
        if timeout_s:
            timeout_s = min(timeout_s, _TELL_EVERY_S)
        while (message := self._channel.receive(timeout_s)) is not None:
            if isinstance(message, Abort):
                raise Aborted
            if isinstance(message, Rate):
                self.throttle.bytes_per_second = message.bytes_per_second
            elif isinstance(message, Swapped):
                self._answer = message
                return
            timeout_s = 0
        self._tell()


class _ToBroker(logging.Handler):
    """Log lines go where the broker writes its own."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.send(LogLine(record.levelno, record.name, self.format(record)))


def _step_back() -> None:
    """Let everybody else go first; what the system does not allow it need not."""
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
    _step_back()
    channel = SocketChannel(socket.socket(fileno=int(arguments[0])))
    logging.basicConfig(level=logging.INFO, handlers=[_ToBroker(channel)])
    from kafkalite.cleaner.compaction.clean_log import clean  # 100 ms, numpy: when the signals are seen to

    serve(channel, clean, Files())


if __name__ == "__main__":
    main(sys.argv[1:])
