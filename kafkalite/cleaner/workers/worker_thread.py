"""A worker as a thread of the broker's process, for brokers that live for a moment.

It does the same work as the process of `worker_main`, by the same messages; they pass through queues and no pickle. The
work is done in columns, largely outside the interpreter lock, so the loop runs beside it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress

from kafkalite.cleaner.job.job import FromWorker, ToWorker
from kafkalite.log.storage.files import Files


class _Closed(BaseException):
    """The thread is to end. No job handles it, as none outlives the end of its process."""


class _ThreadChannel:
    """The worker's end. `close` ends the thread when it has received all messages, `kill` at its next poll."""

    def __init__(self, send: Callable[[FromWorker], None]) -> None:
        self.send = send
        self.inbox: queue.SimpleQueue[ToWorker | None] = queue.SimpleQueue()
        self._is_killed = False

    def close(self) -> None:
        self.inbox.put(None)

    def kill(self) -> None:
        self._is_killed = True
        self.inbox.put(None)  # it may be waiting

    def receive(self, timeout_s: float | None = None) -> ToWorker | None:
        """As `Channel.receive`. Raises _Closed."""
        try:
            message = self.inbox.get(timeout_s != 0, timeout_s or None)
        except queue.Empty:
            message = None
            if not self._is_killed:
                return None
        if message is None or self._is_killed:
            raise _Closed
        return message


class WorkerThread:
    """A `Worker`. Belongs to the thread of `loop`."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_message: Callable[[FromWorker], None], on_end: Callable[[str], None]
    ) -> None:
        """Start it. Raises OSError."""
        self._loop = loop
        self._on_end = on_end
        self._reason = "ended"
        self._channel = _ThreadChannel(lambda message: self._tell(lambda: on_message(message)))
        self._thread = threading.Thread(target=self._run, name="kafkalite-cleaner", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            raise OSError(str(error)) from None

    def send(self, message: ToWorker) -> None:
        self._channel.inbox.put(message)

    def dismiss(self) -> None:
        self._channel.close()

    def kill(self) -> None:
        self._channel.kill()

    def _run(self) -> None:
        try:
            from kafkalite.cleaner.compaction.clean_log import clean  # numpy: most brokers never need it
            from kafkalite.cleaner.workers.worker_main import serve

            serve(self._channel, clean, Files())
        except _Closed:
            pass
        except Exception as error:
            self._reason = f"failed: {error!r}"
        finally:
            self._tell(self._ended)

    def _tell(self, callback: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: a broker that was killed
            self._loop.call_soon_threadsafe(callback)

    def _ended(self) -> None:
        self._thread.join()
        self._on_end(self._reason)


def start_thread(on_message: Callable[[FromWorker], None], on_end: Callable[[str], None]) -> WorkerThread:
    """A `StartWorker`, for the running loop. Raises OSError."""
    return WorkerThread(asyncio.get_running_loop(), on_message, on_end)
