"""The broker's side of a worker process: sends and receives messages, and reports the end of the process.

The process finds the same modules as this one: its PYTHONPATH is this one's sys.path. Its stdin is a socket for
messages. Its stderr, empty unless it breaks, goes to a file in memory; the last line is part of the reason when it
dies. No call blocks: the event loop watches the socket, and bytes that it does not take at once are buffered.
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
from typing import IO, Protocol

from kafkalite.cleaner.job.worker_messages import FromWorker, ToWorker
from kafkalite.common.child_environment import child_environment
from kafkalite.common.forks import close_socket_in_children

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
                self._process.kill()  # it has closed its end and goes on: no message can reach it
            wait_s = _REAP_AFTER_S[min(attempt, len(_REAP_AFTER_S) - 1)]
            self._loop.call_later(wait_s, self._reap, attempt + 1)
            return
        with self._stderr as file:
            self._on_end(self._garbled or _reason(self._process.returncode, file))


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
