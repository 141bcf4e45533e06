"""The process that decodes. It ends with its standard input, so with the console, however that ended.

It runs third-party code in C on arbitrary bytes, which may exhaust the stack or memory. So there are limits of memory
and, for each exchange, of time, at which the kernel ends it, even inside C code.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterator
from functools import lru_cache

from kafkalite.common.heap import bound_heap, trim_memory
from kafkalite.console.decoders import avro, expression, protobuf, self_describing, wire

_STDIN, _STDOUT = 0, 1
_REASON_CHARS_MAX = 200
_SMALL_BYTES = 16 << 10
_TRIMMED_BYTES = 256 << 10
_COMPILE = {
    wire.AVRO: avro.compile_schema,
    wire.PROTOBUF: protobuf.compile_schema,
    wire.MSGPACK: self_describing.compile_msgpack,
    wire.CBOR: self_describing.compile_cbor,
    wire.CEL: expression.compile_expression,
}


@lru_cache(maxsize=16)
def _compiled(schema: wire.Schema) -> Callable[[bytes], str]:
    return _COMPILE[schema.kind](schema.text, schema.message)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from the terminal, meant for the console
    bound_heap()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ValueError, OSError):  # a lower one may be set, and some systems have none
        resource.setrlimit(resource.RLIMIT_AS, (wire.MEMORY_BYTES_MAX, wire.MEMORY_BYTES_MAX))
    with contextlib.suppress(BrokenPipeError):
        while head := _read(wire.REQUEST.size):
            head_bytes, body_bytes = wire.REQUEST.unpack(head)
            if _answer(*wire.decode_request(_read(head_bytes), _read(body_bytes))) > _TRIMMED_BYTES:
                trim_memory()  # or an idle process would keep what its largest record took


def _answer(schema: wire.Schema, records: list[bytes]) -> int:
    """Returns the size of the largest record, decoded or not."""
    frames: list[bytes] = []
    try:
        limit_s = wire.exchange_cpu_s(sum(map(len, records)))
        signal.setitimer(signal.ITIMER_PROF, limit_s)  # SIGPROF ends a process that does not handle it
        decode = _compiled(schema)
        frames.append(wire.encode_frame(wire.DONE, ""))
        for data in records:
            try:
                frames.append(wire.encode_frame(wire.DONE, decode(data)))
            except MemoryError:
                raise
            except Exception as fault:
                frames.append(_fault_frame(fault))
    except MemoryError:
        frames.append(
            wire.encode_frame(wire.LAST_FAULT, f"it needs more than {wire.MEMORY_BYTES_MAX >> 20} MiB of memory")
        )
    except Exception as fault:  # the libraries' own errors have no common base
        frames.append(_fault_frame(fault))
    signal.setitimer(signal.ITIMER_PROF, 0)
    largest = max(map(len, (*records, *frames)), default=0)
    for frame in _joined(frames):
        _write(frame)
    return largest


def _fault_frame(fault: Exception) -> bytes:
    return wire.encode_frame(wire.FAULT, (str(fault) or type(fault).__name__)[:_REASON_CHARS_MAX])


def _joined(frames: list[bytes]) -> Iterator[bytes]:
    """Joins small frames, and passes large ones as they are: joined they might exceed the memory."""
    small: list[bytes] = []
    for frame in frames:
        small.append(frame)
        if len(frame) > _SMALL_BYTES:
            yield b"".join(small)
            small = []
    yield b"".join(small)


def _read(size: int) -> bytes:
    """Reads `size` bytes; fewer only at the end."""
    found = bytearray()
    while len(found) < size and (data := os.read(_STDIN, min(size - len(found), 1 << 20))):
        found += data
    return bytes(found)


def _write(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(_STDOUT, view) :]


if __name__ == "__main__":
    main()
