"""The authenticator of one connection to a SASL listener: gets its frames until it is authenticated.

The three forms on the wire: SaslHandshake 1 with SaslAuthenticate requests; SaslHandshake 0 with bare tokens; bare
tokens from the beginning (GSSAPI of Kafka 0.9's clients). A client may ask ApiVersions before. A failure is answered
after connection.failed.authentication.delay.ms, so that guesses and endless reconnects are slow. With
connections.max.reauth.ms the client authenticates again on the same connection, by a new handshake; after that time any
other request closes the connection.
Source: org.apache.kafka.common.security.authenticator.SaslServerAuthenticator, KIP-43, KIP-152, KIP-368.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto

from kafkalite.api.request.error_answer import error_answer
from kafkalite.api.request.request_context import RequestContext
from kafkalite.common.clock import Clock
from kafkalite.common.errors import Disconnect, ErrorCode
from kafkalite.common.region import Part
from kafkalite.network.client_connection import Answer, ClientConnection, Handler, LastAnswer, Pending
from kafkalite.protocol.apis import APIS, SERVED
from kafkalite.protocol.codec.codec import decoder
from kafkalite.protocol.header import RequestHeader, decode_request_header, response_frame
from kafkalite.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafkalite.security.principal import user
from kafkalite.security.sasl import gssapi
from kafkalite.security.sasl.exchange import AuthenticationFailed, Exchange, Step

HANDSHAKE_KEY, API_VERSIONS_KEY, AUTHENTICATE_KEY = 17, 18, 36
_AUTHENTICATE = AUTHENTICATE_KEY.to_bytes(2, "big")
_MIN_BETWEEN_MS = 1_000  # two re-authentications of one connection
_SIZE_BYTES = 4
_REQUEST_BYTES_MAX = 8 * 1024
"""Of a request that is not SaslAuthenticate. Half a MiB of elements would take a second to read and to answer."""
_GSS_TOKEN = b"\x60"
"""The first byte of a first token; no API has a key that begins so."""


class SaslSettings:
    """Shared by the authenticators of a listener. `mechanisms` makes an exchange for each mechanism that is enabled.
    `max_reauth_ms` is 0 without re-authentication."""

    __slots__ = ("clock", "failure_delay_ms", "max_reauth_ms", "mechanisms", "serve", "token_bytes_max", "warn")

    def __init__(
        self,
        mechanisms: Mapping[str, Callable[[], Exchange]],
        serve: Handler,
        clock: Clock,
        *,
        failure_delay_ms: int,
        max_reauth_ms: int,
        token_bytes_max: int,
        warn: Callable[[str, str, str], None],
    ) -> None:
        self.mechanisms = mechanisms
        self.serve = serve
        self.clock = clock
        self.failure_delay_ms = failure_delay_ms
        self.max_reauth_ms = max_reauth_ms
        self.token_bytes_max = token_bytes_max
        self.warn = warn


class _State(Enum):
    BEGINNING = auto()
    TOKENS = auto()  # bare ones
    REQUESTS = auto()  # SaslAuthenticate
    COMPLETE = auto()


class SaslAuthenticator:
    """Called with each frame of its connection."""

    __slots__ = ("_again_ms", "_exchange", "_expires_ms", "_mechanism", "_settings", "_state")

    def __init__(self, settings: SaslSettings) -> None:
        self._settings = settings
        self._state = _State.BEGINNING
        self._exchange: Exchange | None = None
        self._mechanism = ""
        self._again_ms: float | None = None  # start of its re-authentication
        self._expires_ms = 0  # 0: never

    def __call__(self, client: ClientConnection, frame: memoryview) -> Answer:
        if self._state is _State.COMPLETE:
            return self._authenticated(client, frame)
        if len(frame) > self._settings.token_bytes_max:
            raise Disconnect(f"{len(frame)} bytes before it is authenticated: more than sasl.server.max.receive.size")
        if self._state is _State.BEGINNING and not self._mechanism and frame[:1] == _GSS_TOKEN:
            self._begin_bare(client)
        if self._state is _State.TOKENS:
            return self._bare_token(client, bytes(frame))
        if len(frame) > _REQUEST_BYTES_MAX and frame[:2] != _AUTHENTICATE:
            raise Disconnect(f"a request of {len(frame)} bytes before it is authenticated")
        header, position = decode_request_header(frame)
        if header.api_key == HANDSHAKE_KEY and self._state is _State.BEGINNING:
            return self._handshake(client, header, frame, position)
        if header.api_key == AUTHENTICATE_KEY and self._state is _State.REQUESTS:
            return self._authenticate(client, header, frame, position)
        if header.api_key == API_VERSIONS_KEY and self._state is _State.BEGINNING:
            return self._settings.serve(client, frame)
        if self._state is _State.REQUESTS and header.api_key in SERVED:
            return self._illegal(header, frame, position)
        raise Disconnect(f"API {header.api_key} before it is authenticated")

    # -- before

    def _begin_bare(self, client: ClientConnection) -> None:
        """Begin with a bare token: clients of Kafka 0.9 send their ticket first."""
        make = self._settings.mechanisms.get(gssapi.MECHANISM)
        if make is None:
            raise Disconnect(f"a token of {gssapi.MECHANISM}, which is not enabled")
        self._mechanism, self._exchange = gssapi.MECHANISM, make()
        self._state = _State.TOKENS

    def _handshake(self, client: ClientConnection, header: RequestHeader, frame: memoryview, position: int) -> Answer:
        api = APIS[HANDSHAKE_KEY]
        if not api.min_version <= header.api_version <= api.max_version:
            raise Disconnect(f"version {header.api_version} of SaslHandshake is not served")
        request: SaslHandshakeRequest
        request, _ = decoder(SaslHandshakeRequest, header.api_version)(frame, position)
        names = list(self._settings.mechanisms)
        if request.mechanism not in self._settings.mechanisms:
            mechanism = ascii(request.mechanism[:60])
            self._warn(client, f"asked for the SASL mechanism {mechanism}; enabled are {', '.join(names)}")
            answer = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
            return self._refusal(response_frame(answer, header.api_version, header.correlation_id))
        if self._mechanism and request.mechanism != self._mechanism:
            raise Disconnect("re-authentication with another SASL mechanism")
        self._mechanism = request.mechanism
        self._exchange = self._settings.mechanisms[request.mechanism]()
        self._state = _State.REQUESTS if header.api_version else _State.TOKENS
        return response_frame(SaslHandshakeResponse(mechanisms=names), header.api_version, header.correlation_id)

    def _bare_token(self, client: ClientConnection, token: bytes) -> Answer:
        assert self._exchange is not None
        try:
            step = self._exchange.evaluate(token)
            self._finish(client, step)
        except AuthenticationFailed as failure:
            self._warn(client, str(failure))
            raise Disconnect("") from None
        return None if step.token is None else [len(step.token).to_bytes(_SIZE_BYTES, "big") + step.token]

    def _authenticate(
        self, client: ClientConnection, header: RequestHeader, frame: memoryview, position: int
    ) -> Answer:
        assert self._exchange is not None
        api, version = APIS[AUTHENTICATE_KEY], header.api_version
        if not api.min_version <= version <= api.max_version:
            raise Disconnect(f"version {version} of SaslAuthenticate is not served")
        request: SaslAuthenticateRequest
        request, _ = decoder(SaslAuthenticateRequest, version)(frame, position)
        try:
            step = self._exchange.evaluate(bytes(request.auth_bytes))
            lifetime_ms = self._finish(client, step)
        except AuthenticationFailed as failure:
            self._warn(client, str(failure))
            answer = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(failure)
            )
            return self._refusal(response_frame(answer, version, header.correlation_id))
        answer = SaslAuthenticateResponse(auth_bytes=step.token or b"", session_lifetime_ms=lifetime_ms)
        return response_frame(answer, version, header.correlation_id)

    def _illegal(self, header: RequestHeader, frame: memoryview, position: int) -> Answer:
        api = SERVED[header.api_key]
        if not api.min_version <= header.api_version <= api.max_version:
            raise Disconnect(f"version {header.api_version} of API {header.api_key} is not served")
        request, _ = decoder(api.request, header.api_version)(frame, position)
        answer = error_answer(api.response, request, ErrorCode.ILLEGAL_SASL_STATE, header.api_version)
        return self._refusal(response_frame(answer, header.api_version, header.correlation_id))

    def _finish(self, client: ClientConnection, step: Step) -> int:
        """Complete the authentication if the exchange is done; returns the session's lifetime. Raises
        AuthenticationFailed for another principal.
        """
        if step.name is None:
            return 0
        principal = user(step.name)
        if self._expires_ms and principal != client.principal:
            raise AuthenticationFailed("Cannot change principals during re-authentication")
        lifetimes = [each for each in (step.lifetime_ms, self._settings.max_reauth_ms or None) if each is not None]
        client.principal, client.is_by_token = principal, step.is_by_token
        client.quotas = None  # those of the client that asked ApiVersions before
        self._exchange = None
        self._state = _State.COMPLETE
        client.lift_limit()
        if not lifetimes:
            client.authenticator = None  # from now on its frames take no way round
            return 0
        self._expires_ms = self._settings.clock.monotonic_ms() + min(lifetimes)
        return min(lifetimes)

    # -- after, if the session ends

    def _authenticated(self, client: ClientConnection, frame: memoryview) -> Answer:
        now_ms = self._settings.clock.monotonic_ms()
        if len(frame) > 1 and frame[0] == 0 and frame[1] == HANDSHAKE_KEY:
            if self._again_ms is not None and now_ms - self._again_ms < _MIN_BETWEEN_MS:
                return self._settings.serve(client, frame)  # which answers that it may not be now
            self._again_ms = now_ms
            self._state = _State.BEGINNING
            return self(client, frame)
        if now_ms >= self._expires_ms:
            raise Disconnect("")
        return self._settings.serve(client, frame)

    # -- refusals

    def _warn(self, client: ClientConnection, text: str) -> None:
        self._settings.warn(client.host, f"sasl {client.listener_name}", f"{client.listener_name}: {text}")

    def _refusal(self, parts: list[Part]) -> Answer:
        """The answer after the delay, which closes the connection."""
        clock, delay_ms = self._settings.clock, self._settings.failure_delay_ms
        timer = clock.call_later(delay_ms, lambda: reply.fail(LastAnswer(parts)))
        reply = Pending(timer.cancel)
        return reply


def sasl_handshake(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    """Refuses a request on a connection that is authenticated, or need not be. Source: handleSaslHandshakeRequest."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    """Refuses as `sasl_handshake` does. Source: kafka.server.KafkaApis.handleSaslAuthenticateRequest."""
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
