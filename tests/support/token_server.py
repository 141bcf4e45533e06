"""An authority's endpoint for tokens (OAuth 2.0, client_credentials) and its keys, over HTTP or HTTPS."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from tests.support.tokens import TokenAuthority

Answer = tuple[int, bytes]


class Asked(NamedTuple):
    """A request for a token."""

    client_id: str
    scope: str | None
    headers: Mapping[str, str]


class TokenServer:
    """`clients` are secrets by client ids; `answers` come, in order, instead of tokens. A token names its client."""

    def __init__(self, clients: Mapping[str, str], lifetime_s: float = 3600) -> None:
        self.authority = TokenAuthority()
        self.clients = clients
        self.lifetime_s = lifetime_s
        self.answers: list[Answer] = []
        self.asked: list[Asked] = []
        self.tamper: Callable[[Any], None] | None = None  # what else may be done with the connection
        self.before_keys: Callable[[], object] = lambda: None  # called by the thread that is about to tell them
        self.url = self.jwks_url = ""

    def answer(self, asked: Asked, secret: str) -> Answer:
        self.asked.append(asked)
        if self.answers:
            return self.answers.pop(0)
        if self.clients.get(asked.client_id) != secret:
            return 401, json.dumps({"error": "invalid_client", "error_description": f"{secret} is wrong"}).encode()
        now = int(time.time())  # brokers read whole seconds, as Kafka's do
        token = self.authority.sign(
            sub=asked.client_id, iat=now - 1, exp=now + self.lifetime_s, aud="kafka", iss="tests", scope=asked.scope
        )
        return 200, json.dumps({"access_token": token, "token_type": "Bearer"}).encode()


@contextmanager
def token_server(server: TokenServer, tls: ssl.SSLContext | None = None) -> Iterator[TokenServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            if server.tamper is not None:
                server.tamper(self)
                return
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            assert form["grant_type"] == ["client_credentials"]
            login = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            client_id, _, secret = login.partition(":")
            scope = form.get("scope", [None])[0]
            self._say(*server.answer(Asked(client_id, scope, dict(self.headers.items())), secret))

        def do_GET(self) -> None:
            server.before_keys()
            self._say(200, server.authority.jwks.encode())

        def _say(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        if tls is not None:
            http.socket = tls.wrap_socket(http.socket, server_side=True)
        address = f"{'https' if tls else 'http'}://localhost:{http.server_address[1]}"
        server.url, server.jwks_url = f"{address}/token", f"{address}/keys"
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
