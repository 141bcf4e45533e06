"""The template of an answer that repeats except for its correlation id, three numbers and what follows them.

An answer is encoded once with `MARKS` in the place of the numbers: three offsets, or two and a time. The bytes around
the marks are the template; `NUMBERS` packs the numbers of each later answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from kafkalite.common.region import Part

MARKS = (0x6B61666B616C6974, 0x6261736520202020, 0x7374617274202020)
NUMBERS = Struct(">qqq")
BODY_AT = 8  # behind the size and the correlation id of a frame


def cut(frame: Sequence[Part]) -> tuple[bytes, bytes]:
    """The bytes of an encoded answer with `MARKS` between the correlation id and the marks, and those behind them."""
    template = b"".join(frame)  # type: ignore[arg-type]
    at = template.index(NUMBERS.pack(*MARKS))
    return template[BODY_AT:at], template[at + NUMBERS.size :]
