"""Text that is safe on a terminal, sizes and numbers as text, and JSON from outside.

Groups, clients, topics, hosts, principals and the errors of brokers are text that other parties choose. A control
character in it moves the cursor or changes colours, a line break forges a line, a bidirectional override shows
letters in another order than they have. `printable` escapes these, `read_json` has one kind of error for any fault.
"""

from __future__ import annotations

import base64
import codecs
import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NoReturn

# C0 and C1, DEL, marks and overrides of the direction of writing, separators of lines, halves of characters
_UNSAFE = "[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"  # 1 ms to compile


def printable(text: str, keep: str = "") -> str:
    """`text` with \\x1b, \\n, \\u202e and so on in the place of characters that control a terminal, except those in
    `keep`. Text that was not UTF-8 (surrogateescape) shows its bytes as \\udcXX."""
    if text.isprintable():
        return text
    return re.sub(_UNSAFE, lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def safe_json(text: str) -> str:
    """JSON with these characters as \\uXXXX, which means the same to a parser."""
    return text if text.isprintable() else re.sub(_UNSAFE, lambda found: f"\\u{ord(found[0]):04x}", text)


def read_json(text: str | bytes | bytearray, *, strict: bool = False, distinct: bool = False) -> Any:
    """The value of a JSON text; bytes are UTF-8, 16 or 32. With `strict` NaN and infinities, which are no JSON, are
    refused, with `distinct` objects that have a name twice. Raises ValueError, also for what is nested too deeply."""
    import json  # a start needs none of it

    try:
        if isinstance(text, str) and text[:1] != "\ufeff":
            return _decoder(strict, distinct).decode(text)
        return json.loads(text, parse_constant=_CONSTANTS[strict], object_pairs_hook=_PAIRS[distinct])
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


@cache
def _decoder(strict: bool, distinct: bool) -> Any:
    """`json.loads` makes a decoder for each text that needs another than the default: half the time of a small one."""
    import json

    return json.JSONDecoder(parse_constant=_CONSTANTS[strict], object_pairs_hook=_PAIRS[distinct])


def _distinct(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return found


_CONSTANTS, _PAIRS = (None, _refuse_constant), (None, _distinct)


def java_double(value: float) -> str:
    """A number as Java prints it: 0.5, but 1.0E7 and 1.0E-4. Source: java.lang.Double.toString."""
    text = repr(value)
    if not value or 1e-3 <= abs(value) < 1e7:
        return text
    digits = text.lstrip("-").partition("e")[0].replace(".", "").strip("0")
    mantissa, _, exponent = f"{value:.{max(1, len(digits) - 1)}e}".partition("e")
    return f"{mantissa}E{int(exponent)}"


def java_order(text: str) -> bytes:
    """A key that sorts texts as Java does: by UTF-16 code units, where characters beyond the BMP come before U+E000."""
    return text.encode("utf-16-be", "surrogatepass")


_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count_bytes: float) -> str:
    """`1536` as `1.5 KiB`; a number below zero, of what has shrunk, likewise."""
    size, unit = float(count_bytes), 0
    while abs(size) >= 1024 and unit < len(_SIZE_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:,.0f} B" if unit == 0 else f"{size:,.1f} {_SIZE_UNITS[unit]}"


# -- large values, a piece at a time: a text of wide characters takes four times the memory of its UTF-8, its escapes up
# to six times that, and each step from bytes to a line holds a copy: of a record of 10 MB up to 150 MB

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
