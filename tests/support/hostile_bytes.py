"""Bytes that no honest peer sends, and the work that a decoder does for them.

Work is counted in lines of Python that are executed, so that a test gives the same verdict on any machine. A decoder
is stopped when it exceeds its limit: a loop that would last for hours fails as fast as one that lasts for seconds.
"""

from __future__ import annotations

import struct
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from hypothesis import strategies as st

LINES_AT_LEAST, LINES_A_BYTE = 20_000, 60
"""A decoder executes at most 60 lines for each byte of its input: of the messages of the protocol the costliest take
twenty. What every call may cost has room below."""
MEMORY_AT_LEAST, MEMORY_A_BYTE = 48 << 20, 1_000

_NUMBERS = (-(1 << 63), -(1 << 31), -(1 << 15), -128, -61, -17, -16, -12, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4)
_LARGE = (100, 127, 128, 255, 1_000, 32_767, 65_535, (1 << 31) - 1, (1 << 32) - 1, (1 << 63) - 1)


class TooMuchWork(Exception):
    """A decoder has executed more lines than its input justifies."""


def _extremes() -> list[bytes]:
    found = [struct.pack(code, number) for code in (">b", ">h", ">i", ">q", "<i") for number in _NUMBERS + _LARGE
             if -(1 << 8 * struct.calcsize(code) - 1) <= number < 1 << 8 * struct.calcsize(code) - 1]  # fmt: skip
    found += [b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80" * 4, b"\xfe\xff\xff\xff\x0f", b"\x80\x80\x01"]
    found += [b"[", b'{"a":', b"9" * 30, b"-", b"e999", b"\\ud800", b"null", b'"', b",", b"=", b"\n", b".", b"\0"]
    return sorted(set(found))


EXTREMES = st.sampled_from(_extremes())


@st.composite
def hostile_bytes(draw: st.DrawFn, seeds: Sequence[bytes], size_max: int = 4_096) -> bytes:
    """Bytes of a valid input in which numbers, which may be lengths and counts, are replaced; or any; with a part that
    is repeated up to the limit."""
    data = bytearray(draw(st.one_of(st.sampled_from([*seeds, b""]), st.binary(max_size=200))))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        patch = draw(EXTREMES)
        if draw(st.booleans()):
            data[at : at + len(patch)] = patch
        else:
            data[at:at] = patch
    if draw(st.booleans()):
        start = draw(st.integers(0, len(data)))
        unit = bytes(data[start : start + draw(st.integers(1, 64))]) or draw(EXTREMES)
        data[start:start] = unit * draw(st.sampled_from([2, 10, size_max // len(unit)]))
    if draw(st.booleans()):
        del data[draw(st.integers(0, len(data))) :]
    return bytes(data[:size_max])


def lines_executed(call: Callable[[], Any], limit: int, refusals: tuple[type[Exception], ...] = ()) -> int:
    """The lines of Python that `call` executes. Raises TooMuchWork above `limit`; `refusals` are an answer, too."""
    count = 0

    def local(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count > limit:
                raise TooMuchWork(f"more than {limit} lines, at {frame.f_code.co_qualname}")
        return local

    before = sys.gettrace()
    sys.settrace(lambda frame, event, argument: local)
    try:
        call()
    except refusals:
        pass
    finally:
        sys.settrace(before)
    return count


def check_work(decode: Callable[[bytes], Any], data: bytes, refusals: tuple[type[Exception], ...]) -> int:
    """The lines that a decoder executes for `data`. Raises TooMuchWork, AssertionError for memory, and whatever the
    decoder raises besides its `refusals`."""
    tracemalloc.start()
    try:
        lines = lines_executed(lambda: decode(data), LINES_AT_LEAST + LINES_A_BYTE * len(data), refusals)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_AT_LEAST + MEMORY_A_BYTE * len(data), f"{peak} bytes of memory for {len(data)}"
    return lines
