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
BOMBS = (
    b"\xdd\xff\xff\xff\xff",  # MessagePack: a list of 2^32 items
    b"\x91" * 50_000 + b"\0",  # lists inside each other
    b"\x9b\x00\x00\x01\x00\x00\x00\x00\x00",  # CBOR: a list of 2^40 items
    b"\x5b\x00\x00\x01\x00\x00\x00\x00\x00",  # bytes of that many
    b"\x81" * 50_000 + b"\0",
    b"\xd8\x1c\x81\xd8\x1d\0",  # a list that holds itself
    b"\x80\x80\x80\x80\x80\x80\x01\0",  # Avro: a block of 2^40 items
    b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\2" * 50_000,  # a record that holds itself
    b"\x0a\xff\xff\xff\xff\x07",  # Protobuf: a field of 2 GiB
    b"\x0b" * 50_000,  # groups inside each other
)
RIGHT = (
    b"\x82\xa1a\x01\xa1b\x92\x01\xc0",
    b"\xa2aa\x01ab\x82\x01\xf6",
    b"\x08\x06\x0cfoo bar",
    b"\x0a\x03abc\x10\x05",
)
_LARGE_BYTES = 10_000_000
_LARGE_EVERY, _LARGE_AT = 2_000, 400


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
        if number % _LARGE_EVERY == _LARGE_AT:
            value = (value * (_LARGE_BYTES // max(1, len(value)) + 1))[:_LARGE_BYTES]
        name = _script(chance) + chr(chance.choice([0, 7, 27, 0x202E, 0x2028, 0xFEFF]))
        yield HostileRecord(_value(chance)[:2_000], value, (name, _value(chance)[:200]))


def _value(chance: random.Random) -> bytes:
    kind = chance.randrange(12)
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
    if kind == 8:
        return chance.choice(BOMBS)
    if kind == 9:  # of a schema registry: bombs, and any bytes, by one of its first schemas
        data = chance.choice(BOMBS) if chance.random() < 0.3 else bytes(chance.randrange(256) for _ in range(30))
        return b"\0" + chance.randrange(1, 12).to_bytes(4, "big") + data
    if kind == 10:  # nearly right MessagePack, CBOR, Avro, Protobuf
        right = bytearray(chance.choice(RIGHT))
        right[chance.randrange(len(right))] = chance.randrange(256)
        return bytes(right)
    if kind == 6:  # as if by a schema registry
        return b"\0" + chance.randrange(1 << 32).to_bytes(4, "big") + bytes(chance.randrange(256) for _ in range(40))
    if kind == 7:  # what terminals and readers of text take for commands
        return ("\x1b]0;hurt\x07\x1b[2J\u202e\u2066\u2028\x00\r\n\t" + _script(chance)).encode()
    return _script(chance).encode("utf-16") + b"\x00" * chance.randrange(30)


def _script(chance: random.Random) -> str:
    return chance.choice(SCRIPTS) + chance.choice(["", "\0", "%00", "\u0000<!--", "]]>"])
