from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import Malformed
from kafkalite.network.framing import LARGE_FRAME_BYTES, SLAB_BYTES, FrameMemory, Framer

FRAME_BYTES_MAX = 100 * 1024 * 1024


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def receive(framer: Framer, data: bytes) -> int:
    """As much of `data` as the framer has room for."""
    room = framer.room()
    count = min(len(room), len(data))
    room[:count] = data[:count]
    framer.received(count)
    return count


payloads = st.one_of(
    st.binary(min_size=1, max_size=40),
    st.builds(
        lambda size, seed: bytes([seed]) * size,
        st.integers(LARGE_FRAME_BYTES - 10, LARGE_FRAME_BYTES + 10) | st.integers(1, 3 * SLAB_BYTES),
        st.integers(0, 255),
    ),
)
sizes = st.integers(1, 12) | st.integers(1, 2 * SLAB_BYTES)


@given(st.lists(payloads, min_size=1, max_size=8), st.lists(sizes, min_size=1, max_size=30), st.lists(st.booleans()))
def test_any_split_into_reads_gives_the_same_frames_and_pinned_ones_stay(
    stream: list[bytes], reads: list[int], waits: list[bool]
) -> None:
    memory = FrameMemory()
    framer = Framer(memory, FRAME_BYTES_MAX)
    neighbour = Framer(memory, FRAME_BYTES_MAX)  # uses the same slab between our turns
    data = b"".join(map(framed, stream))
    seen: list[bytes] = []
    pinned: list[tuple[memoryview, bytes]] = []
    position = turn = 0
    while position < len(data):
        read = reads[turn % len(reads)] if turn < 60 else len(data)
        position += receive(framer, data[position : position + read])
        frames = []
        while (got := framer.next_frame()) is not None:
            assert not got.readonly
            frames.append(got)
            seen.append(bytes(got))
        waiting = bool(waits) and waits[turn % len(waits)]
        if waiting:
            pinned += [(got, bytes(got)) for got in frames]
        framer.end_turn(waiting)
        receive(neighbour, b"\0\0\0\x04\xee\xee\xee\xee" * 10)
        while neighbour.next_frame() is not None:
            pass
        neighbour.end_turn(False)
        turn += 1
    assert seen == stream
    assert framer.held_bytes == 0
    assert all(bytes(got) == copy for got, copy in pinned)


@settings(deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=50), st.data())
def test_frames_held_while_the_connection_is_busy_come_out_in_order(stream: list[bytes], data: st.DataObject) -> None:
    framer = Framer(FrameMemory(), FRAME_BYTES_MAX)
    rest = b"".join(map(framed, stream))
    seen: list[bytes] = []
    while rest or framer.held_bytes:
        if rest:
            rest = rest[receive(framer, rest[: data.draw(st.integers(1, 200))]) :]
        for _ in range(data.draw(st.integers(0, 3)) if rest else len(stream)):
            got = framer.next_frame()
            if got is not None:
                seen.append(bytes(got))
        framer.end_turn(data.draw(st.booleans()))
    assert seen == stream


@pytest.mark.parametrize("size", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_an_impossible_size_is_refused_before_memory_is_taken(size: int) -> None:
    class NoMemory(FrameMemory):
        def take(self, size: int) -> memoryview:
            raise AssertionError(size)

    framer = Framer(NoMemory(), 1000)
    receive(framer, struct.pack(">i", size) + b"abc")
    framer.end_turn(False)  # as a busy connection does, which looks at the frame later
    with pytest.raises(Malformed):
        framer.next_frame()


def test_a_wrong_protocol_is_named() -> None:
    for head, name in ((b"GET / HTTP/1.1\r\n", "HTTP"), (b"\x16\x03\x01\x02\x00\x01", "TLS")):
        framer = Framer(FrameMemory(), FRAME_BYTES_MAX)
        receive(framer, head)
        with pytest.raises(Malformed, match=name):
            framer.next_frame()


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def test_a_header_that_claims_100_mb_takes_what_arrives() -> None:
    memory = FrameMemory()
    before = resident_bytes()
    framers = [Framer(memory, FRAME_BYTES_MAX) for _ in range(20)]
    for framer in framers:
        receive(framer, struct.pack(">i", FRAME_BYTES_MAX) + b"x" * 10)
        assert framer.next_frame() is None
        framer.end_turn(False)
        receive(framer, b"y" * 100_000)
        framer.end_turn(False)
        assert framer.held_bytes == 100_014
    assert resident_bytes() - before < 16 * 1024 * 1024


def test_memory_of_large_frames_is_used_again_when_their_answers_are_complete() -> None:
    memory = FrameMemory()
    framer = Framer(memory, FRAME_BYTES_MAX)
    data = framed(b"z" * 200_000)

    def next_large(pinned: bool) -> memoryview:
        position, got = 0, None
        while got is None:
            position += receive(framer, data[position : position + 70_000])
            got = framer.next_frame()
            if got is None:
                framer.end_turn(False)
        framer.end_turn(pinned)
        return got

    first = next_large(False)
    second = next_large(True)
    third = next_large(False)
    assert first.obj is second.obj
    assert third.obj is not second.obj
