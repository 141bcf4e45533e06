"""The client's first message of OAUTHBEARER, and how a refusal is told."""

from __future__ import annotations

import pytest

from kafkalite.security.sasl.exchange import AuthenticationFailed, Step
from kafkalite.security.sasl.jwt import BearerToken, TokenRefused
from kafkalite.security.sasl.oauthbearer import OAuthBearerExchange

NOW_MS = 1_000_000.0


class Judge:
    def __init__(self) -> None:
        self.told: list[str] = []

    def verify(self, token: str) -> BearerToken:
        if token != "good.token":
            raise TokenRefused(f"it is {token}")
        return BearerToken("alice", NOW_MS + 5_000)

    def exchange(self) -> OAuthBearerExchange:
        return OAuthBearerExchange(self.verify, lambda: NOW_MS, self.told.append)


@pytest.mark.parametrize(
    "message",
    [
        b"n,,\x01auth=Bearer good.token\x01\x01",
        b"n,a=alice,\x01auth=bearer good.token\x01\x01",
        b"n,,\x01host=here\x01auth=BEARER  good.token\x01port=9092\x01\x01",
    ],
)
def test_a_good_token(message: bytes) -> None:
    step = Judge().exchange().evaluate(message)
    assert step == Step(b"", "alice", 5_000)


def test_a_wrong_authorization_id_fits_into_an_answer_and_a_line() -> None:
    wanted = b"bob\r\nfake line \x1b[0m" + b"y" * 40_000
    with pytest.raises(AuthenticationFailed, match=r"id \(bob\\r\\nfake line ") as failure:
        Judge().exchange().evaluate(b"n,a=" + wanted + b",\x01auth=Bearer good.token\x01\x01")
    assert len(str(failure.value)) < 500 and str(failure.value).isprintable()


@pytest.mark.parametrize("answer", [b"\x01", b"", b"\x01\x01", b"n,,\x01auth=Bearer good.token\x01\x01"])
def test_a_refused_token_is_told_in_two_steps(answer: bytes) -> None:
    judge = Judge()
    exchange = judge.exchange()
    assert exchange.evaluate(b"n,,\x01auth=Bearer bad\x01\x01") == Step(b'{"status":"invalid_token"}', None, None)
    assert judge.told == ["it is bad"]
    with pytest.raises(AuthenticationFailed, match="invalid_token" if answer == b"\x01" else "invalid credentials"):
        exchange.evaluate(answer)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"y,,\x01auth=Bearer good.token\x01\x01",
        b"p=tls-unique,,\x01auth=Bearer good.token\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01",
        b"n,,\x01auth=Basic good.token\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01auth=Bearer good token\x01\x01",
        b"n,,\x01host=here\x01\x01",
        b"n,,\x01auth=Bearer good.token\x01\x01\xff",
        b"n,,\x01auth=Bearer good.token\x01\x01more",
    ],
)
def test_what_is_no_first_message(message: bytes) -> None:
    judge = Judge()
    with pytest.raises(AuthenticationFailed, match="invalid credentials with SASL mechanism OAUTHBEARER"):
        judge.exchange().evaluate(message)
    assert not judge.told


def test_nobody_is_somebody_else() -> None:
    with pytest.raises(AuthenticationFailed, match="different from the token's principal name"):
        Judge().exchange().evaluate(b"n,a=admin,\x01auth=Bearer good.token\x01\x01")
