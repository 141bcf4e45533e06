"""Records by a schema of the reader, decoded in processes of their own, many per exchange, and some ahead.

A record that ends a process is lost; a new process decodes the following ones. If the record is unknown, those of the
exchange are retried one by one. Processes start with the first search that needs one, are reused, and end with the
console.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass

from kafkalite.common.errors import Malformed
from kafkalite.common.forks import child_environment
from kafkalite.console.decoders.wire import (
    ANSWER_S_MAX,
    DATA_BYTES_MAX,
    DONE,
    ENDS_MAX,
    EXCHANGE_CPU_S,
    LAST_FAULT,
    PROCESSES_MAX,
    WAIT_S,
    WAIT_S_A_BYTE,
    WAIT_S_A_RECORD,
    Decoded,
    Frames,
    Schema,
    encode_request,
)

_PIPE_BYTES = 1 << 20  # an exchange in one piece: with the usual 64 KiB, each piece needs a switch of both processes
_END_S = 5.0
_REASONS = {
    signal.SIGSEGV: "it is nested too deeply",
    signal.SIGBUS: "it is nested too deeply",
    signal.SIGPROF: f"it takes more than {EXCHANGE_CPU_S:g} s",
}


class SchemaRefused(Exception):
    """The schema is invalid; the text is the reason."""


class DecoderEnded(Exception):
    """The process has ended, with the reason. `found`: the records up to the one that has ended it; empty if that one
    is unknown."""

    def __init__(self, reason: str, found: Sequence[Decoded] = ()) -> None:
        super().__init__(reason)
        self.found = list(found)


class DecoderProcess:
    """Serves one thread at a time, until `close`."""

    def __init__(self) -> None:
        """Raises OSError."""
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kafkalite.console.decoders.decoder_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(),
            bufsize=0,
        )
        self._frames = Frames()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(AttributeError, OSError):  # of Linux, up to a limit of the system
                fcntl.fcntl(pipe or -1, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def pid(self) -> int:
        return self._process.pid

    def decode(self, schema: Schema, records: Sequence[bytes]) -> list[Decoded]:
        """Decodes the records. Raises SchemaRefused; DecoderEnded, after which only `close` may be called. Without
        records it compiles the schema only, so that a fault is the schema's."""
        frames: list[tuple[int, str]] = []
        try:
            self._send(encode_request(schema, records))
            while len(frames) < 1 + len(records):
                frames += self._receive()
                if frames and frames[0][0] != DONE:
                    raise SchemaRefused(frames[0][1])
                if frames and frames[-1][0] == LAST_FAULT:
                    raise DecoderEnded(frames[-1][1], _decoded(frames))
        except (OSError, EOFError, Malformed, TimeoutError) as fault:
            raise DecoderEnded(self._reason(fault)) from None
        return _decoded(frames)

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        view = memoryview(data)
        while view:
            view = view[os.write(self._process.stdin.fileno(), view) :]

    def _receive(self) -> list[tuple[int, str]]:
        """Receives frames, at least one. Raises EOFError, Malformed, TimeoutError."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        deadline_s = time.monotonic() + ANSWER_S_MAX
        while True:
            if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
                raise TimeoutError
            data = os.read(descriptor, _PIPE_BYTES)
            if not data:
                raise EOFError
            if found := self._frames.feed(data):
                return found

    def _reason(self, fault: Exception) -> str:
        """The reason why the process has ended, or is to be ended."""
        if isinstance(fault, Malformed | TimeoutError):
            self._process.kill()
            return f"the decoder {'does not answer' if isinstance(fault, TimeoutError) else 'sends invalid frames'}"
        code = self._wait()
        known = _REASONS.get(signal.Signals(-code)) if code < 0 else None
        return known or f"the decoder has ended with code {code}"

    def _wait(self) -> int:
        try:
            return self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def kill(self) -> None:
        """Kill the process, from any thread: `decode` raises DecoderEnded."""
        self._process.kill()

    def close(self) -> None:
        """End it, and wait for its end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()  # it holds nothing that could be lost
        self._process.wait()


def _decoded(frames: Sequence[tuple[int, str]]) -> list[Decoded]:
    """The decoded records; the first frame is the schema's."""
    return [Decoded(status == DONE, text) for status, text in frames[1:]]


_TOGETHER_MIN, _TOGETHER_MAX = 64, 4096
"""Records in an exchange: the first ones few, since they may be all that is needed; then many, since each exchange
needs a switch of processes.
"""
_TOGETHER_BYTES_MAX = 1 << 20
KEPT_BYTES_MAX = 8 << 20


