"""A broker with a listener of every kind, the logins that get in, and those that are refused.

The settings are Kafka's, and the same for both brokers.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.compatibility.clients.login_clients import Login
from tests.compatibility.interop.zookeeper_kafka import ZooKeeperKafka
from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.support.tokens import TokenAuthority
from tests.support.wait import DEADLINE_S

PROTOCOLS = {  # of each listener
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "MUTUAL": "SSL",  # asks for a certificate
    "EXPIRED": "SSL",  # the certificate of the broker is
    "ELSEWHERE": "SSL",  # so is the host that its certificate names
    "ONLY_PLAIN": "SASL_PLAINTEXT",  # no other mechanism
}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USER, PASSWORD = "alice", "wonderland"
WAIT_MS = 3_000  # for clients that keep retrying
_MODULES = "org.apache.kafka.common.security"
_DAY = dt.timedelta(days=1)


class Site:
    """The settings of a broker and of its clients. `admit` makes the users of SCRAM, once the broker runs."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.addresses = {name: f"127.0.0.1:{free_port()}" for name in PROTOCOLS}
        authority, stranger = Authority(), Authority("strangers")
        self.ca = authority.write(home / "ca.pem")
        self.other_ca = stranger.write(home / "other-ca.pem")
        self.identity = authority.identify("client", hosts=()).write(home / "client.pem")
        self._keys = {
            "ssl": authority.identify().write(home / "broker.pem"),
            "expired": authority.identify(valid=(-3 * _DAY, -2 * _DAY)).write(home / "expired.pem"),
            "elsewhere": authority.identify("elsewhere", hosts=("elsewhere",)).write(home / "elsewhere.pem"),
        }
        self._tokens = TokenAuthority()
        self._jwks = self._tokens.write(home / "jwks.json")

    @property
    def bootstrap(self) -> str:
        return self.addresses["PLAINTEXT"]

    def settings(self) -> dict[str, str]:
        settings = {
            "listeners": ",".join(f"{name}://{address}" for name, address in self.addresses.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in PROTOCOLS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.only_plain.sasl.enabled.mechanisms": "PLAIN",
            "sasl.oauthbearer.jwks.endpoint.url": self._jwks,
            "sasl.oauthbearer.expected.audience": "kafka",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._keys["ssl"],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listener.name.mutual.ssl.client.auth": "required",
        }
        for name in ("expired", "elsewhere"):
            settings[f"listener.name.{name}.ssl.keystore.type"] = "PEM"
            settings[f"listener.name.{name}.ssl.keystore.location"] = self._keys[name]
        for name in ("sasl_plaintext", "sasl_ssl", "only_plain"):
            prefix = f"listener.name.{name}"
            settings |= {
                f"{prefix}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required "
                f'user_{USER}="{PASSWORD}";',
                f"{prefix}.scram-sha-256.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
                f"{prefix}.scram-sha-512.sasl.jaas.config": f"{_MODULES}.scram.ScramLoginModule required;",
                f"{prefix}.oauthbearer.sasl.jaas.config": f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;",
                f"{prefix}.oauthbearer.sasl.server.callback.handler.class": f"{_MODULES}.oauthbearer.secured."
                "OAuthBearerValidatorCallbackHandler",
            }
        return settings

    def admit(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
            for future in admin.alter_user_scram_credentials([wanted]).values():
                future.result(DEADLINE_S)

    def login(self, listener: str, mechanism: str = "PLAIN", *, protocol: str = "") -> Login:
        """One that is let in; `protocol`: which the client believes the listener to have."""
        return Login(
            self.addresses[listener], protocol or PROTOCOLS[listener], mechanism, USER, PASSWORD, self.token(), self.ca
        )

    def token(self, *, age_s: int = 0) -> str:
        now_s = int(time.time()) - age_s
        return self._tokens.sign(sub=USER, aud="kafka", iat=now_s, exp=now_s + 300)

    def forged_token(self) -> str:
        now_s = int(time.time())
        return TokenAuthority().sign(sub=USER, aud="kafka", iat=now_s, exp=now_s + 300)


Way = Callable[[Site], Login]


def _by(listener: str, mechanism: str) -> Way:
    return lambda site: site.login(listener, mechanism)


def _refused(listener: str, mechanism: str = "PLAIN", *, protocol: str = "", **changes: str) -> Way:
    return lambda site: site.login(listener, mechanism, protocol=protocol)._replace(limit_ms=WAIT_MS, **changes)  # type: ignore[arg-type]


WAYS: dict[str, Way] = {
    "PLAINTEXT": _by("PLAINTEXT", "PLAIN"),
    "SSL": _by("SSL", "PLAIN"),
    "SSL, with a certificate of the client": lambda site: site.login("MUTUAL")._replace(identity=site.identity),
    **{f"{name}, {each}": _by(name, each) for name in ("SASL_PLAINTEXT", "SASL_SSL") for each in MECHANISMS},
}

REFUSALS: dict[str, Way] = {
    "a wrong password, PLAIN": _refused("SASL_PLAINTEXT", password="wrong"),
    "a wrong password, SCRAM-SHA-256": _refused("SASL_PLAINTEXT", "SCRAM-SHA-256", password="wrong"),
    "a wrong password, SCRAM-SHA-512": _refused("SASL_PLAINTEXT", "SCRAM-SHA-512", password="wrong"),
    "a wrong password, by SASL_SSL": _refused("SASL_SSL", password="wrong"),
    "an unknown user, PLAIN": _refused("SASL_PLAINTEXT", username="mallory"),
    "an unknown user, SCRAM-SHA-256": _refused("SASL_PLAINTEXT", "SCRAM-SHA-256", username="mallory"),
    "an expired token": lambda site: _refused("SASL_PLAINTEXT", "OAUTHBEARER", token=site.token(age_s=900))(site),
    "a token that somebody else has signed": lambda site: _refused(
        "SASL_PLAINTEXT", "OAUTHBEARER", token=site.forged_token()
    )(site),
    "a mechanism that is not enabled": _refused("ONLY_PLAIN", "SCRAM-SHA-256"),
    "SASL where there is none": _refused("PLAINTEXT", protocol="SASL_PLAINTEXT"),
    "no SASL where there is": _refused("SASL_PLAINTEXT", protocol="PLAINTEXT"),
    "TLS where there is none": _refused("PLAINTEXT", protocol="SSL"),
    "no TLS where there is": _refused("SSL", protocol="PLAINTEXT"),
    "SASL without TLS where both are": _refused("SASL_SSL", protocol="SASL_PLAINTEXT"),
    "an authority that the client does not know": lambda site: _refused("SSL", ca=site.other_ca)(site),
    "an expired certificate of the broker": _refused("EXPIRED"),
    "a certificate that names another host": _refused("ELSEWHERE"),
    "no certificate where one is asked for": _refused("MUTUAL"),
}


class Explained(NamedTuple):
    """Why these clients say something else at Kafka."""

    why: str
    clients: frozenset[str]


_NO_ALERT = Explained(
    "Java answers bytes that are no TLS with an alert, which clients read as the length of an answer; OpenSSL closes "
    "the connection",
    frozenset({"franz-go", "sarama"}),
)
EXPLAINED = {
    "no TLS where there is": _NO_ALERT,
    "SASL without TLS where both are": _NO_ALERT,
    "no certificate where one is asked for": Explained(
        "OpenSSL sends TLS 1.3's alert for it, certificate_required; Java sends bad_certificate",
        frozenset({"confluent-kafka", "franz-go", "sarama", "KafkaJS"}),
    ),
}


JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required username=admin password=secret user_admin=secret;"
)
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def secured(kafka: ZooKeeperKafka) -> str:
    """Clients log in at one listener, whose address is returned; the controller asks its broker at another."""
    outside = f"127.0.0.1:{free_port()}"
    kafka.settings |= {
        "listeners": f"INSIDE://127.0.0.1:{kafka.port},SASL_PLAINTEXT://{outside}",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,INSIDE:PLAINTEXT",
        "inter.broker.listener.name": "INSIDE",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": SCRAM,
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    return outside
