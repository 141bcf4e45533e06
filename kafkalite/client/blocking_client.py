"""A blocking connection to a broker, for commands: one request, one response, one line of text for an error.

Both the wait and the size of a response are bounded, even if the other end is no broker.
Source: org.apache.kafka.clients.NetworkClient, as far as a command needs it.
"""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import ConfigError, ErrorCode, Malformed, Unanswered
from kafkalite.protocol.apis import API_OF_REQUEST
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_response, request_frame
from kafkalite.protocol.messages.metadata import ApiVersionsRequest

if TYPE_CHECKING:
    from kafkalite.client.logins import ClientSecurity
    from kafkalite.security.sasl.client_exchange import Login

_RESPONSE_BYTES_MAX = 256 << 20
_TAKEN_BYTES = 4 << 20  # the memory that is taken for a response before any of it has come
_TIMEOUT_S_MIN = 0.001
_CLIENT_ID = "kafkalite"


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT or [IPV6]:PORT. Raises ConfigError."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) <= 65535:
        raise ConfigError(f"{text!r} must be HOST:PORT, such as localhost:9092")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """The text of an address, as `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def name_of_error(error_code: int) -> str:
    try:
        return ErrorCode(error_code).name
    except ValueError:
        return f"error {error_code}"


REFUSES = "refuses the connection"  # in the text of a failed login


class BlockingClient:
    """A connection; `address` is as it was given. A response may take `timeout_s`. Raises Unanswered."""

    def __init__(self, address: str, timeout_s: float, security: ClientSecurity | None = None) -> None:
        self.address = address
        self._timeout_s = timeout_s = max(timeout_s, _TIMEOUT_S_MIN)  # a socket with 0 does not wait at all
        self._correlation_id = 0
        self.is_lost = False  # after Unanswered
        self._unanswered: deque[int] = deque()  # correlation ids; brokers answer in order
        self._login = None if security is None else security.login
        self._login_due_s = float("inf")
        self._versions: dict[int, int] | None = None  # the newest of each API
        self._host, port = host, _ = parse_address(address)
        try:
            sock = socket.create_connection((host, port), timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = sock if security is None else security.secure(sock, host)
        except TimeoutError:
            raise Unanswered(f"{address} does not answer within {timeout_s:g} s") from None
        except ConnectionRefusedError:
            raise Unanswered(f"nothing listens on {address}; is the broker running?") from None
        except OSError as error:
            raise Unanswered(f"cannot reach {address}: {error.strerror or error}") from error
        except ValueError:  # such as a label of more than 63 letters, a NUL
            raise Unanswered(f"cannot reach {address}: no host has such a name") from None
        if self._login is not None:
            self._log_in(self._login)

    def _log_in(self, login: Login) -> None:
        from kafkalite.client.sasl_login import NoCredential, due_ms, log_in_blocking

        began_ms, self._login_due_s = monotonic_s() * 1000, float("inf")  # the login's own requests need none
        try:
            lifetime_ms = log_in_blocking(login, self._host, self.ask)
            self._login_due_s = due_ms(lifetime_ms, began_ms, monotonic_s() * 1000) / 1000
        except NoCredential as error:
            self._socket.close()
            raise self._lost(f"cannot log in at {self.address}: {error}") from None
        except OSError as error:
            self._socket.close()
            raise self._lost(f"{self.address} {REFUSES}: {error}") from None
        except Unanswered:
            self._socket.close()
            raise

    def __enter__(self) -> BlockingClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def newest(self, request: type[Message], known: int) -> int:
        """The newest version of a request that the broker has, of those up to `known`. Raises Unanswered."""
        return min(known, self._newest_versions().get(API_OF_REQUEST[request].key, known))

    def serves(self, request: type[Message]) -> bool:
        """Whether the broker lists this API. Raises Unanswered."""
        return API_OF_REQUEST[request].key in self._newest_versions()

    def _newest_versions(self) -> dict[int, int]:
        if self._versions is None:
            answer = self.ask(ApiVersionsRequest(), 0)
            self._versions = {one.api_key: one.max_version for one in answer.api_keys}
        return self._versions

    def send_unanswered(self, request: Message, version: int) -> None:
        """Send a request that gets no response, such as a produce with acks=0."""
        self.send(request, version)
        self._unanswered.pop()

    def ask(self, request: Message, version: int, timeout_s: float | None = None) -> Any:
        """The response; it may take `timeout_s` if given. Raises Unanswered; the connection is of no use then."""
        self.send(request, version)
        return self.receive(type(request), version, timeout_s)

    def send(self, request: Message, version: int) -> None:
        """The first half of `ask`, so that several brokers can work in parallel, or one on several requests. Before it
        the session is renewed, if it ends soon and no response is pending."""
        if self._login is not None and not self._unanswered and monotonic_s() >= self._login_due_s:
            self._log_in(self._login)
        self._correlation_id += 1
        self._unanswered.append(self._correlation_id)
        try:
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(request_frame(request, version, self._correlation_id, _CLIENT_ID))
        except TimeoutError:
            raise self._lost(f"{self.address} does not answer within {self._timeout_s:g} s") from None
        except OSError as error:
            raise self._lost(f"lost the connection to {self.address}: {error.strerror or error}") from error

    def receive(self, kind: type[Message], version: int, timeout_s: float | None = None) -> Any:
        """The other half: the response to the oldest request without one, which was of this kind."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        deadline = monotonic_s() + timeout_s
        try:
            size = int.from_bytes(self._receive(4, deadline), "big")
            if size > _RESPONSE_BYTES_MAX:
                raise self._lost(f"what listens on {self.address} is no Kafka broker")
            frame = self._receive(size, deadline)
        except TimeoutError:
            raise self._lost(f"{self.address} does not answer within {timeout_s:g} s") from None
        except OSError as error:
            raise self._lost(f"lost the connection to {self.address}: {error.strerror or error}") from error
        try:
            correlation_id, response = decode_response(kind, version, memoryview(frame))
        except Malformed as error:
            raise self._lost(f"the answer of {self.address} is invalid: {error}") from error
        if correlation_id != self._unanswered.popleft():
            raise self._lost(f"{self.address} answers another request")
        return response

    def fileno(self) -> int:
        """The socket, for `select`."""
        return self._socket.fileno()

    @property
    def has_buffered(self) -> bool:
        """Whether bytes of a response are here that `select` does not see, as TLS buffers them."""
        pending = getattr(self._socket, "pending", None)
        return pending is not None and pending() > 0

    def _receive(self, count: int, deadline: float) -> bytearray:
        data, filled = bytearray(min(count, _TAKEN_BYTES)), 0
        while filled < count:
            left_s = deadline - monotonic_s()
            if left_s <= 0:
                raise TimeoutError
            if filled == len(data):
                data += bytes(min(count - filled, _TAKEN_BYTES))
            self._socket.settimeout(left_s)
            with memoryview(data) as view:
                more = self._socket.recv_into(view[filled:])
            if not more:
                raise self._lost(
                    f"{self.address} closed the connection without an answer; "
                    "is it a Kafka broker, and does its listener need TLS or SASL (--command-config)?"
                )
            filled += more
        return data

    def _lost(self, why: str) -> Unanswered:
        self.is_lost = True
        return Unanswered(why)
