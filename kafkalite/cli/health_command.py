"""`kafkalite health`: whether a broker answers, as an exit code, for the health checks of containers and supervisors.

Without --bootstrap-server it checks the broker that `kafkalite serve` would run with the same file and environment.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalite.cli.command_config import add_command_config, add_running_broker, add_timeout, security_of
from kafkalite.cli.config_command import own_config
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import Unanswered
from kafkalite.common.output import complain, say
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import LOOPBACK_OF
from kafkalite.protocol.messages.metadata import ApiVersionsRequest, MetadataRequest

if TYPE_CHECKING:
    from kafkalite.client.logins import ClientSecurity
    from kafkalite.config.listeners import ListenerConfig
    from kafkalite.security.sasl.client_exchange import Login

_VERSION = 9


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of `kafkalite health`."""
    command.description = "Check whether a broker serves. The exit code is 0 if it does."
    command.add_argument("config", nargs="?", metavar="server.properties", help="the settings of the broker")
    command.add_argument("--config", dest="config_option", metavar="FILE", help="the same as server.properties")
    add_running_broker(
        command,
        "the broker to check, or several with commas between them, all of which must serve (default: the first "
        "listener of the settings and of KAFKA_LISTENERS)",
    )
    add_command_config(command)
    add_timeout(command, 5.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    options.config = options.config_option or options.config
    address, security = options.bootstrap_server, security_of(options)
    if address is None:
        config = own_config(options.config, os.environ)
        listener = _listener_to_check(config)
        address = _address_of(listener)
        if security is None and listener.protocol != "PLAINTEXT":
            security = _own_security(config, listener)
            if listener.protocol.startswith("SASL_") and security.login is None:
                return _check_without_login(address, options.timeout, security)
    checks = [_check(one.strip(), options.timeout, security) for one in address.split(",") if one.strip()]
    return max(checks, default=1)


def _check(address: str, timeout_s: float, security: ClientSecurity | None) -> int:
    """The exit code for one broker."""
    try:
        with BlockingClient(address, timeout_s, security) as client:
            answer = client.ask(MetadataRequest(topics=[]), _VERSION)
    except Unanswered as error:
        return complain(str(error))
    if len(answer.brokers) <= 1 and answer.controller_id < 0:
        return complain(
            f"{address} answers, but its metadata has no controller and no other broker: it is not registered"
        )
    say(f"{address} serves, one of {len(answer.brokers)} in cluster {answer.cluster_id}")
    return 0


def own_address(config: str | None, environment: Mapping[str, str]) -> str:
    """host:port of the listener to check. Raises ConfigError."""
    return _address_of(_listener_to_check(own_config(config, environment)))


def _listener_to_check(config: BrokerConfig) -> ListenerConfig:
    """The first listener without security, else the first."""
    plain = (each for each in config.listeners if each.protocol == "PLAINTEXT")
    return next(plain, config.listeners[0])


def _address_of(listener: ListenerConfig) -> str:
    return listener._replace(host=LOOPBACK_OF.get(listener.host, listener.host)).address


def _check_without_login(address: str, timeout_s: float, security: ClientSecurity) -> int:
    """The exit code for a broker that requires a login. It answers only ApiVersions without one, which is enough."""
    with BlockingClient(address, timeout_s, security) as client:
        client.ask(ApiVersionsRequest(), 0)
    say(f"{address} serves clients that log in; give a login by --command-config for more")
    return 0


def _own_security(config: BrokerConfig, listener: ListenerConfig) -> ClientSecurity:
    """The broker's own certificate and login. The other end is this machine, so its certificate is not verified."""
    from kafkalite.client.logins import ClientSecurity

    login = _own_login(config, listener) if listener.protocol.startswith("SASL_") else None
    if not listener.protocol.endswith("SSL"):
        return ClientSecurity(None, login)
    import ssl

    from kafkalite.config.tls import TlsSettings, client_context

    context = client_context(TlsSettings.read(lambda name: config.listener_setting(listener.name, name)))
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return ClientSecurity(context, login)


def _own_login(config: BrokerConfig, listener: ListenerConfig) -> Login | None:
    """The first login module of the listener that has a username and a password."""
    from kafkalite.config.jaas import login_module
    from kafkalite.security.sasl.client_exchange import login_of

    for mechanism in config.listener_setting(listener.name, "sasl.enabled.mechanisms"):
        found = login_module(config, listener.name, mechanism)
        with contextlib.suppress(ValueError):
            if found is not None:
                return login_of(mechanism, found.module.options)
    return None
