"""The token of OAUTHBEARER by which this process logs in: fetched when it is needed, and replaced before it ends.

A thread of its own replaces it after its refresh time, which every login checks, and brokers also check every few
seconds. A login then waits a second for the new one, since sessions end with their tokens. While the authority is
unreachable the old token is used until it expires. Concurrent logins share one request.

Tokens come from a file, or from an authority (OAuth 2.0, the grant client_credentials) by one HTTP/1.1 request for each
token, with a deadline for the exchange and a limit for the size of the response. Redirections are not followed, since
they would carry the secret elsewhere. Neither the secret nor a token is in the text of an error.
Source: org.apache.kafka.common.security.oauthbearer.{OAuthBearerLoginCallbackHandler, internals.expiring.
ExpiringCredentialRefreshingLogin, internals.secured.{HttpAccessTokenRetriever, FileTokenRetriever, Retry}}, RFC 6749.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import io
import logging
import os
import random
import socket
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote_plus, unquote, urlsplit

from kafkalite.common.clock import monotonic_s
from kafkalite.common.text import printable, read_json
from kafkalite.security.sasl.oauthbearer import OwnToken, RefreshRules, refresh_at_ms

DEFAULT_TIMEOUT_MS = 10_000
_BYTES_MAX = 512 << 10
_ERROR_BYTES_MAX = 8 << 10
_SHOWN_CHARS = 200
_PAUSE_MS_MIN = 10.0
_FINAL = frozenset((*range(300, 400), *range(400, 408), 409, 410, 411, 413, 414, 415, 501, 505))
"""Statuses that are not retried: Kafka's, and redirections."""

_T = TypeVar("_T")


