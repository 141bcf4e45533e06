"""Where tokens are given: by an authority over HTTP, and in a file; what both may do wrong."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.bearer_login import NoToken, TokenEndpoint, retried
from kafkalite.security.sasl.oauthbearer import read_token
from tests.support.certificates import Authority
from tests.support.token_server import TokenServer, token_server

SECRET = "s3cret/&?"


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server(TokenServer({"broker": SECRET})) as made:
        yield made


def endpoint(server: TokenServer, **how: Any) -> TokenEndpoint:
    return TokenEndpoint(server.url, "broker", SECRET, **how)


def test_a_token_for_a_client_and_its_scope(server: TokenServer) -> None:
    assert read_token(endpoint(server, scope="a b&c").fetch()).name == "broker"
    [asked] = server.asked
    assert (asked.client_id, asked.scope) == ("broker", "a b&c")
    assert asked.headers["Accept"] == "application/json" and asked.headers["Cache-Control"] == "no-cache"
    assert SECRET not in repr(endpoint(server))


def test_the_login_may_be_in_the_encoding_of_urls(server: TokenServer) -> None:
    server.clients = {"broker": "s3cret%2F%26%3F"}
    assert read_token(endpoint(server, encodes_login=True).fetch()).name == "broker"
    server.clients = {}
    with pytest.raises(NoToken, match=r"\(hidden\) is wrong"):
        endpoint(server, encodes_login=True).fetch()


def test_over_tls(tmp_path: Path) -> None:
    authority = Authority()
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(authority.identify().write(tmp_path / "server.pem"))
    with token_server(TokenServer({"broker": SECRET}), served) as server:
        trusting = ssl.create_default_context(cafile=authority.write(tmp_path / "ca.pem"))
        assert read_token(endpoint(server, context=trusting).fetch()).name == "broker"
        with pytest.raises(NoToken, match="certificate") as refusal:
            endpoint(server).fetch()
        assert not refusal.value.is_final and not server.asked[1:]


@pytest.mark.parametrize(
    ("answer", "fault", "is_final"),
    [
        ((503, b"<html>"), r"answers with status 503\Z", False),
        ((429, b"{}"), r"answers with status 429\Z", False),
        ((400, b'{"error": "invalid_scope"}'), "answers with status 400: invalid_scope", True),
        ((403, b'["error"]'), r"answers with status 403\Z", True),
        ((302, b""), "answers with status 302", True),
        ((400, json.dumps({"error": f"{SECRET}\n\x1b[31m" + "x" * 99}).encode()), r"\(hidden\)\\n\\x1b.31mx+\Z", True),
        ((200, b"no json"), "without an access_token", True),
        ((200, b"[]"), "without an access_token", True),
        ((200, b'{"access_token": 7}'), "without an access_token", True),
        ((200, b'{"access_token": " "}'), "without an access_token", True),
        ((200, b"[" * 400_000), "without an access_token", True),
        ((200, b" " * 600_000), "its answer is larger than", False),
    ],
)
def test_an_answer_without_a_token(server: TokenServer, answer: tuple[int, bytes], fault: str, is_final: bool) -> None:
    server.answers.append(answer)
    with pytest.raises(NoToken, match=fault) as refusal:
        endpoint(server).fetch()
    assert refusal.value.is_final == is_final
    assert SECRET not in str(refusal.value) and len(str(refusal.value)) < 400


def test_a_wrong_secret_is_not_repeated(server: TokenServer) -> None:
    with pytest.raises(NoToken, match=r"401: invalid_client: \(hidden\) is wrong") as refusal:
        replace(endpoint(server), client_secret="wr0ng").fetch()
    assert refusal.value.is_final and "wr0ng" not in str(refusal.value)


def test_an_answer_that_never_ends(server: TokenServer) -> None:
    def drip(handler: Any) -> None:
        try:
            while True:
                handler.wfile.write(b"HTTP/1.1 200 OK\r\n" if not dripped else b"x: y\r\n")
                dripped.append(1)
        except OSError:
            pass

    dripped: list[int] = []
    server.tamper = drip
    with pytest.raises(NoToken):
        endpoint(server).fetch()
    server.tamper = lambda handler: handler.rfile.read()  # until we close
    with pytest.raises(NoToken, match="timed out"):
        endpoint(server, read_timeout_ms=50).fetch()
    server.tamper = lambda handler: handler.wfile.write(b"\x16\x03\x01 no http")
    with pytest.raises(NoToken):
        endpoint(server).fetch()


def test_nobody_is_there(server: TokenServer) -> None:
    with pytest.raises(NoToken, match="refused"):
        TokenEndpoint("http://127.0.0.1:1/token?key=hidden", "a", "b").fetch()
    assert "hidden" not in TokenEndpoint("http://127.0.0.1:1/token?key=hidden", "a", "b").shown


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/token", "https:///token", "host/token", "http://user:hidden@host/", "http://host:99999/", "file://host/x",
        "https://host/#part", "file:",
    ],
)  # fmt: skip
def test_addresses_that_make_no_sense(url: str) -> None:
    with pytest.raises(ValueError) as refusal:
        TokenEndpoint(url, "a", "b")
    assert "hidden" not in str(refusal.value)


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    found = TokenEndpoint(file.as_uri())
    with pytest.raises(NoToken, match="No such file"):
        found.fetch()
    file.write_text("first\n")
    assert found.fetch() == "first"
    file.write_text("second")
    assert found.fetch() == "second"
    file.write_text("x" * 600_000)
    with pytest.raises(NoToken, match="too large"):
        found.fetch()
    os.mkfifo(tmp_path / "pipe")
    assert TokenEndpoint((tmp_path / "pipe").as_uri()).fetch() == ""  # which is no token, but does not wait


class Time:
    def __init__(self) -> None:
        self.now_ms = 0.0
        self.pauses: list[float] = []

    def sleep(self, pause_ms: float) -> None:
        self.pauses.append(pause_ms)
        self.now_ms += pause_ms


def test_it_is_asked_again_with_longer_and_longer_pauses() -> None:
    time, tries = Time(), 0

    def fetch() -> str:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise NoToken(f"fault {tries}")
        return "token"

    assert retried(fetch, 100, 10_000, lambda: time.now_ms, time.sleep) == "token"
    assert time.pauses == [100, 200, 400]


@pytest.mark.parametrize(("backoff_ms", "pauses"), [(100, [100, 200, 400, 300]), (0, [10, 20, 40, 80, 160, 320, 370])])
def test_the_first_fault_is_told_when_the_time_is_over(backoff_ms: float, pauses: list[float]) -> None:
    time = Time()
    faults = iter(range(99))

    def fetch() -> str:
        raise NoToken(f"fault {next(faults)}")

    with pytest.raises(NoToken, match="fault 0"):
        retried(fetch, backoff_ms, 1_000, lambda: time.now_ms, time.sleep)
    assert time.pauses == pauses


def test_a_final_fault_is_told_at_once() -> None:
    time = Time()

    def fetch() -> str:
        raise NoToken("no", is_final=True)

    with pytest.raises(NoToken, match="no"):
        retried(fetch, 100, 1_000, lambda: time.now_ms, time.sleep)
    assert not time.pauses
