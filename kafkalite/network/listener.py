"""An address that clients dial, and its listening sockets.

A host name may stand for several addresses (localhost is 127.0.0.1 and ::1): all that this machine has are bound, to
one port. An empty host means every address, IPv6 and IPv4.
Source: kafka.network.Acceptor.openServerSocket; that one binds the first address only.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import Any

from kafkalite.common.errors import ConfigError
from kafkalite.common.forks import close_socket, close_socket_in_children
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.network.client_connection import ClientConnection, Handler
from kafkalite.network.connection_quotas import NetworkLimits

PORT_ATTEMPTS = 10
EVERY_ADDRESS = ("", "::")

_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class Tls(NamedTuple):
    """TLS of a listener. `context` is asked for each new connection, so that it may change.

    `principal` gets the client's certificate in DER, or None, and returns the principal. It raises ValueError for one
    that maps to no user.
    """

    context: Callable[[], ssl.SSLContext]
    principal: Callable[[bytes | None], str]


class Listener(NamedTuple):
    """A name, and the address it is bound to. Port 0: a free one; host "": every address."""

    name: str
    host: str
    port: int
    tls: Tls | None = None
    authenticator: Callable[[ClientConnection], Handler] | None = None
    """Makes what gets the frames of a new connection until its client is known."""


async def bind(listener: Listener, loop: AbstractEventLoop, limits: NetworkLimits) -> list[socket.socket]:
    """Listening, non-blocking sockets for `listener`, all on one port. Raises ConfigError, a line for the operator."""
    name, host, port = listener.name, listener.host, listener.port
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except (OSError, UnicodeError) as reason:
        raise ConfigError(
            f"listener {name}: host '{host}' is not known ({reason}): name an address of this machine in `listeners`"
        ) from None
    addresses = [(family, address) for family, _, _, _, address in found]
    if host in EVERY_ADDRESS:
        addresses.sort(key=lambda entry: entry[0] != socket.AF_INET6)
    for attempt in range(PORT_ATTEMPTS):
        try:
            return _bind_all(addresses, port, host in EVERY_ADDRESS, limits)
        except OSError as reason:
            if reason.errno == errno.EADDRINUSE and port == 0 and attempt + 1 < PORT_ATTEMPTS:
                continue  # the free port of one address is taken on the next: try another
            raise ConfigError(_fault(listener, reason)) from None
    raise AssertionError("the last attempt returns or raises")


def plain_address(host: str) -> str:
    """An address without its IPv6 prefix: a socket for both families writes 127.0.0.1 as ::ffff:127.0.0.1."""
    return host[7:] if host.startswith("::ffff:") and "." in host else host


def _bind_all(
    addresses: Sequence[tuple[int, Any]], port: int, first_is_enough: bool, limits: NetworkLimits
) -> list[socket.socket]:
    bound: list[socket.socket] = []
    missing: OSError | None = None
    try:
        for family, address in addresses:
            try:
                sock = _listen(family, (address[0], port, *address[2:]), limits)
            except OSError as reason:
                if reason.errno not in _NOT_HERE:
                    raise
                missing = reason  # such as ::1 of localhost where IPv6 is off
                continue
            bound.append(sock)
            port = sock.getsockname()[1]
            if first_is_enough:
                break
        if missing is not None and not bound:
            raise missing
    except OSError:
        for sock in bound:
            close_socket(sock)
        raise
    return bound


def _listen(family: int, address: Any, limits: NetworkLimits) -> socket.socket:
    sock = close_socket_in_children(socket.socket(family, socket.SOCK_STREAM))
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address[0] == "::" else 1)
        if limits.socket_receive_buffer_bytes != -1:  # accepted sockets inherit it, and the window needs it before that
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, limits.socket_receive_buffer_bytes)
        sock.bind(address)
        sock.listen(limits.socket_listen_backlog_size)
    except OSError:
        sock.close()
        raise
    return sock


def _fault(listener: Listener, reason: OSError) -> str:
    where = f"listener {listener.name}: {listener.host or '*'}:{listener.port}"
    if reason.errno == errno.EADDRINUSE:
        return f"{where} is in use by another process: stop that one or choose another port in `listeners`"
    if reason.errno == errno.EACCES:
        return f"{where} needs the right to use ports below 1024: choose a higher port in `listeners`"
    if reason.errno in _NOT_HERE:
        return (
            f"{where} is not an address of this machine: name one in `listeners`, and others in `advertised.listeners`"
        )
    return f"{where} cannot be bound ({os.strerror(reason.errno or 0)}): choose another address in `listeners`"
