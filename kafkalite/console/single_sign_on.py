"""A login by OpenID Connect: the provider's access token is the user's login at the brokers (OAUTHBEARER).

The browser goes to the provider and comes back with a code, which is exchanged for tokens (authorization code flow with
PKCE, by Authlib). The brokers validate the access token, as that of any client, and name its user; the console trusts
nothing in it. A refresh token, if there is one, replaces the access token while the session lasts.

A login that has begun is bound to its browser by a cookie, and to the answer by a state; both are used once. The cookie
is SameSite=Lax, since the provider's page leads back here.
Source: RFC 6749, RFC 7636, OpenID Connect Core 1.0 and Discovery 1.0, KIP-255.
"""

from __future__ import annotations

import importlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from kafkalite.client.bearer_login import NoToken
from kafkalite.client.logins import ClientSecurity, by_access_token
from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable

COOKIE = "kafkalite_sign_on"
_PREFIX = "console.oidc."
ISSUER, CLIENT_ID, CLIENT_SECRET, SCOPE, REDIRECT_URI = (
    f"{_PREFIX}{name}" for name in ("issuer", "client.id", "client.secret", "scope", "redirect.uri")
)
PROPERTIES = (ISSUER, CLIENT_ID, CLIENT_SECRET, SCOPE, REDIRECT_URI)
_DISCOVERY = "/.well-known/openid-configuration"
_ENDPOINTS = ("authorization_endpoint", "token_endpoint")
_ASK_S = 10.0
_BEGUN_MAX, BEGUN_S_MAX = 1_000, 600.0
_VERIFIER_BYTES = 48


class SignOnFault(Exception):
    """The provider, or the browser, did not complete a login; the text is the reason, for the log."""


class Begun(NamedTuple):
    """A login on its way through the provider. `target` is the path of the console that it leads to."""

    state: str
    verifier: str
    redirect_uri: str
    target: str
    begun_s: float