class DecoderPool:
    """The decoder processes of one console, for all its threads. One thread waits for each process."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(PROCESSES_MAX, "decoder")
        self._lock = threading.Lock()
        self._all: set[DecoderProcess] = set()
        self._idle: list[DecoderProcess] = []
        self._is_closed = False

    @property
    def pids(self) -> list[int]:
        with self._lock:
            return [process.pid for process in self._all]

    def submit(self, schema: Schema, records: Sequence[bytes]) -> Future[list[Decoded]]:
        """The future of the decoded records; it fails with SchemaRefused, DecoderEnded, OSError. Raises OSError if the
        pool is closed."""
        try:
            return self._threads.submit(self._decode, schema, records)
        except RuntimeError:
            raise OSError("the console ends") from None

    def _decode(self, schema: Schema, records: Sequence[bytes]) -> list[Decoded]:
        with self._lock:
            if self._is_closed:
                raise OSError("the console ends")
            process = self._idle.pop() if self._idle else DecoderProcess()
            self._all.add(process)
        try:
            found = process.decode(schema, records)
        except BaseException:
            self._drop(process)
            raise
        with self._lock:
            self._idle.append(process)
        return found

    def _drop(self, process: DecoderProcess) -> None:
        with self._lock:
            self._all.discard(process)
        process.close()

    def close(self) -> None:
        """End the processes, also busy ones."""
        with self._lock:
            self._is_closed = True
            every = list(self._all)
        for process in every:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in every:
            process.close()


@dataclass(slots=True)
class Budget:
    """The ends of processes that a search has caused, and how long it may still wait for them."""

    ends: int = 0
    wait_s: float = WAIT_S


class SchemaDecoder:
    """Decodes by one schema, for one thread. `expect` announces records, so that they are decoded together. `budget` is
    that of a search with several schemas."""

    def __init__(
        self,
        pool: DecoderPool,
        schema: Schema,
        budget: Budget | None = None,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises SchemaRefused, OSError."""
        self._pool = pool
        self._schema = schema
        self._monotonic_s = monotonic_s
        self._budget = Budget() if budget is None else budget
        self._expected: deque[bytes] = deque()
        self._together_max = _TOGETHER_MIN
        self._ahead: tuple[list[bytes], Future[list[Decoded]]] | None = None
        self._found: dict[bytes, Decoded] = {}
        self.kept_bytes = 0
        try:
            pool.submit(schema, ()).result()
        except DecoderEnded as end:
            raise SchemaRefused(str(end)) from None

    def expect(self, records: Iterable[bytes | None]) -> None:
        """Announces records: these, or some of them, will be decoded in this order."""
        if self._expected:  # not all were decoded
            self._together_max = _TOGETHER_MIN
        self._expected = deque(data for data in records if data is not None)
        if self.kept_bytes > KEPT_BYTES_MAX:
            self.forget()

    def forget(self) -> None:
        """Drops the results of records that were announced before."""
        self._found.clear()
        self.kept_bytes = 0

    def __call__(self, data: bytes) -> str:
        """The record as JSON. Raises ValueError with the reason."""
        if data not in self._found and self._ahead is not None:
            (records, future), self._ahead = self._ahead, None
            self._finish(records, future)
        if data not in self._found:
            self._skip_to(data)
            records = [data, *self._following(len(data))]
            self._finish(records, self._begin(records))
        if self._ahead is None and (records := self._following(0)):
            self._ahead = records, self._begin(records)
        found = self._found[data]
        if not found.is_done:
            raise ValueError(found.text)
        return found.text

    def _skip_to(self, data: bytes) -> None:
        """Drops a record, and those before it, from the expected ones."""
        if data in self._expected:
            while self._expected.popleft() != data:
                pass

    def _following(self, size: int) -> list[bytes]:
        """Removes and returns the records expected next, for an exchange that has `size` bytes already."""
        some: dict[bytes, None] = {}
        while self._expected and len(some) < self._together_max:
            data = self._expected[0]
            size += len(data)
            if size > _TOGETHER_BYTES_MAX and (some or size > len(data)):
                break
            self._expected.popleft()
            if data not in self._found:
                some[data] = None
        self._together_max = min(2 * self._together_max, _TOGETHER_MAX)
        return list(some)

    def _begin(self, records: list[bytes]) -> Future[list[Decoded]]:
        refusal: str | None = None
        if self._budget.ends >= ENDS_MAX:
            refusal = f"not decoded: {ENDS_MAX} earlier records have ended the decoder"
        elif self._budget.wait_s < 0:
            refusal = "not decoded: earlier records have taken too long"
        elif len(records[0]) > DATA_BYTES_MAX:
            refusal = f"more than {DATA_BYTES_MAX >> 20} MiB are not decoded"
        if refusal is None:
            try:
                return self._pool.submit(self._schema, records)
            except OSError as fault:
                refusal = str(fault)
        future: Future[list[Decoded]] = Future()
        future.set_result([Decoded(False, refusal)] * len(records))
        return future

    def _finish(self, records: list[bytes], future: Future[list[Decoded]]) -> None:
        """Wait for the results of an exchange. If the process ends, a new one decodes the remaining records: one by
        one, unless the record that has ended it is known.
        """
        found = self._answers(future, may_be_any=len(records) > 1)
        for data, each in zip(records, found, strict=False):
            self._budget.wait_s += WAIT_S_A_RECORD + WAIT_S_A_BYTE * len(data)
            self._found[data] = each
            self.kept_bytes += len(data) + len(each.text)
        rest = records[len(found) :]
        for some in [rest] if found and rest else [[data] for data in rest]:
            self._finish(some, self._begin(some))

    def _answers(self, future: Future[list[Decoded]], *, may_be_any: bool) -> list[Decoded]:
        """The results for the first records of an exchange; none if any of them may have ended the process."""
        began_s = self._monotonic_s()
        try:
            return future.result()
        except DecoderEnded as end:
            if may_be_any and not end.found:
                return []
            self._budget.ends += 1
            return end.found or [Decoded(False, str(end))]
        except (SchemaRefused, OSError, CancelledError) as fault:
            self._budget.ends += 1
            return [Decoded(False, f"the decoder does not run: {fault}")]
        finally:
            self._budget.wait_s -= self._monotonic_s() - began_s
