"""`kafkalite acl`: access control lists of a running cluster.

Options and their meanings are those of kafka-acls.sh, an entry for each principal, host, operation and resource.
Source: org.apache.kafka.tools.AclCommand, org.apache.kafka.clients.admin.KafkaAdminClient (createAcls, deleteAcls).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from itertools import product

from kafkalite.cli.command_config import add_commands, add_yes, is_confirmed, security_of
from kafkalite.client.acl_admin import FIELDS, OPERATIONS, Entry, add_entries, list_entries, remove_entries
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import ConfigError
from kafkalite.common.output import print_rows, say
from kafkalite.security.acl.acl import ANY_HOST, CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "user": ResourceType.USER,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite acl`."""
    add_commands(parser, "acl_command", _COMMANDS, 10.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError, Unanswered."""
    with ClusterClient(options.bootstrap_server, options.timeout, security_of(options)) as cluster:
        return _COMMANDS[options.acl_command][0](cluster, options)


def _add_filter_options(command: argparse.ArgumentParser) -> None:
    for option, what in (
        ("topic", "topic"),
        ("group", "group"),
        ("transactional-id", "transactional id"),
        ("user", "user, for tokens"),
    ):
        command.add_argument(
            f"--{option}",
            action="append",
            default=[],
            metavar="NAME",
            help=f"a {what}; * is every one; may be repeated",
        )
    command.add_argument("--cluster", action="store_true", help="the cluster itself")
    command.add_argument("--prefixed", action="store_true", help="names are prefixes")
    command.add_argument("--principal", action="append", default=[], metavar="User:NAME", help="may be repeated")
    command.add_argument(
        "--host", action="append", default=[], metavar="ADDRESS", help="may be repeated (default: every host)"
    )
    command.add_argument(
        "--operation",
        action="append",
        default=[],
        type=str.upper,
        choices=OPERATIONS,
        metavar="OPERATION",
        help=f"may be repeated: {', '.join(OPERATIONS)}",
    )
    command.add_argument("--deny", action="store_true", help="entries that deny instead of those that allow")


def _add_remove_options(command: argparse.ArgumentParser) -> None:
    _add_filter_options(command)
    add_yes(command)


def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    found = sorted({entry for one in _filters(options) for entry in list_entries(cluster, one)})
    if not found and not options.json:
        say("no access control lists match")
        return 0
    print_rows(FIELDS, [one.words() for one in found], as_json=options.json, left=range(len(FIELDS)))
    return 0


def _add(cluster: ClusterClient, options: argparse.Namespace) -> int:
    resources = _resources(options)
    if not resources:
        raise ConfigError("name a resource: --topic, --group, --transactional-id, --user or --cluster")
    if not options.principal:
        raise ConfigError("name a --principal, such as User:alice")
    for principal in options.principal:
        if ":" not in principal:
            raise ConfigError(f"--principal {principal} must have a type, such as User:{principal}")
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    permission = Permission.DENY if options.deny else Permission.ALLOW
    entries = [
        Entry(
            kind,
            name,
            PatternType.LITERAL if kind is ResourceType.CLUSTER else pattern,
            principal,
            host,
            operation,
            permission,
        )
        for (kind, name), principal, host, operation in product(
            resources, options.principal, options.host or [ANY_HOST], _operations(options) or [Operation.ALL]
        )
    ]
    add_entries(cluster, entries)
    say(f"{len(entries)} {'entry' if len(entries) == 1 else 'entries'} added")
    return 0


def _remove(cluster: ClusterClient, options: argparse.Namespace) -> int:
    filters = _filters(options)
    found = {entry for one in filters for entry in list_entries(cluster, one)}
    if not found:
        raise ConfigError("no access control lists match; kafkalite acl list shows them")
    if not is_confirmed(options, f"{len(found)} access control entries are removed."):
        return 1
    removed = remove_entries(cluster, filters)
    say(f"{removed} {'entry' if removed == 1 else 'entries'} removed")
    return 0


def _resources(options: argparse.Namespace) -> list[tuple[ResourceType, str]]:
    found = [(kind, name) for option, kind in _RESOURCES.items() for name in getattr(options, option)]
    return [*found, (ResourceType.CLUSTER, CLUSTER_NAME)] if options.cluster else found


def _operations(options: argparse.Namespace) -> list[Operation]:
    return [Operation[name] for name in options.operation]


def _filters(options: argparse.Namespace) -> list[Entry]:
    """A filter for each combination; what is not named is not restricted."""
    resources: Sequence[tuple[ResourceType, str | None]] = _resources(options) or [(ResourceType.ANY, None)]
    pattern = PatternType.PREFIXED if options.prefixed else PatternType.ANY
    permission = Permission.DENY if options.deny else Permission.ANY
    return [
        Entry(kind, name, pattern, principal, host, operation, permission)
        for (kind, name), principal, host, operation in product(
            resources, options.principal or [None], options.host or [None], _operations(options) or [Operation.ANY]
        )
    ]


_Perform = Callable[[ClusterClient, argparse.Namespace], int]
_COMMANDS: dict[str, tuple[_Perform, Callable[[argparse.ArgumentParser], None], str]] = {
    "list": (_list, _add_filter_options, "list access control entries, all or those that match"),
    "add": (_add, _add_filter_options, "add entries; without --operation all operations are allowed"),
    "remove": (_remove, _add_remove_options, "remove the entries that match"),
}
