"""The console's side of one decoder process."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from kafkalite.common.errors import Malformed
from kafkalite.common.forks import child_environment
from kafkalite.console.decoders.limits import ANSWER_S_MAX, EXCHANGE_CPU_S
from kafkalite.console.decoders.wire import DONE, LAST_FAULT, Decoded, Frames, Schema, encode_request

_PIPE_BYTES = 1 << 20  # an exchange in one piece: the usual 64 KiB take a turn of both processes each
_END_S = 5.0
_REASONS = {
    signal.SIGSEGV: "it is nested too deeply",
    signal.SIGBUS: "it is nested too deeply",
    signal.SIGPROF: f"it takes more than {EXCHANGE_CPU_S:g} s",
}


class SchemaRefused(Exception):
    """The reason."""


class DecoderEnded(Exception):
    """The process has ended, with the reason. `found`: the records up to the one that has ended it; none if it is not
    known which one has."""

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
        """Each of the records. Raises SchemaRefused; DecoderEnded, after which there is only `close`. Without records
        the schema alone is tried, which is at fault then."""
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
        """Some frames, one at least. Raises EOFError, Malformed, TimeoutError."""
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
        """Why the process has ended, or has to end."""
        if isinstance(fault, Malformed | TimeoutError):
            self._process.kill()
            return f"the decoder {'does not answer' if isinstance(fault, TimeoutError) else 'makes no sense'}"
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
        """From any thread: `decode` raises DecoderEnded."""
        self._process.kill()

    def close(self) -> None:
        """End it, and wait for its end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.kill()  # it holds nothing that could be lost
        self._process.wait()


def _decoded(frames: Sequence[tuple[int, str]]) -> list[Decoded]:
    """Of the records; the first frame is the schema's."""
    return [Decoded(status == DONE, text) for status, text in frames[1:]]
