"""`kafkalite quota`: limits on the rates of users, client ids and addresses.

Source: org.apache.kafka.tools.ConfigCommand (quotas), KIP-546.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from kafkalite.cli.command_config import add_commands, security_of
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.quota_admin import alter_quotas, list_quotas
from kafkalite.common.errors import ConfigError
from kafkalite.common.options import settings_of_flag
from kafkalite.common.output import json_line, print_all, print_rows, say
from kafkalite.common.text import size_text

_ENTITIES = {"user": "user", "client_id": "client-id", "ip": "ip"}
_DEFAULT = "default"
_EXAMPLE = "producer_byte_rate=1MiB"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite quota`."""
    add_commands(parser, "quota_command", _COMMANDS, 10.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError, Unanswered."""
    with ClusterClient(options.bootstrap_server, options.timeout, security_of(options)) as cluster:
        return _COMMANDS[options.quota_command][0](cluster, options)


def _add_entity_options(command: argparse.ArgumentParser) -> None:
    for option, what in (("--user", "user"), ("--client-id", "client id"), ("--ip", "address")):
        command.add_argument(
            option, metavar="NAME", help=f"the {what}; {_DEFAULT} is every {what} without a quota of its own"
        )


def _add_set_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "quotas",
        nargs="+",
        metavar="KEY=VALUE",
        help="producer_byte_rate, consumer_byte_rate (bytes/s, or as 1MiB), request_percentage, "
        "controller_mutation_rate, connection_creation_rate (--ip)",
    )
    _add_entity_options(command)


def _add_remove_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("quotas", nargs="+", metavar="KEY")
    _add_entity_options(command)


def _nothing(_: argparse.ArgumentParser) -> None:
    """`list` has no options of its own."""


def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    found = list_quotas(cluster)
    if options.json:
        print_all(json_line({"entity": entity, "quotas": quotas}) for entity, quotas in found)
    elif found:
        rows = [
            (", ".join(f"{kind} {name or _DEFAULT}" for kind, name in entity.items()), key, _quota_text(key, value))
            for entity, quotas in found
            for key, value in quotas.items()
        ]
        print_rows(("entity", "quota", "value"), rows, as_json=False, left=(0, 1))
    else:
        say("no quotas are set")
    return 0


def _quota_text(key: str, value: float) -> str:
    return f"{size_text(value)}/s" if "byte_rate" in key else f"{value:,.15g}"


def _set(cluster: ClusterClient, options: argparse.Namespace) -> int:
    numbers = {}
    for key, text in settings_of_flag("KEY=VALUE", options.quotas, _EXAMPLE).items():
        try:
            numbers[key] = float(text)
        except ValueError:
            raise ConfigError(f"{key}={text}: must be a number") from None
    return _alter(cluster, options, numbers)


def _remove(cluster: ClusterClient, options: argparse.Namespace) -> int:
    return _alter(cluster, options, dict.fromkeys(options.quotas))


def _alter(cluster: ClusterClient, options: argparse.Namespace, changes: Mapping[str, float | None]) -> int:
    """None removes a quota."""
    entity = {kind: value for name, kind in _ENTITIES.items() if (value := getattr(options, name)) is not None}
    if not entity:
        raise ConfigError("name the entity: --user, --client-id, both, or --ip")
    alter_quotas(cluster, {kind: None if name == _DEFAULT else name for kind, name in entity.items()}, changes)
    say(f"quotas of {', '.join(f'{kind} {name}' for kind, name in entity.items())} altered")
    return 0


_Perform = Callable[[ClusterClient, argparse.Namespace], int]
_COMMANDS: dict[str, tuple[_Perform, Callable[[argparse.ArgumentParser], None], str]] = {
    "list": (_list, _nothing, "list all quotas"),
    "set": (_set, _add_set_options, "set quotas of a user, a client id or an address"),
    "remove": (_remove, _add_remove_options, "remove quotas"),
}
