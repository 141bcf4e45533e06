"""PLAIN: three parts, and one answer for all that is wrong with name and password."""

from __future__ import annotations

import pytest

from kafkalite.security.sasl.exchange import AuthenticationFailed, PlainExchange

USERS = {"alice": "secret", "empty": ""}


@pytest.mark.parametrize("token", [b"\0alice\0secret", b"alice\0alice\0secret"])
def test_a_right_password(token: bytes) -> None:
    assert PlainExchange(USERS).evaluate(token).name == "alice"


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0nobody\0secret", "Invalid username or password"),
        (b"bob\0alice\0secret", "different from username"),
        (b"\0alice\0", "password not specified"),
        (b"\0empty\0", "password not specified"),
        (b"\0\0secret", "username not specified"),
        (b"alice\0secret", "expected 3 tokens"),
        (b"\0alice\0secret\0", "expected 3 tokens"),
        (b"", "expected 3 tokens"),
        (b"\0alice\0\xff", "UTF-8"),
    ],
)
def test_refusals(token: bytes, text: str) -> None:
    with pytest.raises(AuthenticationFailed, match=text):
        PlainExchange(USERS).evaluate(token)
