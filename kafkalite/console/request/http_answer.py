"""Bodies of HTTP answers that the console reads from others, bounded in bytes and in time."""

from __future__ import annotations

import http.client
from collections.abc import Callable


def read_body(answer: http.client.HTTPResponse, bytes_max: int, left_s: Callable[[], float]) -> bytes:
    """The whole body. `left_s` is the time that is left for it. Raises OSError, and HTTPException for too many bytes or
    a slow answer."""
    pieces: list[bytes] = []
    size = 0
    while piece := answer.read1(1 << 16):
        size += len(piece)
        if size > bytes_max or left_s() < 0:
            raise http.client.HTTPException("its answer is too large or too slow")
        pieces.append(piece)
    return b"".join(pieces)
