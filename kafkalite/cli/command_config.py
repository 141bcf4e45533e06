"""Options of the commands that ask brokers: their addresses, how long to wait, and --command-config, client properties
for TLS and SASL as Kafka's tools take them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kafkalite.cli.argument_types import seconds

if TYPE_CHECKING:
    from kafkalite.client.client_security import ClientSecurity

_DEFAULT_ADDRESS = "localhost:9092"


def add_bootstrap_server(command: argparse._ActionsContainer, *flags: str) -> None:
    """The option for the brokers to ask, `bootstrap_server` under each of these names."""
    command.add_argument(
        *flags,
        dest="bootstrap_server",
        default=_DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help=f"a running broker, or several with commas; of a cluster all are asked (default: {_DEFAULT_ADDRESS})",
    )


def add_command_config(command: argparse.ArgumentParser) -> None:
    """The option, `command_config`."""
    command.add_argument(
        *("--command-config", "--command-config-file"),
        metavar="FILE",
        help="client properties: security.protocol=SASL_SSL, sasl.mechanism, sasl.jaas.config, ssl.truststore..., ...",
    )


def add_timeout(command: argparse.ArgumentParser, default_s: float) -> None:
    """The option, `timeout` in seconds."""
    help_text = f"how long to wait (default: {default_s:g})"
    command.add_argument("--timeout", type=seconds, default=default_s, metavar="S", help=help_text)


def security_of(options: argparse.Namespace) -> ClientSecurity | None:
    """The security that was asked for. Raises ConfigError."""
    if options.command_config is None:
        return None
    from kafkalite.client.client_security import ClientSecurity  # brings ssl, which most commands do not need

    return ClientSecurity.of_file(options.command_config)
