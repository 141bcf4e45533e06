"""Users log in to the console at a provider of OpenID Connect, whose access tokens the broker checks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.console.calls.route import COOKIE
from kafkalite.console.single_sign_on import COOKIE as SIGN_ON_COOKIE
from kafkalite.console.single_sign_on import SingleSignOn
from kafkalite.testing import Broker
from tests.support.console import Browser, console
from tests.support.oidc_provider import OidcProvider, broker_settings, console_properties, oidc_provider

pytest.importorskip("authlib")
BEGIN, BACK = "/api/login/oidc", "/api/login/oidc/back"


def properties(provider: OidcProvider, **more: str) -> dict[str, str]:
    return console_properties(provider.url, **more)


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as made:
        yield made


@pytest.fixture
def browser(provider: OidcProvider) -> Iterator[Browser]:
    with Broker(**broker_settings(f"{provider.url}/keys")) as broker:
        broker.create_topic("orders")
        with console(broker.bootstrap_servers, properties=properties(provider)) as browser:
            yield browser


def went(browser: Browser, address: str) -> Any:
    return browser.client.get(address, follow_redirects=False)


def back_from_provider(address: str) -> str:
    """Where the provider sends the browser that follows this address."""
    answer = httpx.get(address, follow_redirects=False)
    assert answer.status_code == 302
    place = urlsplit(answer.headers["location"])
    return f"{place.path}?{place.query}"


def sign_on(browser: Browser, to: str = "/") -> Any:
    begun = went(browser, f"{BEGIN}?to={to}")
    assert begun.status_code == 303
    return went(browser, back_from_provider(begun.headers["location"]))


def test_a_user_of_the_provider_has_a_session_with_its_own_rights(browser: Browser, provider: OidcProvider) -> None:
    assert browser.session["sign_on"] and browser.session["mechanisms"] == [] and browser.session["user"] is None
    assert browser.refusal("topics") == (401, "LOGIN_REQUIRED")
    answer = sign_on(browser, "/topics")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topics")
    cookies = answer.headers.get_list("set-cookie")
    assert any(one.startswith(f"{COOKIE}=") and "SameSite=strict" in one and "HttpOnly" in one for one in cookies)
    assert any(one.startswith(f'{SIGN_ON_COOKIE}="') and "Max-Age=0" in one for one in cookies)
    browser.renew()
    assert browser.session["user"] == "alice"
    assert [row["name"] for row in browser.get("topics")["items"]] == ["orders"]
    assert browser.change("POST", "logout")[0] == 200
    provider.user = "bob"
    assert sign_on(browser).status_code == 303
    browser.renew()
    assert browser.session["user"] == "bob" and browser.get("topics")["items"] == []


def test_an_answer_counts_once_and_for_the_browser_that_asked(browser: Browser) -> None:
    begun = went(browser, BEGIN)
    back = back_from_provider(begun.headers["location"])
    browser.client.cookies.delete(SIGN_ON_COOKIE, path=BACK)
    assert went(browser, back).headers["location"] == "/login?fault=provider", "another browser's"
    begun = went(browser, BEGIN)
    back = back_from_provider(begun.headers["location"])
    assert went(browser, back.replace("state=", "state=x")).headers["location"] == "/login?fault=provider"
    assert went(browser, back).headers["location"] == "/login?fault=provider", "its login has ended"
    browser.renew()
    assert browser.session["user"] is None


@pytest.mark.parametrize("target", ["https://elsewhere.example/", "//elsewhere.example/", "/\\elsewhere.example"])
def test_a_login_leads_to_no_other_site(browser: Browser, target: str) -> None:
    assert sign_on(browser, target).headers["location"] == "/"


def test_a_token_that_brokers_refuse_is_no_login(browser: Browser, provider: OidcProvider) -> None:
    provider.lifetime_s = -10.0
    assert sign_on(browser).headers["location"] == "/login?fault=provider"
    provider.lifetime_s = 3600.0
    assert sign_on(browser).headers["location"] == "/"
    provider.authority.add_rsa("first")  # the broker has the former key of this name
    assert sign_on(browser).headers["location"] == "/login?fault=provider"


def test_a_provider_that_is_away_or_another_is_named_in_the_log(
    provider: OidcProvider, caplog: pytest.LogCaptureFixture
) -> None:
    provider.issuer_in_discovery = "https://elsewhere.example"
    with console("localhost:1", properties=properties(provider)) as browser:
        assert went(browser, BEGIN).headers["location"] == "/login?fault=provider"
        assert f"{provider.url} names itself https://elsewhere.example" in caplog.text
    with console(
        "localhost:1", properties=properties(provider, **{"console.oidc.issuer": "http://localhost:1"})
    ) as two:
        assert went(two, BEGIN).headers["location"] == "/login?fault=provider"
        assert "http://localhost:1 is no provider of OpenID Connect" in caplog.text


def test_a_refresh_token_is_asked_for_with_the_user_s_consent(provider: OidcProvider) -> None:
    """Without it oidc-provider ignores the scope."""
    one = SingleSignOn(properties(provider, **{"console.oidc.scope": "openid offline_access"}))
    assert "prompt=consent" in one.begin("http://127.0.0.1/back", "/")[1]
    assert "prompt" not in SingleSignOn(properties(provider)).begin("http://127.0.0.1/back", "/")[1]


def test_a_token_is_replaced_by_the_refresh_token(provider: OidcProvider) -> None:
    one = SingleSignOn(properties(provider))
    key, url = one.begin("http://127.0.0.1/back", "/")
    user, security, _ = one.finish(key, back_from_provider(url).partition("?")[2])
    assert security.login is not None and (user, security.login.mechanism) == ("alice", "OAUTHBEARER")
    assert b"auth=Bearer " in security.login.exchange("").first() and provider.refreshed == []
    tokens = one.refreshed("http://127.0.0.1/back", "refresh-alice")
    assert provider.refreshed == ["refresh-alice"] and tokens["access_token"]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"console.oidc.issuer": "provider"}, "must be https://HOST/PATH"),
        ({"console.oidc.client.id": ""}, "needs console.oidc.client.id"),
        ({"console.oidc.clientid": "x"}, "console.oidc.clientid is unknown"),
        ({"security.protocol": "PLAINTEXT"}, "needs security.protocol=SASL_SSL or SASL_PLAINTEXT"),
    ],
)
def test_properties_that_name_no_provider_are_refused(provider: OidcProvider, more: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why), console("localhost:1", properties=properties(provider, **more)):
        pass
