"""Records that nobody wrote with good intent, any number of them, by a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

SCRIPTS = (
    "<script>document.title='hurt'</script>",
    "<img src=x onerror=\"document.title='hurt'\">",
    "<svg onload=document.title='hurt'>",
    '"><iframe srcdoc="<script>parent.document.title=\'hurt\'</script>">',
    "javascript:document.title='hurt'",
    "{{constructor.constructor('document.title=1')()}}",
    "</textarea></title></style><base href=//elsewhere.example/>",
    '<link rel=stylesheet href="//elsewhere.example/a.css"><meta http-equiv=refresh content="0;url=//else.example">',
    '<a href="data:text/html,<script>alert(1)</script>">click</a>',
    '{"__proto__": {"polluted": 1}, "constructor": {"prototype": {"polluted": 1}}}',
)
_LARGE_BYTES = 10_000_000
_LARGE_EVERY = 2_000


class HostileRecord(NamedTuple):
    """The records to produce."""

    key: bytes
    value: bytes
    header: tuple[str, bytes]


def hostile_records(count: int, seed: int) -> Iterator[HostileRecord]:
    """Of `count` records one in 2,000 has 10 MB."""
    chance = random.Random(seed)
    for number in range(count):
        value = _value(chance)
        if number % _LARGE_EVERY == _LARGE_EVERY - 1:
            value = (value * (_LARGE_BYTES // max(1, len(value)) + 1))[:_LARGE_BYTES]
        name = _script(chance) + chr(chance.choice([0, 7, 27, 0x202E, 0x2028, 0xFEFF]))
        yield HostileRecord(_value(chance)[:2_000], value, (name, _value(chance)[:200]))


def _value(chance: random.Random) -> bytes:
    kind = chance.randrange(9)
    if kind == 0:
        return _script(chance).encode()
    if kind == 1:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(1, 300)))
    if kind == 2:  # UTF-8 that is cut, overlong, or of surrogates
        return chance.choice([b"\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"\xff\xfe"]) * 20
    if kind == 3:
        depth = chance.choice([10, 200, 5_000])
        return chance.choice([b"[", b'{"a":']) * depth + chance.choice([b"", b"1"])
    if kind == 4:
        return json.dumps({_script(chance): [_script(chance), None, 1e308, {"": chance.random()}]}).encode()
    if kind == 5:  # numbers and words that are no JSON, or too large for it
        return chance.choice([b"NaN", b"1e999999", b"-" + b"9" * 400, b'"\\ud800"', b'{"a": Infinity, "a": 2}', b"nul"])
    if kind == 6:  # as if by a schema registry
        return b"\0" + chance.randrange(1 << 32).to_bytes(4, "big") + bytes(chance.randrange(256) for _ in range(40))
    if kind == 7:  # what terminals and readers of text take for commands
        return ("\x1b]0;hurt\x07\x1b[2J\u202e\u2066\u2028\x00\r\n\t" + _script(chance)).encode()
    return _script(chance).encode("utf-16") + b"\x00" * chance.randrange(30)


def _script(chance: random.Random) -> str:
    return chance.choice(SCRIPTS) + chance.choice(["", "\0", "%00", "\u0000<!--", "]]>"])
