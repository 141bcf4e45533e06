"""The settings of a session with ZooKeeper, taken from the broker's settings and checked before the first connection.

Kafka takes credentials from a JAAS file, which is specific to Java; the settings zookeeper.digest and zookeeper.sasl.*
are kafkalite's own. Keys and certificates are PEM files; keytool and openssl convert a Java key store.
Source: org.apache.kafka.server.config.ZkConfigs, kafka.server.KafkaServer.initZkClient (settings that need each other).
"""

from __future__ import annotations

import importlib.util
import ssl
from collections.abc import Callable
from typing import NamedTuple, Protocol

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.zk.client.connection import Connection
from kafkalite.zk.client.operations import ConnectionState


class TlsConfig(NamedTuple):
    """Names of PEM files, or None. `check_host`: the servers' certificates must name them."""

    keystore: str | None = None
    keystore_password: str | None = None
    truststore: str | None = None
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    check_host: bool = True

    def context(self) -> ssl.SSLContext:
        """Trusts the trust store, or without one the system's authorities. Raises ConfigError for a bad file."""
        context = ssl.create_default_context() if self.truststore is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.check_host
        versions = [ssl.TLSVersion.TLSv1_3 if each == "TLSv1.3" else ssl.TLSVersion.TLSv1_2 for each in self.protocols]
        context.minimum_version, context.maximum_version = min(versions), max(versions)
        if self.truststore is not None:
            try:
                context.load_verify_locations(self.truststore)
            except OSError as fault:
                raise _bad_file("zookeeper.ssl.truststore.location", self.truststore, fault) from None
        if self.keystore is not None:
            # without a password, OpenSSL would ask for it on the terminal
            password = self.keystore_password or ""
            try:
                context.load_cert_chain(self.keystore, password=lambda: password)
            except OSError as fault:
                raise _bad_file("zookeeper.ssl.keystore.location", self.keystore, fault) from None
        return context


class SaslConfig(NamedTuple):
    mechanism: str
    username: str | None = None
    password: str | None = None


class Dial(Protocol):
    """Makes a connection, which is not open yet. It calls `on_end` if it gives up, and does not come back then."""

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
        return None
    return SaslConfig(mechanism, config.zookeeper_sasl_username, config.zookeeper_sasl_password)


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
    )


def _bad_file(setting: str, path: str, fault: OSError) -> ConfigError:
    if isinstance(fault, ssl.SSLError):
        return ConfigError(f"{setting}={path}: is not a PEM file that can be read with this password: {fault}")
    return ConfigError(f"{setting}={path}: {fault.strerror or fault}")
