"""Security of a command's connections: security.protocol, ssl.* and sasl.*, with Kafka's names for clients.

They stand in a file that is given as --command-config, as for Kafka's own tools. Its other properties are not looked
at: such files are shared by several tools.
Source: org.apache.kafka.clients.CommonClientConfigs, org.apache.kafka.common.config.{SslConfigs, SaslConfigs}.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping

from kafkalite.client.logins import login_of, value_of
from kafkalite.common.errors import ConfigError
from kafkalite.config.listeners import PROTOCOLS
from kafkalite.config.properties import read_properties
from kafkalite.config.tls import TlsSettings, client_context
from kafkalite.security.sasl.client_exchange import Login
from kafkalite.security.sasl.jaas import parse_jaas


class ClientSecurity:
    """The beginning of a connection: TLS if there is a context, then the login if there is one."""

    def __init__(self, context: ssl.SSLContext | None = None, login: Login | None = None) -> None:
        self._context = context
        self.login = login

    @classmethod
    def of(cls, properties: Mapping[str, str], login: Login | None = None) -> ClientSecurity:
        """The security that a client's properties ask for, with `login` in place of theirs. Raises ConfigError."""
        protocol = properties.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol not in PROTOCOLS:
            raise ConfigError(f"security.protocol={protocol[:40]} is not one of {', '.join(PROTOCOLS)}")
        if login is None and protocol.startswith("SASL_"):
            login = _login(properties)
        if not protocol.endswith("SSL"):
            return cls(None, login)
        return cls(client_context(TlsSettings.read(lambda name: value_of(properties, name))), login)

    @classmethod
    def of_file(cls, path: str | None) -> ClientSecurity:
        """The security that this file asks for; none without a file. Raises ConfigError."""
        return cls.of(read_properties(path)) if path is not None else cls()

    def secure(self, sock: socket.socket, host: str) -> socket.socket:
        """The socket to be used in place of `sock`, which belongs to the result. Raises OSError, whose text is for the
        operator."""
        if self._context is None:
            return sock
        try:
            return self._context.wrap_socket(sock, server_hostname=host)
        except ssl.SSLCertVerificationError as fault:
            raise OSError(f"its certificate is not accepted ({fault.verify_message}); see ssl.truststore") from fault
        except ssl.SSLError as fault:
            raise OSError(f"it does not speak TLS as it should ({fault.reason}); see security.protocol") from fault


def _login(properties: Mapping[str, str]) -> Login:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip().upper()
    text = properties.get("sasl.jaas.config")
    if text is None:
        raise ConfigError(
            "sasl.jaas.config is not set: it has the login, such as org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="alice" password="...";'
        )
    try:
        return login_of(mechanism, parse_jaas(text), lambda name: value_of(properties, name))
    except ValueError as fault:
        raise ConfigError(f"sasl.jaas.config with sasl.mechanism={mechanism[:40]} {fault}") from None
