"""The login of a client's properties, as Kafka's clients have them: what is understood, and what is refused."""

from __future__ import annotations

import re
import time

import pytest

from kafkalite.client.logins import MECHANISMS, SETTINGS, ClientSecurity
from kafkalite.client.sasl_login import NoCredential, conversation
from kafkalite.common.errors import ConfigError
from kafkalite.config.security_settings import SecuritySettings
from kafkalite.protocol.messages.sasl import SaslHandshakeResponse
from kafkalite.security.sasl.client_exchange import Login
from kafkalite.security.sasl.jwt import TokenRules, verify_unsecured
from tests.support.certificates import Authority
from tests.support.token_server import TokenServer, token_server

PACKAGE = "org.apache.kafka.common.security.oauthbearer."
HANDLER = f"{PACKAGE}OAuthBearerLoginCallbackHandler"
MODULE = f"{PACKAGE}OAuthBearerLoginModule required"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required"


def login(jaas: str, mechanism: str = "OAUTHBEARER", **properties: str) -> Login:
    given = {name.replace("_", "."): text for name, text in properties.items()}
    found = ClientSecurity.of(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas, **given}
    ).login
    assert found is not None
    return found


def first_token(found: Login) -> str:
    """Its first message, as text."""
    talk = conversation(found, "localhost")
    next(talk)
    return bytes(talk.send(SaslHandshakeResponse())[0].auth_bytes).decode()  # type: ignore[attr-defined]


def test_every_setting_of_logins_is_one_of_brokers_too() -> None:
    assert set(SETTINGS) <= SecuritySettings.by_name.keys()


def test_a_token_of_an_authority() -> None:
    with token_server(TokenServer({"me": "s3cret"})) as server:
        found = login(
            f'{MODULE} clientId="me" clientSecret="s3cret" scope="read" extension_tenant="blue";',
            sasl_login_callback_handler_class=HANDLER,
            sasl_oauthbearer_token_endpoint_url=server.url,
        )
        assert not server.asked  # nobody logs in yet
        said = first_token(found)
        assert re.fullmatch("n,,\x01auth=Bearer [^\x01]+\x01tenant=blue\x01\x01", said)
        assert first_token(found) == said and [each.scope for each in server.asked] == ["read"]


def test_the_deprecated_name_of_the_handler_is_known() -> None:
    login(
        f'{MODULE} clientId="a" clientSecret="b";',
        sasl_login_callback_handler_class=f"{PACKAGE}secured.OAuthBearerLoginCallbackHandler",
        sasl_oauthbearer_token_endpoint_url="https://login.example/",
    )


def test_tls_of_the_authority_is_set_in_the_login_module(tmp_path) -> None:  # type: ignore[no-untyped-def]
    import ssl

    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.identify().write(tmp_path / "server.pem"))
    trusted = authority.write(tmp_path / "ca.pem")
    with token_server(TokenServer({"me": "s3cret"}), context) as server:

        def by(options: str) -> Login:
            return login(
                f'{MODULE} clientId="me" clientSecret="s3cret" {options};',
                sasl_login_callback_handler_class=HANDLER,
                sasl_oauthbearer_token_endpoint_url=server.url,
                sasl_login_retry_backoff_max_ms="0",
            )

        first_token(by(f'ssl.truststore.type=PEM ssl.truststore.location="{trusted}"'))
        with pytest.raises(NoCredential, match=r"no credential for OAUTHBEARER: https://localhost.*certificate"):
            first_token(by(""))
        with pytest.raises(ConfigError, match=r"ssl.truststore.type='BKS' of the login module"):
            by("ssl.truststore.type=BKS")


def test_a_token_in_a_file_needs_no_client(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "token"
    file.write_text("a.b.c")
    found = login(
        f"{MODULE};", sasl_login_callback_handler_class=HANDLER, sasl_oauthbearer_token_endpoint_url=file.as_uri()
    )
    with pytest.raises(NoCredential, match=r"the token of file:///.*/token is invalid"):
        first_token(found)


def test_an_unsecured_token() -> None:
    found = login(f'{MODULE} unsecuredLoginStringClaim_sub="me" unsecuredLoginExtension_traceId="7";')
    said = first_token(found)
    token = said.split("Bearer ")[1].split("\x01")[0]
    assert verify_unsecured(token, TokenRules(), time.time() * 1000).name == "me" and said.endswith(
        "\x01traceId=7\x01\x01"
    )


URL = {"sasl_oauthbearer_token_endpoint_url": "https://login.example/", "sasl_login_callback_handler_class": HANDLER}


@pytest.mark.parametrize(
    ("jaas", "properties", "fault"),
    [
        (f"{MODULE};", {}, f"sasl.login.callback.handler.class is not set.*{HANDLER} with sasl.oauthbearer.token.end"),
        (f"{MODULE};", URL, r'with sasl.mechanism=OAUTHBEARER has no clientId="\.\.\." and clientSecret='),
        (f'{MODULE} clientId="a" clientSecret="hidden" extension_a1="b";', URL, "has extension_a1"),
        (f'{MODULE} clientId="a" clientSecret="hidden";', {**URL, "sasl_login_retry_backoff_ms": "x"}, "backoff.ms=.x"),
        (f'{MODULE} unsecuredLoginNumberClaim_exp="1";', {}, "the claim exp is made here"),
        (
            f'{MODULE} clientId="a";',
            {"sasl_login_callback_handler_class": "a.B"},
            "=a.B: kafkalite runs no Java classes",
        ),
    ],
)
def test_what_is_missing_is_said(jaas: str, properties: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault) as refusal:
        login(jaas, **properties)
    assert "hidden" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "properties", "fault"),
    [
        ("useTicketCache=true", {}, "sasl.kerberos.service.name is not set"),
        ("useTicketCache=true serviceName=other", {"sasl_kerberos_service_name": "kafka"}, "are not the same"),
        ("", {"sasl_kerberos_service_name": "kafka"}, "has neither useKeyTab=true with"),
        ("useKeyTab=true serviceName=kafka", {}, "has useKeyTab=true and no keyTab"),
        ('useKeyTab=true serviceName=kafka keyTab="/dev/null"', {}, "has useKeyTab=true and no principal"),
    ],
)
def test_what_a_ticket_needs(options: str, properties: dict[str, str], fault: str) -> None:
    pytest.importorskip("gssapi")
    with pytest.raises(ConfigError, match=fault):
        login(f"{KRB5} {options};", "GSSAPI", **properties)


def test_an_unknown_mechanism() -> None:
    with pytest.raises(ConfigError, match=f"is for the mechanism 'DIGEST', and logins are by {', '.join(MECHANISMS)}"):
        login(f"{MODULE};", "DIGEST")
