"""Keys of an authority: read again when they are old or one is missing, and kept while the source is away."""

from __future__ import annotations

import ssl
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.security.sasl.jwt import TokenRefused, TokenRules
from kafkalite.server.jwks import KeySource, KnownKeys, NoStepDown, RefreshingKeys, RefreshRules
from tests.support.certificates import Authority
from tests.support.manual_clock import ManualClock
from tests.support.token_server import TokenServer, token_server
from tests.support.tokens import TokenAuthority
from tests.support.wait import DEADLINE_S

REFRESH = RefreshRules(backoff_max_ms=0)


def keys_of(url: str, clock: ManualClock) -> RefreshingKeys:
    return RefreshingKeys(KeySource(url), TokenRules(), REFRESH, clock.wall_ms, clock.monotonic_ms)


class World:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = ManualClock()
        self.authority = TokenAuthority()
        url = self.authority.write(path)
        self.keys = keys_of(url, self.clock)

    def token(self, kid: str) -> str:
        now_s = self.clock.wall_ms() // 1000
        return self.authority.sign(kid, sub="alice", iat=now_s, exp=now_s + 60)

    def passes(self, kid: str) -> bool:
        try:
            return self.keys.verify(self.token(kid)).name == "alice"
        except TokenRefused:
            return False
        finally:
            if self.keys.reading is not None:
                self.keys.reading.join(DEADLINE_S)


def test_a_new_key_is_looked_for(tmp_path: Path) -> None:
    world = World(tmp_path / "keys.json")
    assert world.passes("first")
    world.authority.add_rsa("second")
    world.authority.write(world.path)
    assert not world.passes("second")
    world.clock.advance(10_000)
    world.passes("second")  # perhaps already: another thread reads them
    assert world.passes("second")


def test_old_keys_are_read_again_and_kept_while_there_are_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path / "keys.json")
    world.path.write_text("gone")
    world.clock.advance(3_600_000)
    assert world.passes("first") and "the keys of before stay" in caplog.text
    del world.authority.keys["first"]
    world.authority.add_rsa("first")
    world.authority.write(world.path)
    world.clock.advance(10_000)
    world.passes("first")
    assert world.passes("first")


def test_a_start_needs_keys(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "empty").write_text("{}")
    for url, why in (
        ((tmp_path / "none").as_uri(), "No such file"),
        ((tmp_path / "empty").as_uri(), "is no JWKS"),
        ("ftp://here/keys", "must be an address that begins with https: or file:"),
    ):
        with pytest.raises(ConfigError, match=why):
            keys_of(url, clock)


class Redirects(BaseHTTPRequestHandler):
    """Leads to the address behind the ? of the one that is asked."""

    def do_GET(self) -> None:
        self.send_response(302)
        self.send_header("Location", self.path.partition("?")[2])
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_another_kind_of_address_is_not_followed(tmp_path: Path) -> None:
    """The answer of the authority may redirect to addresses; never to a file, nor from https: to http:."""
    clock, keys = ManualClock(), TokenAuthority().write(tmp_path / "keys.json")
    with HTTPServer(("127.0.0.1", 0), Redirects) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for where in (keys, "ftp://127.0.0.1/keys"):
            url = f"http://127.0.0.1:{server.server_port}/?{where}"
            with pytest.raises(ConfigError, match=r"it leads from http: to|is not allowed"):
                keys_of(url, clock)
        server.shutdown()
    for old, new in (("https", "http"), ("https", "file"), ("http", "data")):
        with pytest.raises(HTTPError, match="it leads from"):
            NoStepDown().redirect_request(Request(f"{old}://a/"), None, 302, "", None, f"{new}://b/")
    assert NoStepDown().redirect_request(Request("https://a/"), BytesIO(), 302, "", {}, "https://b/") is not None


def test_an_address_without_tls_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    clock, authority = ManualClock(), TokenAuthority()

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(authority.jwks.encode())

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Keys) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        keys_of(url, clock)
        server.shutdown()
    assert "can insert keys of its own" in caplog.text


def test_keys_that_are_known_are_not_read_again_and_others_soon(tmp_path: Path) -> None:
    clock, authority = ManualClock(), TokenAuthority()
    source = KeySource(authority.write(tmp_path / "keys.json"))
    known: KnownKeys = {}

    def made(source: KeySource) -> RefreshingKeys:
        return RefreshingKeys(source, TokenRules(), REFRESH, clock.wall_ms, clock.monotonic_ms, known, may_wait=False)

    now_s = clock.wall_ms() // 1000
    token = authority.sign("first", sub="alice", iat=now_s, exp=now_s + 60)
    first = made(source)
    assert first.reading is not None
    first.reading.join(DEADLINE_S)
    assert first.verify(token).name == "alice"
    (tmp_path / "keys.json").unlink()
    again = made(source)
    assert again.reading is None and again.verify(token).name == "alice"
    missing = made(KeySource((tmp_path / "keys.json").as_uri(), (("ssl.truststore.type", "PEM"),)))
    with pytest.raises(TokenRefused, match="are not read yet"):
        missing.verify(token)


def test_tls_of_the_source_is_set_in_the_login_module(tmp_path: Path) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.identify().write(tmp_path / "server.pem"))
    trusted = (("ssl.truststore.location", authority.write(tmp_path / "ca.pem")), ("ssl.truststore.type", "PEM"))
    with token_server(TokenServer({}), context) as server:
        assert KeySource(server.jwks_url, trusted).read().has("first")
        with pytest.raises(ConfigError, match="CERTIFICATE_VERIFY_FAILED"):
            KeySource(server.jwks_url).read()
    assert "ca.pem" not in repr(KeySource("x", trusted))