class SingleSignOn:
    """The provider of one cluster's console."""

    def __init__(self, properties: Mapping[str, str], *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        """Raises ConfigError."""
        if unknown := [name for name in properties if name.startswith(_PREFIX) and name not in PROPERTIES]:
            raise ConfigError(f"{unknown[0]} is unknown; there are {', '.join(PROPERTIES)}")
        self._issuer = properties[ISSUER].strip().rstrip("/")
        self._client_id = properties.get(CLIENT_ID, "").strip()
        self._client_secret = properties.get(CLIENT_SECRET, "").strip() or None
        self._scope = properties.get(SCOPE, "openid").strip()
        # without it a provider may ignore the wish for a refresh token (OpenID Connect Core, 11)
        self._prompt = {"prompt": "consent"} if "offline_access" in self._scope.split() else {}
        self.redirect_uri = properties.get(REDIRECT_URI, "").strip() or None
        self._properties = properties
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._begun: OrderedDict[str, Begun] = OrderedDict()
        self._endpoints: dict[str, str] | None = None
        if urlsplit(self._issuer).scheme not in ("http", "https") or not urlsplit(self._issuer).hostname:
            raise ConfigError(f"{ISSUER} must be https://HOST/PATH, as the provider names itself")
        if not self._client_id:
            raise ConfigError(f"{ISSUER} needs {CLIENT_ID}, the console's name at the provider")
        try:
            self._library: Any = importlib.import_module("authlib.integrations.httpx_client")
            self._http: Any = importlib.import_module("httpx")
        except ModuleNotFoundError as missing:
            raise ConfigError(f"{ISSUER} needs the package {missing.name}: pip install kafkalite[oidc]") from None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> SingleSignOn | None:
        """The provider of a client's properties, if they name one. Raises ConfigError."""
        return cls(properties) if properties.get(ISSUER, "").strip() else None

    def begin(self, redirect_uri: str, target: str) -> tuple[str, str]:
        """The value of the browser's cookie, and the address that it goes to. Raises SignOnFault."""
        verifier, key = secrets.token_urlsafe(_VERIFIER_BYTES), secrets.token_urlsafe(32)
        with self._client(redirect_uri) as client:
            endpoint = self._endpoint("authorization_endpoint")
            url, state = client.create_authorization_url(endpoint, code_verifier=verifier, **self._prompt)
        with self._lock:
            self._begun[key] = Begun(state, verifier, redirect_uri, target, self._monotonic_s())
            while len(self._begun) > _BEGUN_MAX:
                self._begun.popitem(last=False)
        return key, url

    def finish(self, key: str | None, query: str) -> tuple[str, ClientSecurity, str]:
        """The user, its login at the brokers, and the path that it wanted, by the query with which the provider sent
        the browser back. Raises SignOnFault."""
        with self._lock:
            begun = self._begun.pop(key or "", None)
        if begun is None or self._monotonic_s() - begun.begun_s > BEGUN_S_MAX:
            raise SignOnFault("the login was not begun by this browser, or took too long")
        answer = f"{begun.redirect_uri}?{query}"
        tokens = self._asked(
            begun.redirect_uri,
            lambda client, endpoint: client.fetch_token(
                endpoint, authorization_response=answer, state=begun.state, code_verifier=begun.verifier
            ),
        )
        refresh_token = tokens.get("refresh_token")
        try:
            login = by_access_token(
                str(tokens.get("access_token", "")),
                self._properties,
                _Replacement(self, begun.redirect_uri, str(refresh_token)) if refresh_token else None,
            )
        except ValueError as fault:
            raise SignOnFault(f"the access token of the provider {fault}") from None
        return login.name, ClientSecurity.of(self._properties, login), begun.target

    def refreshed(self, redirect_uri: str, refresh_token: str) -> dict[str, Any]:
        """New tokens. Raises SignOnFault."""
        return self._asked(
            redirect_uri, lambda client, endpoint: client.refresh_token(endpoint, refresh_token=refresh_token)
        )

    def _asked(self, redirect_uri: str, ask: Callable[[Any, str], Mapping[str, Any]]) -> dict[str, Any]:
        """The tokens of a request. Raises SignOnFault: the library's errors have no common base."""
        with self._client(redirect_uri) as client:
            try:
                return dict(ask(client, self._endpoint("token_endpoint")))
            except SignOnFault:
                raise
            except Exception as fault:
                raise SignOnFault(printable(str(fault) or type(fault).__name__)[:300]) from None

    def _client(self, redirect_uri: str) -> Any:
        return self._library.OAuth2Client(
            self._client_id,
            self._client_secret,
            scope=self._scope,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            token_endpoint_auth_method="none" if self._client_secret is None else "client_secret_basic",
            timeout=_ASK_S,
        )

    def _endpoint(self, name: str) -> str:
        """An address of the provider, which is asked for them once. Raises SignOnFault."""
        if self._endpoints is None:
            try:
                answer = self._http.get(self._issuer + _DISCOVERY, timeout=_ASK_S).raise_for_status()
                found = answer.json()
                endpoints = {each: found[each] for each in _ENDPOINTS}
            except (self._http.HTTPError, ValueError, LookupError, TypeError) as fault:
                why = printable(str(fault) or type(fault).__name__)[:300]
                raise SignOnFault(f"{self._issuer} is no provider of OpenID Connect: {why}") from None
            if str(found.get("issuer", "")).rstrip("/") != self._issuer:
                raise SignOnFault(f"{self._issuer} names itself {printable(str(found.get('issuer')))[:200]}")
            self._endpoints = endpoints
        return self._endpoints[name]


@dataclass(slots=True)
class _Replacement:
    """Gets a new access token by the refresh token, which the provider may replace as well."""

    provider: SingleSignOn
    redirect_uri: str
    refresh_token: str = field(repr=False)

    def __call__(self) -> str:
        """Raises NoToken."""
        try:
            tokens = self.provider.refreshed(self.redirect_uri, self.refresh_token)
        except SignOnFault as fault:
            raise NoToken(f"the login has ended, log in again: {fault}", is_final=True) from None
        self.refresh_token = tokens.get("refresh_token") or self.refresh_token
        return str(tokens.get("access_token", ""))
