"""Options of the commands that send requests to brokers: their addresses, a timeout, and --command-config, client
properties for TLS and SASL as for Kafka's tools. Numbers are checked against the fields of requests that they go
into."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kafkalite.common.output import complain
from kafkalite.common.text import printable

if TYPE_CHECKING:
    from kafkalite.client.logins import ClientSecurity


INT16_MAX, INT32_MAX, INT64_MAX = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
_DIGITS_MAX = 20
_SECONDS_MAX = 86_400.0


def whole(low: int = 0, high: int = INT32_MAX) -> Callable[[str], int]:
    """The type of a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
        if not is_number or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {low} to {high}")
        return int(text)

    return parse


def seconds(text: str) -> float:
    """A time to wait, a day at most."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds from 0 to {_SECONDS_MAX:.0f}")
    return number


_DEFAULT_ADDRESS = "localhost:9092"


_FLAGS = ("-b", "--bootstrap-server", "--bootstrap")
ADDRESS_VARIABLES = ("KAFKALITE_BOOTSTRAP_SERVERS", "KAFKA_BOOTSTRAP_SERVERS")
"""Variables of the environment with the default of --bootstrap-server, the first that is set."""


def add_bootstrap_server(command: argparse._ActionsContainer) -> None:
    """The option for the brokers' addresses, `bootstrap_server`: as it is named, else as the environment has it."""
    given = next((value for name in ADDRESS_VARIABLES if (value := os.environ.get(name))), None)
    command.add_argument(
        *_FLAGS,
        dest="bootstrap_server",
        default=given or _DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help="a running broker, or several with commas; any broker of a cluster will do "
        f"(default: ${ADDRESS_VARIABLES[0]}, ${ADDRESS_VARIABLES[1]} or {_DEFAULT_ADDRESS})",
    )


def add_running_broker(command: argparse._ActionsContainer, help_text: str) -> None:
    """The same option for a command that also works without a running broker: None unless it is given."""
    command.add_argument(*_FLAGS, dest="bootstrap_server", metavar="HOST:PORT", help=help_text)


def add_yes(command: argparse.ArgumentParser) -> None:
    """The option, `yes`."""
    command.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation on a terminal")


def is_confirmed(options: argparse.Namespace, loss: str) -> bool:
    """Whether a change that loses data may be made: on a terminal the user is asked, a script is not."""
    if options.yes or not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    print(f"{printable(loss)} Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    complain("nothing was changed")
    return False


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


def add_commands(
    parser: argparse.ArgumentParser,
    dest: str,
    commands: Mapping[str, tuple[Any, Callable[[argparse.ArgumentParser], None], str]],
    timeout_s: float,
    *,
    with_json: bool = True,
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """The commands of a command, each with a function that adds its options and a sentence of help, and the options of
    all that ask brokers."""
    added = parser.add_subparsers(dest=dest, metavar="COMMAND", required=True)
    for name, (_, add_options, help_text) in commands.items():
        command = added.add_parser(name, help=help_text, description=help_text[0].upper() + help_text[1:] + ".")
        add_options(command)
        add_bootstrap_server(command)
        add_command_config(command)
        if with_json:
            command.add_argument("--json", action="store_true", help="one JSON object a line")
        add_timeout(command, timeout_s)
    return added


def security_of(options: argparse.Namespace) -> ClientSecurity | None:
    """The security that was asked for. Raises ConfigError."""
    if options.command_config is None:
        return None
    from kafkalite.client.logins import ClientSecurity  # brings ssl, which most commands do not need

    return ClientSecurity.of_file(options.command_config)
