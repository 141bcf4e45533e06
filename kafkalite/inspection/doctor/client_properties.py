"""Ready settings of clients for an endpoint: of Java and of our own commands, of librdkafka, of kafka-python.

Names in capitals stand for values that only the reader knows: PASSWORD, and files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from kafkalite.inspection.doctor.exposure import Endpoint

CLIENTS = ("java", "librdkafka", "kafka-python")
PASSWORD = "PASSWORD"
_CA = "CA.pem"
_CLIENT_PEM = "CLIENT.pem"
_SERVICE = "kafka"
_ISSUER = "https://ISSUER/token"
_MODULES = "org.apache.kafka.common.security"
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def client_properties(kind: str, endpoint: Endpoint, mechanism: str | None, user: str) -> str:
    """The settings for one of CLIENTS, as text with a line end; a dictionary of Python for kafka-python."""
    values = _MAKERS[kind](endpoint, mechanism, user)
    if kind == "kafka-python":
        lines = "".join(f'    "{name}": {_literal(value)},\n' for name, value in values.items())
        return f"settings = {{\n{lines}}}\n"
    return "".join(f"{name}={value}\n" for name, value in values.items())


def _java(endpoint: Endpoint, mechanism: str | None, user: str) -> Mapping[str, str]:
    values = {"bootstrap.servers": endpoint.dialled, "security.protocol": endpoint.protocol}
    if mechanism is not None:
        values["sasl.mechanism"] = mechanism
        values |= _java_login(endpoint, mechanism, user)
    if endpoint.has_tls:
        values |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": endpoint.ca or _CA}
    if endpoint.client_auth == "required":
        values |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": _CLIENT_PEM}
    return values


def _java_login(endpoint: Endpoint, mechanism: str, user: str) -> dict[str, str]:
    if mechanism == "GSSAPI":
        module = f"com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true principal={_quoted(user)};"
        return {"sasl.kerberos.service.name": endpoint.service or _SERVICE, "sasl.jaas.config": module}
    bearer = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required"
    if mechanism == "OAUTHBEARER" and endpoint.takes_unsecured_tokens:
        return {"sasl.jaas.config": f"{bearer} unsecuredLoginStringClaim_sub={_quoted(user)};"}
    if mechanism == "OAUTHBEARER":  # the handler had another name before Kafka 3.4
        return {
            "sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": endpoint.token_url or _ISSUER,
            "sasl.jaas.config": f"{bearer} clientId={_quoted(user)} clientSecret={_quoted(PASSWORD)};",
        }
    module = "scram.ScramLoginModule" if mechanism in _SCRAM else "plain.PlainLoginModule"
    return {"sasl.jaas.config": f"{_MODULES}.{module} required username={_quoted(user)} password={_quoted(PASSWORD)};"}


def _librdkafka(endpoint: Endpoint, mechanism: str | None, user: str) -> Mapping[str, str]:
    values = {"bootstrap.servers": endpoint.dialled, "security.protocol": endpoint.protocol}
    if mechanism is not None:
        values["sasl.mechanism"] = mechanism
    if mechanism == "GSSAPI":
        values |= {"sasl.kerberos.service.name": endpoint.service or _SERVICE, "sasl.kerberos.principal": user}
    elif mechanism == "OAUTHBEARER" and endpoint.takes_unsecured_tokens:
        values |= {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={user}",
        }
    elif mechanism == "OAUTHBEARER":
        values |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": user,
            "sasl.oauthbearer.client.secret": PASSWORD,
            "sasl.oauthbearer.token.endpoint.url": endpoint.token_url or _ISSUER,
        }
    elif mechanism is not None:
        values |= {"sasl.username": user, "sasl.password": PASSWORD}
    if endpoint.has_tls:
        values["ssl.ca.location"] = endpoint.ca or _CA
    if endpoint.client_auth == "required":
        values |= {"ssl.certificate.location": _CLIENT_PEM, "ssl.key.location": _CLIENT_PEM}
    return values


def _kafka_python(endpoint: Endpoint, mechanism: str | None, user: str) -> Mapping[str, str]:
    values = {"bootstrap_servers": endpoint.dialled, "security_protocol": endpoint.protocol}
    if mechanism is not None:
        values["sasl_mechanism"] = mechanism
    if mechanism == "GSSAPI":
        values["sasl_kerberos_service_name"] = endpoint.service or _SERVICE
    elif mechanism == "OAUTHBEARER":
        values["sasl_oauth_token_provider"] = "# an AbstractTokenProvider of yours"
    elif mechanism is not None:
        values |= {"sasl_plain_username": user, "sasl_plain_password": PASSWORD}
    if endpoint.has_tls:
        values["ssl_cafile"] = endpoint.ca or _CA
    if endpoint.client_auth == "required":
        values |= {"ssl_certfile": _CLIENT_PEM, "ssl_keyfile": _CLIENT_PEM}
    return values


_MAKERS: Mapping[str, Callable[[Endpoint, str | None, str], Mapping[str, str]]] = {
    "java": _java,
    "librdkafka": _librdkafka,
    "kafka-python": _kafka_python,
}


def _quoted(text: str) -> str:
    """For JAAS within a properties file: a backslash is doubled for each of the two."""
    return '"' + text.replace("\\", "\\\\\\\\").replace('"', '\\\\"') + '"'


def _literal(value: str) -> str:
    return f"None,  {value}" if value.startswith("#") else json.dumps(value)
