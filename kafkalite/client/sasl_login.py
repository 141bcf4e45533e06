"""A login by SASL as requests and responses: SaslHandshake 1, then SaslAuthenticate 1 until both sides are done.

Every broker since Kafka 2.2 has these versions. A session may end (KIP-368): a connection that lasts longer logs in
again before that, at `due_ms`. A login that may block, such as on an authority, runs its steps in a thread.
Source: org.apache.kafka.common.security.authenticator.SaslClientAuthenticator.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any

from kafkalite.common.errors import ErrorCode, Malformed
from kafkalite.common.text import printable
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

if TYPE_CHECKING:
    from kafkalite.security.sasl.client_exchange import Login

_HANDSHAKE_VERSION = _AUTHENTICATE_VERSION = 1
_USED_OF_SESSION = 0.85  # Kafka's: between this and 0.95
_PAUSE_MS = 1_050
NEVER_MS = float("inf")
_SHOWN_CHARS = 300

Conversation = Generator[tuple[Message, int], Any, int]


NOT_ENABLED = "does not enable the SASL mechanism"  # in the text of such a refusal


class LoginRefused(OSError):
    """The broker refuses the login; the text is for the operator."""


class NoCredential(OSError):
    """There is no credential now, and no request was sent; the text is for the operator."""


def conversation(login: Login, host: str) -> Conversation:
    """Yields requests with their versions, is sent the responses, and returns the session's lifetime in ms (0: no
    limit). `host` is the name that was connected to. Raises LoginRefused, NoCredential."""
    try:
        exchange = login.exchange(host)
        token: bytes | None = exchange.first()
    except OSError as fault:
        raise NoCredential(f"there is no credential for {login.mechanism}: {fault}") from None
    except ValueError as fault:
        raise NoCredential(f"the login of {login.name} by {login.mechanism} does not begin: {fault}") from None
    answer = yield SaslHandshakeRequest(mechanism=login.mechanism), _HANDSHAKE_VERSION
    if answer.error_code:
        enabled = printable(", ".join(answer.mechanisms[:8])[:_SHOWN_CHARS]) or "none"
        raise LoginRefused(f"it {NOT_ENABLED} {login.mechanism}; enabled there: {enabled}")
    while token is not None:
        answer = yield SaslAuthenticateRequest(auth_bytes=token), _AUTHENTICATE_VERSION
        if answer.error_code:
            why = printable((answer.error_message or ErrorCode.SASL_AUTHENTICATION_FAILED.name)[:_SHOWN_CHARS])
            raise LoginRefused(f"it refuses the login of {login.name} by {login.mechanism}: {why}")
        try:
            token = exchange.answer(bytes(answer.auth_bytes))
        except (ValueError, OSError) as fault:
            raise LoginRefused(f"the login of {login.name} by {login.mechanism} ends: {fault}") from None
    return int(answer.session_lifetime_ms)


def due_ms(lifetime_ms: int, began_ms: float, ended_ms: float) -> float:
    """The time to log in again for a session whose login took from `began_ms` to `ended_ms`; at least a second later,
    since brokers refuse it before."""
    if lifetime_ms <= 0:
        return NEVER_MS
    return max(began_ms + lifetime_ms * _USED_OF_SESSION, ended_ms + _PAUSE_MS)


async def log_in(login: Login, host: str, ask: Callable[[Message, int], Awaitable[Any]]) -> int:
    """The whole conversation, each request by `ask`. Returns as `conversation`. Raises as that, and as `ask`."""
    talk = conversation(login, host)
    turn = await _next(login, talk, None)
    while not isinstance(turn, int):
        request, version = turn
        try:
            response = await ask(request, version)
        except Malformed as fault:
            raise LoginRefused(f"its response is not valid in SASL: {fault}") from None
        turn = await _next(login, talk, response)
    return turn


def log_in_blocking(login: Login, host: str, ask: Callable[[Message, int], Any]) -> int:
    """`log_in` for a blocking connection."""
    talk = conversation(login, host)
    turn = _advance(talk, None)
    while not isinstance(turn, int):
        turn = _advance(talk, ask(*turn))
    return turn


def _advance(talk: Conversation, response: Any) -> tuple[Message, int] | int:
    """The next request, or what the conversation returns."""
    try:
        return talk.send(response)
    except StopIteration as end:
        return int(end.value)


async def _next(login: Login, talk: Conversation, response: Any) -> tuple[Message, int] | int:
    if not login.may_wait:
        return _advance(talk, response)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[tuple[Message, int] | int] = loop.create_future()

    def complete(turn: tuple[Message, int] | int | None, fault: BaseException | None) -> None:
        if answer.done():
            return  # the caller was cancelled
        if fault is not None:
            answer.set_exception(fault)
        else:
            assert turn is not None
            answer.set_result(turn)

    def run() -> None:
        turn, fault = None, None
        try:
            turn = _advance(talk, response)
        except BaseException as error:
            fault = error
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(complete, turn, fault)

    # a thread that the end of the process does not wait for, as it would for one of a pool
    threading.Thread(target=run, name="kafkalite-login", daemon=True).start()
    return await answer