class NoToken(OSError):
    """There is no token; the text is for the operator. `is_final`: a retry would not help."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The address of an authority or of a file, and the client's credentials there."""

    url: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    context: ssl.SSLContext | None = field(default=None, repr=False)
    connect_timeout_ms: int = DEFAULT_TIMEOUT_MS
    read_timeout_ms: int = DEFAULT_TIMEOUT_MS
    encodes_login: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError, which does not repeat the address: there might be a password in it."""
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            if parts.netloc or not parts.path:
                raise ValueError("must have three slashes before the path of a file, as in file:///etc/kafkalite/token")
            return
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("must begin with https://HOST, http://HOST or file:///")
        if parts.username is not None or parts.password is not None or parts.fragment:
            raise ValueError(
                "must have neither a user nor a fragment: clientId and clientSecret are options of the login module"
            )
        _ = parts.port  # which raises ValueError

    @property
    def shown(self) -> str:
        """The address without its query."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{parts.path}"

    @property
    def is_file(self) -> bool:
        return self.url.startswith("file:")

    def fetch(self) -> str:
        """A token. Raises NoToken."""
        return self._read_file() if self.is_file else self._ask()

    def _read_file(self) -> str:
        path = unquote(urlsplit(self.url).path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe has no end
            with open(descriptor, "rb") as file:
                data = file.read(_BYTES_MAX + 1)
        except OSError as fault:
            raise NoToken(f"{self.shown}: {fault.strerror or fault}") from None
        if data is None or len(data) > _BYTES_MAX:
            raise NoToken(f"{self.shown} has no token: it is no file, or too large", is_final=True)
        return data.decode("ascii", "replace").strip()

    def _ask(self) -> str:
        try:
            status, body = self._exchange()
        except (OSError, http.client.HTTPException) as fault:
            why = getattr(fault, "verify_message", None) or getattr(fault, "strerror", None) or str(fault) or "closed"
            raise NoToken(f"{self.shown}: {self._printable(str(why))}") from None
        if status not in (200, 201):
            why = f"{self.shown} answers with status {status}{self._reason(body)}"
            raise NoToken(why, is_final=status in _FINAL)
        try:
            found = read_json(body)["access_token"]
        except (ValueError, KeyError, TypeError):
            found = None
        if not isinstance(found, str) or not found.strip():
            raise NoToken(f"{self.shown} answers without an access_token", is_final=True)
        return found.strip()

    def _exchange(self) -> tuple[int, bytes]:
        """The status and the body of the answer. Raises OSError, HTTPException."""
        parts = urlsplit(self.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        assert parts.hostname is not None
        deadline = monotonic_s() + (self.connect_timeout_ms + self.read_timeout_ms) / 1000
        plain: socket.socket = socket.create_connection((parts.hostname, port), self.connect_timeout_ms / 1000)
        with plain:
            sock = plain
            if parts.scheme == "https":
                context = self.context or ssl.create_default_context()
                sock = context.wrap_socket(plain, server_hostname=parts.hostname)
            with sock:
                deadline = min(deadline, monotonic_s() + self.read_timeout_ms / 1000)
                connection = http.client.HTTPConnection(parts.netloc)
                connection.sock = _TimedSocket(sock, deadline)
                target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
                connection.request("POST", target, self._form(), self._headers())
                answer = connection.getresponse()
                data = answer.read(_BYTES_MAX + 1)
                if len(data) > _BYTES_MAX:
                    raise http.client.HTTPException(f"its answer is larger than {_BYTES_MAX} bytes")
                return answer.status, data

    def _form(self) -> bytes:
        scope = f"&scope={quote_plus(self.scope)}" if self.scope else ""
        return f"grant_type=client_credentials{scope}".encode()

    def _headers(self) -> dict[str, str]:
        encode = quote_plus if self.encodes_login else str
        login = base64.b64encode(f"{encode(self.client_id)}:{encode(self.client_secret)}".encode()).decode()
        return {
            "Accept": "application/json",
            "Authorization": f"Basic {login}",
            "Cache-Control": "no-cache",
            "Connection": "close",
            "Content-Type": "application/x-www-form-urlencoded",
        }

    def _reason(self, body: bytes) -> str:
        """The words of an error of OAuth 2.0."""
        try:
            answer = read_json(body[:_ERROR_BYTES_MAX])
            words = [answer[name] for name in ("error", "error_description") if isinstance(answer.get(name), str)]
        except (ValueError, AttributeError):
            return ""
        return f": {self._printable(': '.join(words))}" if words else ""

    def _printable(self, text: str) -> str:
        """The authority's text for one line, with the secret removed if it is repeated there."""
        if self.client_secret:
            for secret in (self.client_secret, quote_plus(self.client_secret)):
                text = text.replace(secret, "(hidden)")
        return printable(text[:_SHOWN_CHARS])


class _TimedSocket:
    """The part of a socket that http.client uses, with one deadline for all of it."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._socket = sock
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._socket.settimeout(_left_s(self._deadline))
        self._socket.sendall(data)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReads(self._socket, self._deadline))

    def close(self) -> None:
        """Does nothing: the owner closes the socket."""


class _TimedReads(io.RawIOBase):
    def __init__(self, sock: socket.socket, deadline: float) -> None:
        super().__init__()
        self._socket = sock
        self._deadline = deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(_left_s(self._deadline))
        return self._socket.recv_into(buffer)


def _left_s(deadline: float) -> float:
    left_s = deadline - monotonic_s()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def retried(
    fetch: Callable[[], _T],
    backoff_ms: float,
    backoff_max_ms: float,
    monotonic_ms: Callable[[], float],
    sleep_ms: Callable[[float], object],
) -> _T:
    """The result of `fetch`, retried as Kafka does: with pauses that are doubled, for `backoff_max_ms` in all,
    unless the fault is final. Raises the first NoToken."""
    end_ms = monotonic_ms() + backoff_max_ms
    pause_ms = max(backoff_ms, _PAUSE_MS_MIN)
    first: NoToken | None = None
    while True:
        try:
            return fetch()
        except NoToken as fault:
            if fault.is_final:
                raise
            first = first or fault
        left_ms = end_ms - monotonic_ms()
        if left_ms <= 0:
            raise first
        sleep_ms(min(pause_ms, left_ms))
        pause_ms *= 2


logger = logging.getLogger("kafkalite.authentication")

_PATIENCE_S = 1.0
_PAUSE_MS = 10_000.0
"""A token that could not be replaced is tried again after this, as in Kafka."""


class BearerToken:
    """A token that is replaced before it expires. `fetch` gets a new one; it may block, and raises NoToken."""

    def __init__(
        self,
        fetch: Callable[[], OwnToken],
        rules: RefreshRules,
        wall_ms: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._fetch = fetch
        self._rules = rules
        self._wall_ms = wall_ms
        self._chance = chance
        self._lock = threading.Lock()
        self._token: OwnToken | None = None
        self._refresh_ms = 0.0
        self._under_way: Future[OwnToken] | None = None
        self.refreshing: threading.Thread | None = None

    def get(self) -> OwnToken:
        """The current token; waits for a new one if it has expired. Raises NoToken."""
        token = self._token
        if token is None or self._wall_ms() >= token.expires_ms:
            return self._fetched()
        self.refresh()
        under_way = self._under_way
        if under_way is not None:
            with contextlib.suppress(NoToken, TimeoutError):
                under_way.result(_PATIENCE_S)
        return self._token or token

    def refresh(self) -> None:
        """Starts the replacement of the token, in a thread, if it is due."""
        token, now_ms = self._token, self._wall_ms()
        if token is None or now_ms < self._refresh_ms or self._under_way is not None:
            return
        self._refresh_ms = now_ms + _PAUSE_MS

        def replace() -> None:
            try:
                self._fulfil(under_way)
            except NoToken as fault:
                logger.warning("the token of %s is not replaced yet: %s", token.name, fault)

        under_way, is_ours = self._begin()
        if not is_ours:
            return
        self.refreshing = threading.Thread(target=replace, name="kafkalite-token", daemon=True)
        self.refreshing.start()

    def _begin(self) -> tuple[Future[OwnToken], bool]:
        """The future of the new token, and whether the caller is to fetch it."""
        with self._lock:
            if self._under_way is not None:
                return self._under_way, False
            self._under_way = Future()
            return self._under_way, True

    def _fetched(self) -> OwnToken:
        """A new token. One of the callers fetches it, the others wait for it."""
        under_way, is_ours = self._begin()
        return self._fulfil(under_way) if is_ours else under_way.result()

    def _fulfil(self, under_way: Future[OwnToken]) -> OwnToken:
        try:
            token = self._fetch()
            now_ms = self._wall_ms()
            if token.expires_ms <= now_ms:
                raise NoToken(f"the token that is issued for {token.name} has expired")
            self._token, self._refresh_ms = token, refresh_at_ms(token, now_ms, self._rules, self._chance())
        except BaseException as fault:
            self._under_way = None
            under_way.set_exception(fault if isinstance(fault, NoToken) else NoToken(f"{type(fault).__name__}"))
            raise
        self._under_way = None
        under_way.set_result(token)
        return token
