"""A provider of OpenID Connect over HTTP: everyone is the user that the test names; codes are checked with PKCE."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.support.tokens import TokenAuthority

CLIENT_ID, CLIENT_SECRET = "console", "c-s3cret"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"


def console_properties(issuer: str, **more: str) -> dict[str, str]:
    """The client properties of a console whose users log in at a provider."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "console.oidc.issuer": issuer,
        "console.oidc.client.id": CLIENT_ID,
        "console.oidc.client.secret": CLIENT_SECRET,
        **more,
    }


def broker_settings(keys_url: str) -> dict[str, str]:
    """Of a broker that takes the provider's tokens; the super user `alice` may see topics, and others none."""
    return {
        "listeners": "SECURE://127.0.0.1:0",
        "listener_security_protocol_map": "SECURE:SASL_PLAINTEXT",
        "inter_broker_listener_name": "SECURE",
        "sasl_enabled_mechanisms": "OAUTHBEARER,PLAIN",
        "sasl_mechanism_inter_broker_protocol": "PLAIN",
        "listener_name_secure_plain_sasl_jaas_config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="a-secret";'
        ),
        "listener_name_secure_oauthbearer_sasl_jaas_config": f"{_PACKAGE}.OAuthBearerLoginModule required ;",
        "listener_name_secure_oauthbearer_sasl_server_callback_handler_class": (
            f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
        ),
        "sasl_oauthbearer_jwks_endpoint_url": keys_url,
        "sasl_oauthbearer_expected_audience": "kafka",
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:admin;User:alice",
    }


class OidcProvider:
    """`user` logs in next. `issuer_in_discovery` may lie; `lifetime_s` is that of an access token."""

    def __init__(self) -> None:
        self.authority = TokenAuthority()
        self.user = "alice"
        self.lifetime_s = 3600.0
        self.gives_refresh_token = True
        self.url = ""
        self.issuer_in_discovery: str | None = None
        self.codes: dict[str, dict[str, str]] = {}
        self.refreshed: list[str] = []
        self.faults: list[str] = []

    def discovery(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer_in_discovery or self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }

    def authorize(self, query: dict[str, str]) -> str:
        """The address that the browser is sent back to."""
        assert query["response_type"] == "code" and query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256" and "openid" in query["scope"].split()
        code = secrets.token_urlsafe(8)
        self.codes[code] = {**query, "user": self.user}
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        login = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {login}":
            return self._refused("invalid_client")
        if form["grant_type"] == "refresh_token":
            self.refreshed.append(form["refresh_token"])
            return 200, self._tokens(form["refresh_token"].removeprefix("refresh-"))
        begun = self.codes.pop(form["code"], None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if begun is None or begun["code_challenge"] != challenge or begun["redirect_uri"] != form["redirect_uri"]:
            return self._refused("invalid_grant")
        return 200, self._tokens(begun["user"])

    def _refused(self, error: str) -> tuple[int, dict[str, Any]]:
        self.faults.append(error)
        return 400, {"error": error}

    def _tokens(self, user: str) -> dict[str, Any]:
        now = int(time.time())
        claims = {"sub": user, "iat": now - 1, "exp": now + self.lifetime_s, "aud": "kafka", "iss": self.url}
        found = {"access_token": self.authority.sign(**claims), "token_type": "Bearer", "expires_in": self.lifetime_s}
        return {**found, "refresh_token": f"refresh-{user}"} if self.gives_refresh_token else found


@contextmanager
def oidc_provider() -> Iterator[OidcProvider]:
    provider = OidcProvider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            if parts.path == "/authorize":
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                self.send_response(302)
                self.send_header("Location", provider.authorize(query))
                self.end_headers()
            elif parts.path == "/keys":
                self._say(200, json.loads(provider.authority.jwks))
            else:
                assert parts.path == "/.well-known/openid-configuration", parts.path
                self._say(200, provider.discovery())

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            fields = {name: values[0] for name, values in form.items()}
            self._say(*provider.token(fields, self.headers.get("Authorization", "")))

        def _say(self, status: int, body: Any) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        provider.url = f"http://localhost:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield provider
        finally:
            http.shutdown()
            thread.join()
