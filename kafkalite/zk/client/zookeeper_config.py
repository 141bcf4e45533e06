"""The settings of a session with ZooKeeper, taken from the broker's settings and checked before the first connection.

Kafka takes credentials from a JAAS file, which is specific to Java; the settings zookeeper.digest and zookeeper.sasl.*
are kafkalite's own. Keys and certificates are those of listeners: PEM or PKCS12.
Source: org.apache.kafka.server.config.ZkConfigs, kafka.server.KafkaServer.initZkClient (settings that need each other).
"""

from __future__ import annotations

import importlib.util
import os
import re
import ssl
from collections.abc import Callable
from typing import Protocol

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.tls import TlsSettings, client_context
from kafkalite.zk.client.operations import ConnectionState
from kafkalite.zk.client.request_queue import Connection

_KINDS = {".p12": "PKCS12", ".pfx": "PKCS12", ".jks": "JKS"}


class TlsConfig(NamedTuple):
    """Files of keys and certificates, or None, with their types, and passwords. `check_host`: the servers' certificates
    must name them."""

    keystore: str | None = None
    keystore_password: str | None = None
    truststore: str | None = None
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    check_host: bool = True
    keystore_type: str | None = None
    truststore_type: str | None = None
    truststore_password: str | None = None
    cipher_suites: tuple[str, ...] = ()

    def __repr__(self) -> str:  # passwords are among them
        return f"TlsConfig({self.keystore}, {self.truststore})"

    def context(self) -> ssl.SSLContext:
        """Trusts the trust store, or without one the system's authorities. Raises ConfigError for a bad file."""
        kind = _kind(self.keystore, self.keystore_type)
        settings = TlsSettings(
            keystore_type=kind,
            keystore_location=self.keystore,
            keystore_password=None if kind == "PEM" else self.keystore_password,
            key_password=self.keystore_password if kind == "PEM" else None,  # ZooKeeper has one setting for both
            keystore_key=None,
            keystore_certificate_chain=None,
            truststore_type=_kind(self.truststore, self.truststore_type),
            truststore_location=self.truststore,
            truststore_password=self.truststore_password,
            truststore_certificates=None,
            client_auth="none",
            enabled_protocols=self.protocols,
            cipher_suites=self.cipher_suites,
            endpoint_identification_algorithm="https" if self.check_host else "",
        )
        try:
            return client_context(settings)
        except ConfigError as fault:
            text = re.sub(r"\bssl\.", "zookeeper.ssl.", str(fault))
            raise ConfigError(text.replace("ssl.key.password", "ssl.keystore.password")) from None


def _kind(path: str | None, given: str | None) -> str:
    """The type of a store; unless it is given, that of the end of its name, as ZooKeeper has it."""
    return given or _KINDS.get(os.path.splitext(path or "")[1].lower(), "PEM")


class SaslConfig(NamedTuple):
    mechanism: str
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"SaslConfig({self.mechanism}, {self.username})"


class Dial(Protocol):
    """Creates a connection, which is not open yet. It calls `on_end` if it stops reconnecting."""

    def __call__(
        self,
        settings: ZooKeeperConfig,
        *,
        on_state: Callable[[ConnectionState], None],
        on_watch_event: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> Connection: ...


class ZooKeeperConfig(NamedTuple):
    """`connect` is host:port,...[/chroot] as in Kafka; times are milliseconds. `dial`: None for a connection of kazoo's
    to these servers."""

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    set_acl: bool = False
    in_flight_max: int = 10
    digest: str | None = None  # user:password
    sasl: SaslConfig | None = None
    tls: TlsConfig | None = None
    dial: Dial | None = None

    def __repr__(self) -> str:  # the digest is a password
        return f"ZooKeeperConfig({self.connect})"

    @property
    def servers(self) -> str:
        """host:port,... without the chroot."""
        return self.connect.partition("/")[0]

    @property
    def chroot(self) -> str:
        """The chroot with a slash before it and none behind it; empty for the root of ZooKeeper."""
        parts = [part for part in self.connect.partition("/")[2].split("/") if part]
        return "".join(f"/{part}" for part in parts)

    @classmethod
    def of(cls, config: BrokerConfig, dial: Dial | None = None) -> ZooKeeperConfig:
        """The session's settings. Raises ConfigError for settings that exclude each other, and for missing files."""
        assert config.zookeeper_connect is not None
        settings = cls(
            config.zookeeper_connect,
            config.zookeeper_session_timeout_ms,
            config.zookeeper_connection_timeout_ms or config.zookeeper_session_timeout_ms,
            config.zookeeper_set_acl,
            config.zookeeper_max_in_flight_requests,
            config.zookeeper_digest,
            _sasl(config),
            _tls(config),
            dial,
        )
        settings.check()
        return settings

    def check(self) -> None:
        """Raises ConfigError, which names the setting that is missing or wrong."""
        if self.digest is not None and ":" not in self.digest:
            raise ConfigError("zookeeper.digest must be user:password")
        has_key = self.tls is not None and self.tls.keystore is not None
        if self.set_acl and self.digest is None and self.sasl is None and not has_key:
            raise ConfigError(
                "zookeeper.set.acl=true needs credentials: zookeeper.digest, zookeeper.sasl.username, "
                "or zookeeper.ssl.keystore.location with zookeeper.ssl.client.enable=true"
            )
        if self.sasl is not None and self.sasl.mechanism != "GSSAPI" and self.sasl.password is None:
            raise ConfigError("zookeeper.sasl.username needs zookeeper.sasl.password")
        if self.sasl is not None and importlib.util.find_spec("puresasl") is None:
            raise ConfigError("zookeeper.sasl.*: SASL needs the Python package pure-sasl; pip install pure-sasl")
        if self.sasl is not None and self.sasl.mechanism == "GSSAPI" and importlib.util.find_spec("kerberos") is None:
            raise ConfigError("zookeeper.sasl.mechanism=GSSAPI needs the Python package kerberos; pip install kerberos")
        if self.tls is not None:
            self.tls.context()


def _sasl(config: BrokerConfig) -> SaslConfig | None:
    mechanism = config.zookeeper_sasl_mechanism
    if mechanism == "DIGEST-MD5" and config.zookeeper_sasl_username is None:
        return _sasl_of_jaas(config)
    return SaslConfig(mechanism, config.zookeeper_sasl_username, config.zookeeper_sasl_password)


def _sasl_of_jaas(config: BrokerConfig) -> SaslConfig | None:
    """The section Client of the JAAS file, as ZooKeeper's own client has it."""
    from kafkalite.config.jaas import jaas_sections

    for module in jaas_sections(config).get("Client", ()):
        name = module.options.get("username")
        if module.name.endswith("DigestLoginModule") and name is not None:
            return SaslConfig("DIGEST-MD5", name, module.options.get("password"))
    return None


def _tls(config: BrokerConfig) -> TlsConfig | None:
    if not config.zookeeper_ssl_client_enable:
        return None
    return TlsConfig(
        config.zookeeper_ssl_keystore_location,
        config.zookeeper_ssl_keystore_password,
        config.zookeeper_ssl_truststore_location,
        # by default Kafka speaks 1.2 only, and ZooKeeper 3.9.5 takes 1.3 only
        config.zookeeper_ssl_enabled_protocols or (config.zookeeper_ssl_protocol, "TLSv1.3"),
        config.zookeeper_ssl_endpoint_identification_algorithm.upper() == "HTTPS",
        config.zookeeper_ssl_keystore_type,
        config.zookeeper_ssl_truststore_type,
        config.zookeeper_ssl_truststore_password,
        config.zookeeper_ssl_cipher_suites,
    )
