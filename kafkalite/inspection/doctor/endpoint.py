"""An endpoint as seen by clients, with its address, protocol and mechanisms, and the warnings of the doctor."""

from __future__ import annotations

import contextlib
import ipaddress
from typing import NamedTuple

from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.security.sasl.jaas import login_module


class Finding(NamedTuple):
    """Both are sentences without a full stop."""

    fault: str
    remedy: str


_EVERY_HOST = ("", "0.0.0.0", "::", "0:0:0:0:0:0:0:0")


class Endpoint(NamedTuple):
    """`address` is where it listens; `advertised` what clients are told to dial (None: the address that they dialled).
    `ca`: the file with the authorities that sign certificates, if it is known. `client_auth`: none, requested or
    required. `token_url`: where tokens of OAUTHBEARER are given; `service`: the first part of the broker's principal of
    Kerberos; both if they are known."""

    listener: str
    protocol: str
    address: str
    advertised: str | None = None
    mechanisms: tuple[str, ...] = ()
    client_auth: str = "none"
    ca: str | None = None
    is_bound_to_all: bool = False
    takes_unsecured_tokens: bool = False
    token_url: str | None = None
    service: str | None = None

    @property
    def dialled(self) -> str:
        """The address for clients to begin with."""
        return self.advertised or self.address

    @property
    def port(self) -> str:
        return self.address.rpartition(":")[2]

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL_")

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach it."""
        return self.is_bound_to_all or not is_loopback(host_of(self.address))

    @property
    def knows_its_clients(self) -> bool:
        """Whether nobody gets in without saying who he is."""
        return self.has_sasl or (self.has_tls and self.client_auth == "required")


def endpoints_of(config: BrokerConfig, machine: str) -> list[Endpoint]:
    """The listeners of a broker with these settings. `machine` is the name of the host, by which clients reach
    listeners of every interface."""
    found = []
    for one in config.listeners:
        to_all = one.host in _EVERY_HOST
        advertised = config.advertised(one.name)
        auth = config.listener_setting(one.name, "ssl.client.auth")
        if one.protocol == "SASL_SSL" and not config.is_set_for_listener(one.name, "ssl.client.auth"):
            auth = "none"  # as in Kafka
        found.append(
            Endpoint(
                one.name,
                one.protocol,
                (one._replace(host=machine) if to_all else one).address,
                advertised.address if advertised is not None else None,
                config.listener_setting(one.name, "sasl.enabled.mechanisms") if "SASL" in one.protocol else (),
                auth if one.protocol.endswith("SSL") else "none",
                _authorities(config, one.name),
                to_all,
                _takes_unsecured_tokens(config, one),
                config.listener_setting(one.name, "sasl.oauthbearer.token.endpoint.url", "OAUTHBEARER"),
                _service(config, one.name),
            )
        )
    return found


def _authorities(config: BrokerConfig, listener: str) -> str | None:
    """The broker's own trust store is likely to have the authority of its certificate."""
    path: str | None = config.listener_setting(listener, "ssl.truststore.location")
    return path if path is not None and not path.endswith((".p12", ".pfx", ".jks")) else None


def _takes_unsecured_tokens(config: BrokerConfig, listener: ListenerConfig) -> bool:
    mechanisms = config.listener_setting(listener.name, "sasl.enabled.mechanisms")
    if not listener.protocol.startswith("SASL_") or "OAUTHBEARER" not in mechanisms:
        return False
    handler = config.listener_setting(listener.name, "sasl.server.callback.handler.class", "OAUTHBEARER") or ""
    return not handler.endswith(".OAuthBearerValidatorCallbackHandler")  # a start needs one, or options that say so


def _service(config: BrokerConfig, listener: str) -> str | None:
    """The one of the settings, or that of the principal whose keys the broker has."""
    named: str | None = config.listener_setting(listener, "sasl.kerberos.service.name", "GSSAPI")
    if named:
        return named
    with contextlib.suppress(ConfigError):  # a start says what is wrong
        found = login_module(config, listener, "GSSAPI")
        if found is not None and found.module.name.endswith("Krb5LoginModule"):
            return found.module.options.get("principal", "").partition("@")[0].partition("/")[0] or None
    return None


def host_of(address: str) -> str:
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def is_loopback(host: str) -> bool:
    """Whether nobody outside of this machine is reached, or reaches, there."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"
