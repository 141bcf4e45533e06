"""A login by SASL as requests and responses: SaslHandshake 1, then SaslAuthenticate 1 until both sides are content.

The versions are known to every broker since Kafka 2.2. A session may end (KIP-368): whoever keeps a connection for long
logs in again on it before, at `due_ms`.
Source: org.apache.kafka.common.security.authenticator.SaslClientAuthenticator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode, Malformed
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from kafkalite.security.sasl.client_exchange import Login

_HANDSHAKE_VERSION = _AUTHENTICATE_VERSION = 1
_USED_OF_SESSION = 0.85  # Kafka's: between this and 0.95
NEVER_MS = float("inf")
_SHOWN_CHARS = 300

Conversation = Generator[tuple[Message, int], Any, int]


class LoginRefused(OSError):
    """One of the things that keep a connection from being made; the text is for the operator."""


def conversation(login: Login) -> Conversation:
    """Yields requests with their versions, is sent the responses, and returns for how many ms the session lasts (0: for
    ever). Raises LoginRefused."""
    answer = yield SaslHandshakeRequest(mechanism=login.mechanism), _HANDSHAKE_VERSION
    if answer.error_code:
        enabled = _shown(", ".join(answer.mechanisms[:8])) or "none"
        raise LoginRefused(f"it does not take the SASL mechanism {login.mechanism}; enabled there: {enabled}")
    exchange = login.exchange()
    token: bytes | None = exchange.first()
    while token is not None:
        answer = yield SaslAuthenticateRequest(auth_bytes=token), _AUTHENTICATE_VERSION
        if answer.error_code:
            why = answer.error_message or ErrorCode.SASL_AUTHENTICATION_FAILED.name
            raise LoginRefused(f"it refuses the login of {login.name} by {login.mechanism}: {_shown(why)}")
        try:
            token = exchange.answer(bytes(answer.auth_bytes))
        except ValueError as fault:
            raise LoginRefused(f"the login of {login.name} by {login.mechanism} ends: {fault}") from None
    return int(answer.session_lifetime_ms)


def _shown(text: str) -> str:
    """Words of the other side, for one line of a log."""
    return "".join(each if each.isprintable() else "?" for each in text[:_SHOWN_CHARS])


def due_ms(lifetime_ms: int, now_ms: float) -> float:
    """When to log in again for a session that began now."""
    return now_ms + lifetime_ms * _USED_OF_SESSION if lifetime_ms > 0 else NEVER_MS


async def log_in(login: Login, ask: Callable[[Message, int], Awaitable[Any]]) -> int:
    """The whole conversation, each request by `ask`. Returns as `conversation`. Raises LoginRefused, and as `ask`."""
    talk = conversation(login)
    request, version = next(talk)
    while True:
        try:
            response = await ask(request, version)
        except Malformed as fault:
            raise LoginRefused(f"it does not answer as SASL has it: {fault}") from None
        try:
            request, version = talk.send(response)
        except StopIteration as end:
            return int(end.value)


def log_in_blocking(login: Login, ask: Callable[[Message, int], Any]) -> int:
    """The same for a connection that waits."""
    talk = conversation(login)
    request, version = next(talk)
    while True:
        try:
            request, version = talk.send(ask(request, version))
        except StopIteration as end:
            return int(end.value)
