"""The console's users log in at a certified provider of OpenID Connect, panva's oidc-provider, on its own pages."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx
import pytest

from kafkalite.console import single_sign_on
from kafkalite.console.single_sign_on import SingleSignOn
from kafkalite.testing import Broker
from tests.compatibility.interop.node import FIRST_INSTALL_S, Node, pinned
from tests.support.console import Browser, console
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, broker_settings, console_properties
from tests.support.wait import DEADLINE_S

ECOSYSTEM = "Node"
CLIENT, VERSION = "oidc-provider", pinned("oidc", "oidc-provider")
BEGIN, BACK = "/api/login/oidc", "/api/login/oidc/back"
REDIRECT_URI = f"http://127.0.0.1{BACK}"
STEPS_MAX = 20

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_INSTALL_S)]
pytest.importorskip("authlib")


@pytest.fixture(scope="module")
def issuer(need: Any, cache: Callable[[str], Any]) -> Iterator[str]:
    """The address of a provider in a process of its own."""
    command = Node(need("node"), need("npm"), cache("node")).command("oidc")
    with subprocess.Popen(
        [*command, CLIENT_ID, CLIENT_SECRET, REDIRECT_URI],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture
def broker(issuer: str) -> Iterator[Broker]:
    keys = httpx.get(f"{issuer}/.well-known/openid-configuration", timeout=DEADLINE_S).json()["jwks_uri"]
    with Broker(**broker_settings(keys)) as broker:
        broker.create_topic("orders")
        yield broker


def log_in(address: str, user: str) -> str:
    """The query with which the provider sends a browser back, which follows this address, and fills in its forms."""
    with httpx.Client(timeout=DEADLINE_S) as browser:
        answer = browser.get(address)
        for _ in range(STEPS_MAX):
            place = urljoin(str(answer.url), answer.headers.get("location", ""))
            if place.startswith(REDIRECT_URI):
                return urlsplit(place).query
            if answer.is_redirect:
                answer = browser.get(place)
                continue
            fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="(\w+)"', answer.text))
            target = re.search(r'<form [^>]*action="([^"]+)"', answer.text)
            assert target is not None, answer.text
            fields |= {"login": user, "password": "any"} if fields.get("prompt") == "login" else {}
            answer = browser.post(urljoin(str(answer.url), target[1]), data=fields)
    raise AssertionError(f"the provider does not end at {answer.url}")


def sign_on(browser: Browser, user: str) -> str:
    """Where the console leads the user after its login."""
    begun = browser.client.get(f"{BEGIN}?to=/topics", follow_redirects=False)
    query = log_in(begun.headers["location"], user)
    assert "code" in parse_qs(query), query
    location: str = browser.client.get(f"{BACK}?{query}", follow_redirects=False).headers["location"]
    browser.renew()
    return location


def test_users_log_in_on_the_provider_s_pages(issuer: str, broker: Broker, proved: Any) -> None:
    proved(CLIENT, VERSION, "users of the console log in on its pages: code flow with PKCE, each with its own rights")
    properties = console_properties(issuer, **{"console.oidc.redirect.uri": REDIRECT_URI})
    with console(broker.bootstrap_servers, properties=properties) as browser:
        assert browser.refusal("topics") == (401, "LOGIN_REQUIRED")
        assert sign_on(browser, "alice") == "/topics"
        assert browser.session["user"] == "alice"
        assert [row["name"] for row in browser.get("topics")["items"]] == ["orders"]
        assert browser.change("POST", "logout")[0] == 200
        assert sign_on(browser, "bob") == "/topics"
        assert browser.session["user"] == "bob" and browser.get("topics")["items"] == []


def test_a_refresh_token_brings_new_access_tokens(
    issuer: str, broker: Broker, proved: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    proved(CLIENT, VERSION, "with the scope offline_access: a refresh token that brings new access tokens")
    given: list[str] = []
    monkeypatch.setattr(single_sign_on, "_Replacement", lambda _, address, token: given.append(token))
    one = SingleSignOn(console_properties(issuer, **{"console.oidc.scope": "openid offline_access"}))
    key, url = one.begin(REDIRECT_URI, "/")
    user, security, _ = one.finish(key, log_in(url, "alice"))
    assert user == "alice" and security.login is not None
    first = one.refreshed(REDIRECT_URI, given[0])
    second = one.refreshed(REDIRECT_URI, first.get("refresh_token", given[0]))
    assert first["access_token"] != second["access_token"]
