"""The cost of a message to the loop before the client is authenticated: a few milliseconds at most, however it is made.

Each is as long as may be read of its mechanism, and as long as sasl.server.max.receive.size lets it come.
"""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress

import pytest

from kafkalite.security.sasl.exchange import AuthenticationFailed, Exchange, PlainExchange
from kafkalite.security.sasl.jwt import BearerToken, Keys, TokenRules, key_id, verify_signed
from kafkalite.security.sasl.oauthbearer import OAuthBearerExchange
from kafkalite.security.sasl.scram import Decoys, ScramExchange
from tests.support.tokens import TokenAuthority, part

SIZES = [16_000, 65_000, 524_000]
CPU_SECONDS_MAX = 0.03
KEYS = Keys(TokenAuthority().jwks)
HEADER = part({"alg": "RS256", "kid": "first"})


def cost_s(make: Callable[[], Exchange], message: bytes) -> float:
    """The least of three times of the processor."""
    times = []
    for _ in range(3):
        exchange = make()
        began_s = time.process_time()
        with suppress(AuthenticationFailed):
            exchange.evaluate(message)
        times.append(time.process_time() - began_s)
    return min(times)


def scram() -> Exchange:
    return ScramExchange("SCRAM-SHA-512", lambda _: None, Decoys(b"").credential)


def in_the_midst() -> Exchange:
    exchange = scram()
    exchange.evaluate(b"n,,n=user,r=abc")
    return exchange


def bearer() -> Exchange:
    def verify(token: str) -> BearerToken:
        key_id(token)
        return verify_signed(token, KEYS, TokenRules(), 0)

    return OAuthBearerExchange(verify, lambda: 0, lambda _: None)


def encoded(text: str) -> bytes:
    return urlsafe_b64encode(text.encode()).rstrip(b"=")


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("filler", [b"r", b",", b"a,", b"=2C", b",r=", b"\xc3\xa4"])
def test_a_first_message_of_scram(filler: bytes, size: int) -> None:
    for front in (b"n,,n=u,r=r", b"n,,n=u,r=r,", b"n,,n=", b"n,,m=", b"n,a="):
        message = front + filler * ((size - len(front)) // len(filler))
        assert cost_s(scram, message) < CPU_SECONDS_MAX, front


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("filler", [b"A", b",p=", b",p=AAAAAAAAAA", b"="])
def test_a_final_message_of_scram(filler: bytes, size: int) -> None:
    for front in (b"c=biws,r=abc", b"c=", b"c=biws,r=abc,p="):
        message = front + filler * ((size - 50) // len(filler)) + b"!"
        assert cost_s(in_the_midst, message) < CPU_SECONDS_MAX, front


@pytest.mark.parametrize("size", SIZES)
def test_a_token_of_plain(size: int) -> None:
    for filler in (b"\0", b"a", b"\xc3\xa4"):
        assert cost_s(lambda: PlainExchange({"user": "secret"}), b"\0user\0" + filler * (size // 2)) < CPU_SECONDS_MAX


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("filler", [b"a=b\x01", b"=2C", b"a", b" ", b"=", b"a.", b"\x01"])
def test_a_first_message_of_oauthbearer(filler: bytes, size: int) -> None:
    for front in (b"n,,\x01", b"n,a=", b"n,,\x01auth=Bearer ", b"n,,\x01auth=Bearer a", b"n,,\x01auth="):
        body = front + filler * ((size - 30) // len(filler))
        for end in (b"", b"\x01\x01", b"!\x01\x01"):
            assert cost_s(bearer, body + end) < CPU_SECONDS_MAX, (front, end)


@pytest.mark.parametrize("size", [16_000, 64_000, 500_000])
def test_a_token_of_oauthbearer(size: int) -> None:
    room = size * 7 // 10
    headers = [
        encoded("[" * room),
        encoded(json.dumps({f"{number}": 0 for number in range(room // 12)})),
        encoded("[" + "1e99999," * (room // 8) + "1]"),
        encoded('{"alg":' + "9" * min(room, 4_300) + "}"),
    ]
    tokens = [header + b".e30.AA" for header in headers]
    tokens += [HEADER.encode() + b"." + b"A" * room + b".AA", HEADER.encode() + b".e30." + b"A" * room]
    for token in tokens:
        assert cost_s(bearer, b"n,,\x01auth=Bearer " + token + b"\x01\x01") < CPU_SECONDS_MAX, token[:40]
