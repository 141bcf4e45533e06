"""Splits received bytes into request frames: a 4-byte big-endian size, then that many bytes.

A quiet connection owns no memory. All connections of a processor receive into one slab, and
frames are handed out as views of it: a handler that finishes at once needs no memory of its own.
- An unfinished frame at the end of a turn moves to memory of the connection: only the bytes received.
- A frame above `LARGE_FRAME_BYTES` gets a private mapping of its size and is received into it directly. The kernel
  gives pages to a mapping as they are written, so a header that claims 100 MB takes what arrives, not what it claims.
- A frame whose answer is not complete when the turn ends is *pinned*: the slab continues behind it, and is freed with
the last view of it. So waiting costs no copy either. A size above `socket.request.max.bytes`, or below one, is
`Malformed` before any memory is taken.
Source: org.apache.kafka.common.network.NetworkReceive.
"""

from __future__ import annotations

import mmap
import struct

from kafkalite.common.errors import Malformed

SIZE_BYTES = 4
SLAB_BYTES = 256 * 1024
SLAB_ROOM_BYTES_MIN = 128 * 1024
LARGE_FRAME_BYTES = 64 * 1024
SPARE_BYTES_MAX = 2 * 1024 * 1024
SPARE_COUNT_MAX = 4

_SIZE = struct.Struct(">i")
_read_size = _SIZE.unpack_from
_NOTHING = memoryview(b"")


class FrameMemory:
    """The receive memory that the connections of one processor share.

    `free` is the unused end of the current slab. Invariant: it has at least `SLAB_ROOM_BYTES_MIN` bytes, and nothing in
    it is needed between two turns.
    """

    __slots__ = ("_spare", "free")

    def __init__(self) -> None:
        self.free = memoryview(bytearray(SLAB_BYTES))
        self._spare: list[memoryview] = []

    def pin(self, used_bytes: int) -> None:
        """Leave the first `used_bytes` of the slab to the holders of views of it."""
        self.free = self.free[used_bytes:]
        if len(self.free) < SLAB_ROOM_BYTES_MIN:
            self.free = memoryview(bytearray(SLAB_BYTES))

    def take(self, size: int) -> memoryview:
        """Memory for one large frame, a power of two so that it fits the next one too. OSError if there is none."""
        capacity = 1 << (size - 1).bit_length()
        for i, spare in enumerate(self._spare):
            if len(spare) == capacity:
                return self._spare.pop(i)
        return memoryview(mmap.mmap(-1, capacity, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))

    def give_back(self, memory: memoryview) -> None:
        """Keep a few of the usual sizes: faulting in fresh pages costs more than receiving into warm ones."""
        if len(memory) <= SPARE_BYTES_MAX:
            if len(self._spare) >= SPARE_COUNT_MAX:
                self._spare.pop(0)
            self._spare.append(memory)


class Framer:
    """The frames of one connection. In each turn: `room`, `received`, `next_frame` until None, `end_turn`.

    The bytes not yet handed out are `_data[_position:_end]`. Invariant: between turns `_data` is not the slab.
    """

    __slots__ = ("_data", "_end", "_frame_bytes_max", "_memory", "_own", "_position", "_want")

    def __init__(self, memory: FrameMemory, frame_bytes_max: int) -> None:
        self._memory = memory
        self._frame_bytes_max = frame_bytes_max  # may change between turns
        self._data = _NOTHING
        self._position = 0
        self._end = 0
        self._want = 0  # size with prefix of the large frame that `_data` was taken for, or 0
        self._own = False  # whether `_data` is this connection's memory; else it is the slab's

    @property
    def held_bytes(self) -> int:
        """Bytes received and not yet handed out."""
        return self._end - self._position

    @property
    def partial_request_bytes(self) -> int:
        """The bytes of a large frame that has come in part, without its size, or 0."""
        return self._end - SIZE_BYTES if self._want > self._end else 0

    def limit(self, frame_bytes_max: int) -> None:
        """Refuse frames that are larger, from the next one on."""
        self._frame_bytes_max = frame_bytes_max

    def room(self) -> memoryview:
        """Where to receive to; never empty. End the turn with `end_turn` even if nothing came."""
        if self._want:
            return self._data[self._end : self._want]
        free = self._memory.free
        left = self._end - self._position
        if left:
            free[:left] = self._data[self._position : self._end]
        self._data = free
        self._position = 0
        self._end = left
        self._own = False
        return free[left:] if left else free

    def received(self, count: int) -> None:
        """`count` bytes were received into `room`."""
        self._end += count

    def next_frame(self) -> memoryview | None:
        """The next whole frame without its size, or None if it is not all here. Malformed if its size is impossible."""
        position = self._position
        end = self._end
        if end - position < SIZE_BYTES:
            return None
        (size,) = _read_size(self._data, position)
        if not 0 < size <= self._frame_bytes_max:
            raise Malformed(self._size_fault(size))
        start = position + SIZE_BYTES
        stop = start + size
        if stop > end:
            return None
        self._position = stop
        return self._data[start:stop]

    def end_turn(self, pinned: bool) -> None:
        """End the turn. Keeps what is unfinished, and what was handed out if `pinned`: an answer is not complete."""
        left = self._end - self._position
        if left and self._own:
            if self._want or not self._is_large_and_partial(left):
                return
        elif not left and not self._own and not pinned:  # the usual case
            self._data = _NOTHING
            return
        data, position, want, own = self._data, self._position, self._want, self._own
        self._keep(data[position : self._end])
        if pinned:
            if not own:
                self._memory.pin(position)
        elif want:
            self._memory.give_back(data)

    def drop(self) -> None:
        """The connection is closed: release its memory now, and not when the garbage collector runs."""
        self._data = _NOTHING
        self._position = self._end = self._want = 0
        self._own = False

    def _keep(self, rest: memoryview) -> None:
        """Move `rest` to memory of our own."""
        left = len(rest)
        self._want = 0
        if not left:
            self._data = _NOTHING
        elif self._is_large_and_partial(left):
            self._want = _read_size(rest, 0)[0] + SIZE_BYTES
            self._data = self._memory.take(self._want)
            self._data[:left] = rest
        else:
            self._data = memoryview(bytearray(rest))
        self._position = 0
        self._end = left
        self._own = bool(left)

    def _is_large_and_partial(self, left: int) -> bool:
        if left < SIZE_BYTES:
            return False
        size: int = _read_size(self._data, self._position)[0]
        return max(left, LARGE_FRAME_BYTES) < size + SIZE_BYTES and size <= self._frame_bytes_max

    def _size_fault(self, size: int) -> str:
        head = bytes(self._data[self._position : self._position + SIZE_BYTES])
        if head[:2] == b"\x16\x03":
            return "the client speaks TLS, this listener does not: set security.protocol=PLAINTEXT in the client"
        if head in (b"GET ", b"POST", b"HEAD", b"PUT "):
            return "the client speaks HTTP, this is a Kafka listener"
        if size <= 0:
            return f"a request of {size} bytes"
        return f"a request of {size} bytes, more than socket.request.max.bytes={self._frame_bytes_max}"
