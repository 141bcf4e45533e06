"""A guard in front of the application: who may ask under which name, how much may be sent, and headers of every answer.

A page of another site cannot read anything here: browsers send our cookie only to us (SameSite=Strict), a name that is
not ours is refused (DNS rebinding), and pages may load nothing from elsewhere (the content security policy).
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES_MAX = 24 << 20
_TARGET_BYTES_MAX = 80 << 10
_HEADERS = (
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """`names`: hosts under which this console is known besides addresses and localhost."""

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self._names = {name.lower() for name in (*_LOCAL_NAMES, *names) if name}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if not self._is_our_name(headers.get(b"host", b"").decode("latin-1")):
            await _refuse(send, 421, "WRONG_HOST", "this console is not known by that name; see console.listener")
            return
        size = headers.get(b"content-length", b"0")
        is_too_large = not size.isdigit() or int(size[:12]) > BODY_BYTES_MAX
        if is_too_large or len(scope["query_string"]) + len(scope["path"]) > _TARGET_BYTES_MAX:
            await _refuse(send, 413, "TOO_LARGE", f"a request may have {BODY_BYTES_MAX >> 20} MiB")
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        await self._app(scope, _bounded(receive), with_headers)

    def _is_our_name(self, host: str) -> bool:
        """An address is nobody's name, so it cannot be bound anew: only names have to be known."""
        name, colon, port = host.rpartition(":")
        if not colon or not port.isdigit():
            name = host
        if name.lower() in self._names:
            return True
        try:
            ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
        except ValueError:
            return False
        return True


def _bounded(receive: Receive) -> Receive:
    """The body of a request whose length was not told ends the connection when it is too long."""
    received = 0

    async def bounded() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        return {"type": "http.disconnect"} if received > BODY_BYTES_MAX else message

    return bounded


async def _refuse(send: Send, status: int, name: str, text: str) -> None:
    body = json.dumps({"error": name, "message": text}).encode()
    length = str(len(body)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
