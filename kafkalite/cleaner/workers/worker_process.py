"""Worker processes, as the broker sees them: started when there is work, dismissed after some time without.

A process finds the same modules as this one: its PYTHONPATH is this one's sys.path. Its stdin is a socket for messages.
Its stderr, empty unless it breaks, goes to a file in memory; the last line is part of the reason when it dies. No call
blocks: the event loop watches the socket, and bytes that it does not take at once are buffered.
Busy workers share log.cleaner.io.max.bytes.per.second evenly, and get a new rate when their number changes.
Source: kafka.log.LogCleaner (startup, shutdownCleaners).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import IO, Protocol

from kafkalite.cleaner.job.job import Clean, Ending, FromWorker, Outcome, Rate, Ready, ToWorker
from kafkalite.cleaner.workers.cleaning_task import CleaningTask
from kafkalite.common.clock import Clock, Timer
from kafkalite.common.forks import child_environment, close_socket_in_children

_RECEIVE_BYTES = 1 << 18
_REAP_AFTER_S = (0.0, 0.002, 0.01, 0.05, 0.2, 1.0)  # a process whose socket is closed is about to end
_STDERR_BYTES = 4096
_LENGTH_BYTES = 4


class Worker(Protocol):
    """A worker as the cleaner uses it. It has two callbacks: for each message, and for its end, once, with the reason
    in words."""

    def send(self, message: ToWorker) -> None: ...

    def dismiss(self) -> None:
        """Let it end after it has received all messages."""
        ...

    def kill(self) -> None: ...


StartWorker = Callable[[Callable[[FromWorker], None], Callable[[str], None]], Worker]
"""Starts a worker that calls the first for each message and the second at its end. Raises OSError."""


def encode(message: ToWorker | FromWorker) -> bytes:
    """A message in the format of multiprocessing.connection: a length of four bytes, then a pickle. Both ends are the
    same program of the same user, so pickles are as safe as memory."""
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


class Frames:
    """Decodes messages from a stream that arrives in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[ToWorker | FromWorker]:
        """The messages that are complete now."""
        buffer = self._buffer
        buffer += data
        messages = []
        at = 0
        while len(buffer) - at >= _LENGTH_BYTES:
            end = at + _LENGTH_BYTES + int.from_bytes(buffer[at : at + _LENGTH_BYTES], "big")
            if len(buffer) < end:
                break
            messages.append(pickle.loads(buffer[at + _LENGTH_BYTES : end]))
            at = end
        del buffer[:at]
        return messages


