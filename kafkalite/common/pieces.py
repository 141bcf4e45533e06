"""Large values as text, a piece at a time.

A text of wide characters takes four times the memory of its UTF-8, its escapes up to six times that, and each step
from bytes to a line holds a copy: of a record of 10 MB up to 150 MB.
"""

from __future__ import annotations

import base64
import codecs
from collections.abc import Iterator

PIECE_BYTES = 48 << 10  # a multiple of three, so that pieces of base64 follow one another


def text_pieces(data: bytes) -> Iterator[str]:
    """The text of UTF-8. Raises UnicodeDecodeError in the middle for other bytes."""
    decode = codecs.getincrementaldecoder("utf-8")().decode
    for at in range(0, len(data), PIECE_BYTES):
        yield decode(data[at : at + PIECE_BYTES], at + PIECE_BYTES >= len(data))


def is_text(data: bytes) -> bool:
    """Whether the bytes are UTF-8."""
    try:
        for _ in text_pieces(data):
            pass
    except UnicodeDecodeError:
        return False
    return True


def base64_pieces(data: bytes) -> Iterator[str]:
    for at in range(0, len(data), PIECE_BYTES):
        yield base64.b64encode(data[at : at + PIECE_BYTES]).decode()
