"""The states of an authenticator: what a client may send when, and how each ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.api.sasl_authenticator import AUTHENTICATE_KEY, HANDSHAKE_KEY, SaslAuthenticator, SaslSettings
from kafkalite.common.errors import Disconnect, ErrorCode, Malformed
from kafkalite.network.client_connection import ClientConnection, LastAnswer, Pending
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.metadata import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from kafkalite.security.sasl.exchange import Exchange, PlainExchange, Step
from tests.support.manual_clock import ManualClock

DELAY_MS = 100
SERVED = [b"served"]


class Scene:
    def __init__(self, max_reauth_ms: int = 0, token_bytes_max: int = 1_000, **more: Callable[[], Exchange]) -> None:
        self.clock = ManualClock()
        self.warnings: list[str] = []
        self.limits_lifted = 0
        settings = SaslSettings(
            {"PLAIN": lambda: PlainExchange({"alice": "secret", "bob": "word"}), **more},
            lambda client, frame: SERVED,  # type: ignore[arg-type, return-value]
            self.clock,
            failure_delay_ms=DELAY_MS,
            max_reauth_ms=max_reauth_ms,
            token_bytes_max=token_bytes_max,
            warn=lambda host, kind, text: self.warnings.append(text),
        )
        self.client = ClientConnection("OUTSIDE", "1.2.3.4", 5, "127.0.0.1", 6)
        self.client.authenticator = SaslAuthenticator(settings)
        self.client.lift_limit = self._lift

    def _lift(self) -> None:
        self.limits_lifted += 1

    def give(self, frame: bytes) -> Any:
        handler = self.client.authenticator
        return SERVED if handler is None else handler(self.client, memoryview(bytearray(frame)))

    def ask(self, request: Message, version: int) -> Any:
        answer = self.give(bytes(request_frame(request, version, 7, "me"))[4:])
        return answer if answer is SERVED else self.read(answer, request, version)

    def read(self, answer: Any, request: Message, version: int) -> Any:
        """The answer; of one that comes later, when it comes and ends the connection."""
        if isinstance(answer, Pending):
            ends: list[Exception] = []
            answer.on_done(ends.append, ends.append)
            self.clock.advance(DELAY_MS - 1)
            assert not ends
            self.clock.advance(1)
            (end,) = ends
            assert isinstance(end, LastAnswer)
            answer = end.parts
        data = b"".join(map(bytes, answer))
        correlation_id, response = decode_response(type(request), version, memoryview(data[4:]))
        assert correlation_id == 7
        return response

    def log_in(self, token: bytes = b"\0alice\0secret") -> Any:
        assert self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        return self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)


def test_a_login() -> None:
    scene = Scene()
    assert scene.ask(ApiVersionsRequest(), 0) is SERVED
    answer = scene.log_in()
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert scene.client.principal == "User:alice"
    assert scene.client.authenticator is None and scene.limits_lifted == 1


def test_a_login_by_bare_tokens() -> None:
    scene = Scene()
    assert scene.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).mechanisms == ["PLAIN"]
    assert scene.give(b"\0alice\0secret") == [b"\0\0\0\0"]
    assert scene.client.principal == "User:alice"


class Tickets:
    """As GSSAPI, without Kerberos."""

    def evaluate(self, token: bytes) -> Step:
        return Step(b"offer") if token == b"\x60ticket" else Step(None, "alice")


def test_a_ticket_may_come_without_a_handshake_as_from_clients_of_kafka_09() -> None:
    scene = Scene(GSSAPI=Tickets)
    assert scene.give(b"\x60ticket") == [b"\0\0\0\5offer"]
    assert scene.give(b"choice") is None
    assert scene.client.principal == "User:alice" and scene.limits_lifted == 1


def test_the_last_answer_to_a_ticket_is_empty_in_a_request() -> None:
    scene = Scene(GSSAPI=Tickets)
    assert scene.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1).error_code == 0
    assert scene.ask(SaslAuthenticateRequest(auth_bytes=b"\x60ticket"), 2).auth_bytes == b"offer"
    assert scene.ask(SaslAuthenticateRequest(auth_bytes=b"choice"), 2).auth_bytes == b""
    assert scene.client.principal == "User:alice"


def test_a_wrong_password_is_told_late_and_ends_the_connection() -> None:
    scene = Scene()
    answer = scene.log_in(b"\0alice\0wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert scene.client.principal == "User:ANONYMOUS" and not scene.limits_lifted
    assert scene.warnings and "wrong" not in scene.warnings[0]


def test_a_wrong_bare_token_ends_the_connection_without_bytes() -> None:
    scene = Scene()
    scene.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
    with pytest.raises(Disconnect):
        scene.give(b"\0alice\0wrong")


def test_a_mechanism_that_is_not_enabled_is_told_with_those_that_are() -> None:
    answer = Scene().ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert (answer.error_code, answer.mechanisms) == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN"])


def test_another_request_in_the_middle_is_told_so() -> None:
    scene = Scene()
    scene.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    request = MetadataRequest(topics=[])
    assert scene.ask(request, 9).topics == []


@pytest.mark.parametrize(
    "send",
    [
        lambda scene: scene.ask(MetadataRequest(topics=[]), 9),
        lambda scene: scene.ask(SaslAuthenticateRequest(auth_bytes=b"x"), 2),
        lambda scene: scene.give(b"\0" * 2_000),
        lambda scene: scene.give(b"\x60\x01"),
        lambda scene: scene.give(HANDSHAKE_KEY.to_bytes(2, "big") + b"\0\x02" + bytes(10)),
        lambda scene: scene.give(AUTHENTICATE_KEY.to_bytes(2, "big") + b"\0\x09" + bytes(10)),
    ],
)
def test_what_ends_the_connection_at_once(send: Callable[[Scene], Any]) -> None:
    with pytest.raises((Disconnect, Malformed)):
        send(Scene())


LIFETIME_MS = 10_000


def test_a_session_ends_unless_the_client_proves_itself_again() -> None:
    scene = Scene(LIFETIME_MS)
    assert scene.log_in().session_lifetime_ms == LIFETIME_MS
    request = MetadataRequest(topics=[])
    assert scene.ask(request, 9) is SERVED
    scene.clock.advance(LIFETIME_MS - 1)
    assert scene.ask(request, 9) is SERVED
    assert scene.log_in().session_lifetime_ms == LIFETIME_MS
    scene.clock.advance(LIFETIME_MS - 1)
    assert scene.ask(request, 9) is SERVED
    scene.clock.advance(1)
    with pytest.raises(Disconnect):
        scene.ask(request, 9)


def test_a_session_that_has_ended_may_still_be_renewed() -> None:
    scene = Scene(LIFETIME_MS)
    scene.log_in()
    scene.clock.advance(LIFETIME_MS + 1)
    assert scene.log_in().error_code == 0


def test_a_second_renewal_so_soon_is_for_the_handler() -> None:
    """As in Kafka, whose first renewal may follow the login at once."""
    scene = Scene(LIFETIME_MS)
    scene.log_in()
    assert scene.log_in().session_lifetime_ms == LIFETIME_MS
    scene.clock.advance(999)
    assert scene.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1) is SERVED
    scene.clock.advance(1)
    assert scene.log_in().session_lifetime_ms == LIFETIME_MS


def test_nobody_becomes_somebody_else() -> None:
    scene = Scene(LIFETIME_MS)
    scene.log_in()
    scene.clock.advance(2_000)
    assert scene.log_in(b"\0bob\0word").error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert scene.client.principal == "User:alice"


def test_only_tokens_may_be_long() -> None:
    """Of other requests each element would have to be read, and answered, before anything is proven."""
    many = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 8_000)
    for handshakes in (True, False):
        scene = Scene(token_bytes_max=1 << 20)
        if handshakes:
            scene.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        with pytest.raises(Disconnect, match="a request of 24"):
            scene.ask(many, 1)
    scene = Scene(token_bytes_max=1 << 20)
    answer = scene.log_in(b"\0alice\0" + b"x" * 100_000)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