class WorkerProcess:
    """Belongs to the thread of `loop`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_message: Callable[[FromWorker], None], on_end: Callable[[str], None]
    ) -> None:
        """Start it. Raises OSError."""
        import subprocess  # 10 ms, and most brokers never need a worker in their first minutes

        if not sys.executable:
            raise OSError("it is not known which Python this is (sys.executable)")
        self._loop = loop
        self._on_message = on_message
        self._on_end = on_end
        self._frames = Frames()
        self._unsent = bytearray()
        self._garbled: str | None = None
        self._stderr = _memory_file()
        self._connection, theirs = socket.socketpair()
        close_socket_in_children(self._connection)  # at its end the worker ends, too
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kafkalite.cleaner.workers.worker_main"],
                stdin=theirs.fileno(),
                stdout=self._stderr,
                stderr=self._stderr,
                env=child_environment(),
            )
        except BaseException:
            self._connection.close()
            self._stderr.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._connection.setblocking(False)
        loop.add_reader(self._connection.fileno(), self._read)

    def send(self, message: ToWorker) -> None:
        if self._connection.fileno() < 0:
            return  # it has ended, and its end is reported or will be
        if not self._unsent:
            self._loop.add_writer(self._connection.fileno(), self._write)
        self._unsent += encode(message)
        self._write()

    def dismiss(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        self._process.kill()

    def _write(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()  # the reader notices its end
        self._loop.remove_writer(self._connection.fileno())

    def _read(self) -> None:
        try:
            data = self._connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._connection.fileno())
            self._loop.remove_writer(self._connection.fileno())
            self._connection.close()
            self._reap(0)
            return
        try:
            messages = self._frames.feed(data)
        except Exception as error:  # such as another version of this program, installed meanwhile
            self._garbled = f"said what cannot be understood ({error!r}); was kafkalite replaced while the broker runs?"
            self.kill()
            return
        for message in messages:
            self._on_message(message)  # type: ignore[arg-type]

    def _reap(self, attempt: int) -> None:
        if self._process.poll() is None:
            if attempt >= len(_REAP_AFTER_S):
                self._process.kill()  # it has closed its end and still runs: no message can reach it
            wait_s = _REAP_AFTER_S[min(attempt, len(_REAP_AFTER_S) - 1)]
            self._loop.call_later(wait_s, self._reap, attempt + 1)
            return
        with self._stderr as file:
            self._on_end(self._garbled or _reason(self._process.returncode, file))


def start_process(on_message: Callable[[FromWorker], None], on_end: Callable[[str], None]) -> Worker:
    """A `StartWorker`, for the running loop. Raises OSError."""
    return WorkerProcess(asyncio.get_running_loop(), on_message, on_end)


def _reason(code: int, stderr: IO[bytes]) -> str:
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = "unknown"
        guess = ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
        reason = f"was killed by signal {-code} ({name}{guess})"
    else:
        reason = f"ended with code {code}"
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - _STDERR_BYTES))
    lines = stderr.read().decode(errors="replace").split("\n")
    last_line = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"{reason}: {last_line}" if last_line else reason


def _memory_file() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("kafkalite-cleaner-stderr"), "w+b", buffering=0)
    import tempfile

    return tempfile.TemporaryFile(buffering=0)


IDLE_MS = 30_000
_SILENCE_MS = 600_000  # a worker sends a message every two seconds
_ABORT_MS = 10_000


class WorkerSlot:
    """The place of one worker. `is_ready`: it has sent a message, so it can work here at all. `is_leaving`: it gets no
    more work. `verdict`: why the broker killed it, if it did, as the outcome of its task."""

    def __init__(self) -> None:
        self.worker: Worker | None = None
        self.is_ready = False
        self.is_leaving = False
        self.verdict: Outcome | None = None
        self.task: CleaningTask | None = None
        self.idle_timer: Timer | None = None

    @property
    def is_free(self) -> bool:
        return self.task is None and not self.is_leaving

    def send(self, message: ToWorker) -> None:
        if self.worker is not None:
            self.worker.send(message)

    def kill(self, ending: Ending, reason: str) -> None:
        self.is_leaving = True
        self.verdict = Outcome(ending, reason)
        if self.worker is not None:
            self.worker.kill()

    def stop_idle_timer(self) -> None:
        if self.idle_timer is not None:
            self.idle_timer.cancel()
            self.idle_timer = None

    def outcome(self, reason: str) -> tuple[Outcome, bool]:
        """The outcome of its task after its worker has ended, and whether the end was unexpected."""
        if self.verdict is not None:
            return self.verdict, self.verdict.ending is Ending.DIED
        is_death = not self.is_leaving
        if is_death and not self.is_ready:
            return Outcome(Ending.REFUSED, f"no cleaner process can begin: {reason}"), True
        what = f"it compacted {self.task.name}" if self.task is not None else "it had nothing to do"
        return Outcome(Ending.DIED, f"{reason} while {what}"), is_death


class WorkerPool:
    """`on_message` gets the messages of workers, `on_end` the reason when one has ended."""

    def __init__(
        self,
        start_worker: StartWorker,
        clock: Clock,
        on_message: Callable[[WorkerSlot, FromWorker], None],
        on_end: Callable[[WorkerSlot, str], None],
    ) -> None:
        self.slots: list[WorkerSlot] = []
        self._start_worker = start_worker
        self._clock = clock
        self._on_message = on_message
        self._on_end = on_end

    @property
    def busy(self) -> list[WorkerSlot]:
        return [slot for slot in self.slots if slot.task is not None]

    def take(self) -> WorkerSlot:
        """The slot of a free worker, which is started if need be. Raises OSError."""
        for slot in self.slots:
            if slot.is_free:
                return slot
        slot = WorkerSlot()
        self.slots.append(slot)
        try:
            slot.worker = self._start_worker(
                lambda message: self._receive(slot, message), lambda reason: self._ended(slot, reason)
            )
        except BaseException:
            self.slots.remove(slot)
            raise
        return slot

    def begin(self, slot: WorkerSlot, task: CleaningTask, bytes_per_second: float) -> None:
        """Give the task to the worker of a free slot."""
        slot.stop_idle_timer()
        self._share(bytes_per_second, len(self.busy) + 1)
        slot.task = task
        slot.send(Clean(task.job, bytes_per_second / len(self.busy)))

    def release(self, task: CleaningTask, bytes_per_second: float) -> None:
        """The task has ended."""
        for slot in self.busy:
            if slot.task is task:
                slot.task = None
                self._share(bytes_per_second, len(self.busy))
                if slot.is_free:
                    slot.idle_timer = self._clock.call_later(IDLE_MS, partial(self._dismiss, slot))

    def _share(self, bytes_per_second: float, busy_count: int) -> None:
        for slot in self.busy:
            slot.send(Rate(bytes_per_second / busy_count))

    def kill_if_silent(self, task: CleaningTask) -> None:
        """Kill a worker that has not sent a message for too long."""
        silent_ms = self._clock.monotonic_ms() - task.last_message_ms
        if silent_ms > (_SILENCE_MS if task.abort_reason is None else _ABORT_MS):
            for slot in self.busy:
                if slot.task is task:
                    silence = f"the cleaner process said nothing for {silent_ms // 1000} s"
                    slot.kill(Ending.DIED, f"{silence} while it compacted {task.name}, and was killed")

    def shrink(self, max_count: int) -> None:
        """Dismiss free workers beyond `max_count`."""
        staying = [slot for slot in self.slots if not slot.is_leaving]
        for slot in [slot for slot in staying if slot.is_free][: max(0, len(staying) - max_count)]:
            self._dismiss(slot)

    def kill_all(self, reason: str) -> None:
        for slot in list(self.slots):
            slot.stop_idle_timer()
            slot.kill(Ending.ABORTED, reason)

    def _dismiss(self, slot: WorkerSlot) -> None:
        if slot.is_free and slot.worker is not None:
            slot.is_leaving = True
            slot.worker.dismiss()

    def _receive(self, slot: WorkerSlot, message: FromWorker) -> None:
        if isinstance(message, Ready):
            slot.is_ready = True
        self._on_message(slot, message)

    def _ended(self, slot: WorkerSlot, reason: str) -> None:
        self.slots.remove(slot)
        slot.stop_idle_timer()
        self._on_end(slot, f"the cleaner process {reason}")
