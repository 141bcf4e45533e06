"""A login as requests and responses: what the other side refuses, and how its words are shown."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.client.sasl_login import NEVER_MS, LoginRefused, conversation, due_ms, log_in_blocking
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafkalite.security.sasl.client_exchange import login_of

LOGIN = login_of("PLAIN", {"username": "broker", "password": "secret"})


def asked(*answers: Any) -> tuple[int, list[Message]]:
    """The lifetime, and the requests that led to it."""
    requests: list[Message] = []
    left = list(answers)

    def ask(request: Message, version: int) -> Any:
        assert version == 1
        requests.append(request)
        return left.pop(0)

    return log_in_blocking(LOGIN, "host", ask), requests


def test_the_whole_conversation() -> None:
    handshake = SaslHandshakeResponse(mechanisms=["PLAIN"])
    lifetime_ms, (first, second) = asked(handshake, SaslAuthenticateResponse(session_lifetime_ms=1000))
    assert isinstance(first, SaslHandshakeRequest) and first.mechanism == "PLAIN"
    assert isinstance(second, SaslAuthenticateRequest) and second.auth_bytes == b"\0broker\0secret"
    assert lifetime_ms == 1000


def test_a_session_is_renewed_before_its_end_and_not_within_a_second() -> None:
    assert due_ms(10_000, 500, 600) == 9_000
    assert due_ms(1_000, 500, 600) == 1_650
    assert due_ms(0, 500, 600) == NEVER_MS


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        (
            [SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "SCRAM\n256"])],
            r"it does not enable the SASL mechanism PLAIN; enabled there: GSSAPI, SCRAM\\n256",
        ),
        ([SaslHandshakeResponse(error_code=33)], "enabled there: none"),
        (
            [SaslHandshakeResponse(), SaslAuthenticateResponse(error_code=58, error_message="no\r\nERROR forged" * 99)],
            r"it refuses the login of broker by PLAIN: no\\r\\nERROR forged.{0,400}\Z",
        ),
        ([SaslHandshakeResponse(), SaslAuthenticateResponse(error_code=58)], "SASL_AUTHENTICATION_FAILED"),
        ([SaslHandshakeResponse(), SaslAuthenticateResponse(auth_bytes=b"more")], "ends: it asks on after PLAIN"),
    ],
)
def test_refusals(answers: list[Any], fault: str) -> None:
    with pytest.raises(LoginRefused, match=fault) as refusal:
        asked(*answers)
    assert "secret" not in str(refusal.value)


def test_a_conversation_may_be_left() -> None:
    talk = conversation(LOGIN, "host")
    next(talk)
    talk.close()
