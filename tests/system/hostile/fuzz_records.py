"""Bytes for a listener with TLS that are no whole handshake: cut, changed and enormous ones, and other protocols."""

from __future__ import annotations

import contextlib
import random
import ssl
from functools import cache

RECORD_BYTES_MAX = 16_384
HELLO_BYTES_MAX = 131_396  # the largest message of a handshake that OpenSSL takes from a client
_HANDSHAKE, _ALERT, _DATA, _HEARTBEAT = 0x16, 0x15, 0x17, 0x18


@cache
def client_hello() -> bytes:
    """The first record of a good client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def record(kind: int, body: bytes, version: bytes = b"\x03\x01") -> bytes:
    return bytes((kind,)) + version + len(body).to_bytes(2, "big") + body


def endless_hello(size: int = HELLO_BYTES_MAX) -> bytes:
    """The beginning of a ClientHello that claims to be as large as it may be, in its first record."""
    return record(_HANDSHAKE, b"\x01" + size.to_bytes(3, "big") + client_hello()[9:200])


def hellos_and_others(dice: random.Random) -> bytes:
    hello = client_hello()
    way = dice.randrange(14)
    if way == 0:
        return hello[: dice.randrange(len(hello))]
    if way in (1, 2):
        body = bytearray(hello)
        for _ in range(dice.choice((1, 1, 3, 20))):
            body[dice.randrange(len(body))] ^= 1 << dice.randrange(8)
        return bytes(body)
    if way == 3:
        return hello * dice.choice((2, 3, 50))
    if way == 4:
        return endless_hello(dice.choice((HELLO_BYTES_MAX, 0xFFFFFF, 0, 1)))
    if way == 5:
        return bytes((_HANDSHAKE, 3, dice.randrange(5))) + b"\xff\xff" + dice.randbytes(dice.randrange(70_000))
    if way == 6:
        return record(_ALERT, bytes((dice.randrange(3), dice.randrange(256)))) * dice.choice((1, 10, 1_000))
    if way == 7:
        return record(_HANDSHAKE, b"") * dice.choice((1, 40, 5_000)) + hello
    if way == 8:
        return record(_HEARTBEAT, b"\x01\xff\xff" + bytes(16)) + record(_DATA, dice.randbytes(100))
    if way == 9:
        return b"\x80\x2e\x01\0\2\0\x15\0\0\0\x10" + dice.randbytes(40)  # SSL 2
    if way == 10:
        return dice.choice(
            (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\0")
        )
    if way == 11:
        return b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff"  # ApiVersions, without TLS
    if way == 12:  # a good one in records of one byte
        return b"".join(record(_HANDSHAKE, hello[5 + at : 6 + at]) for at in range(min(200, len(hello) - 5)))
    return bytes((dice.choice((_HANDSHAKE, dice.randrange(256))),)) + dice.randbytes(dice.randrange(1, 600))
