"""`kafkalite group`: consumer groups: list, describe lag, reset offsets, delete.

`reset` prints the new offsets, and changes them only with --execute. Its options are those of kafka-consumer-groups.sh.
Source: org.apache.kafka.tools.consumer.group.ConsumerGroupCommand (3.9).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkalite.cli.command_config import add_commands, security_of
from kafkalite.client.cluster_client import ClusterClient, require_topics
from kafkalite.client.group_admin import (
    CLASSIC,
    EARLIEST,
    LATEST,
    OFFSET,
    SHIFT,
    TIME,
    Group,
    GroupAdmin,
    Member,
    Target,
    lag_of,
    new_offsets,
    reset,
)
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.names import TopicPartition
from kafkalite.common.output import complain, print_rows, say
from kafkalite.common.timestamps import parse_timestamp

_EMPTY = '""'  # a group may have an empty name
_LEFT = 0, 1  # columns of the tables that are aligned to the left

Row = Sequence[object]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite group`."""
    add_commands(parser, "group_command", _COMMANDS, 10.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    perform = _COMMANDS[options.group_command][0]
    with ClusterClient(options.bootstrap_server, options.timeout, security_of(options)) as cluster:
        return perform(cluster, GroupAdmin(cluster, options.timeout), options)


def _print(columns: Sequence[str], rows: Iterable[Row], options: argparse.Namespace) -> None:
    """None is an unknown value."""
    print_rows(columns, rows, as_json=options.json, left=_LEFT, empty=_EMPTY)


# list


def _add_list_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--state", action="append", default=[], help="only groups in this state, such as Stable")


def _list(cluster: ClusterClient, admin: GroupAdmin, options: argparse.Namespace) -> int:
    wanted = {state.lower() for state in options.state}
    groups = [group for group in admin.list_groups() if not wanted or group.state.lower() in wanted]
    _print(("group", "state", "type", "protocol", "coordinator"), groups, options)
    return 0


# describe


def _add_describe_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("groups", nargs="*", metavar="GROUP", help="only these (default: all of consumers)")


_COLUMNS = ("group", "topic", "partition", "offset", "end", "lag", "member", "client", "host")


def _describe(cluster: ClusterClient, admin: GroupAdmin, options: argparse.Namespace) -> int:
    listed = admin.list_groups()
    named = dict.fromkeys(options.groups or [group.group_id for group in listed])
    others = {one.group_id: one for one in listed if one.group_type not in (None, CLASSIC)}
    rows: list[Row] = []
    faults: dict[TopicPartition, str] = {}
    for name in named:
        if (other := others.get(name)) is None:
            group = admin.describe(name)
        else:
            group = Group(name, other.coordinator, other.state, other.protocol_type or "", "", ())
            complain(f"{name} is of type {other.group_type}: only its offsets are shown, without its members")
        found, unknown = _rows(group, admin, LogOffsets(cluster, options.timeout))
        rows += found
        faults |= unknown
        if not options.json:
            protocol = f", {group.protocol}" if group.protocol else ""
            members = f"members: {len(group.members)}{protocol}"
            say(f"{name or _EMPTY}: {group.state}, {members}, coordinator {group.coordinator}")
    _print(_COLUMNS, rows, options)
    complaints = [f"the end of {topic}-{index} is not known: {why}" for (topic, index), why in sorted(faults.items())]
    return complain(*complaints) if complaints else 0


def _rows(group: Group, admin: GroupAdmin, offsets_of: LogOffsets) -> tuple[list[Row], Mapping[TopicPartition, str]]:
    """A row for each partition that is assigned or has an offset, and for each member without partitions; and why ends
    are not known."""
    offsets = admin.offsets(group.group_id)
    owners: dict[TopicPartition, Member] = {key: member for member in group.members for key in member.partitions}
    keys = sorted({*offsets, *owners})
    ends, faults = offsets_of.known_ends(keys)
    rows: list[Row] = []
    for key in keys:
        offset, end = offsets.get(key), ends.get(key)
        rows.append((group.group_id, *key, offset, end, lag_of(offset, end), *_about(owners.get(key))))
    idle = [member for member in group.members if not member.partitions]
    rows += [(group.group_id, None, None, None, None, None, *_about(member)) for member in idle]
    return rows, faults


def _about(member: Member | None) -> tuple[str | None, str | None, str | None]:
    return (None, None, None) if member is None else (member.instance_id or member.member_id, *member[2:4])


# reset


def _add_reset_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("group", metavar="GROUP")
    where = command.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="to the first record")
    where.add_argument("--to-latest", action="store_true", help="to the end, behind the last record")
    where.add_argument("--to-offset", type=int, metavar="N")
    where.add_argument("--to-datetime", metavar="TIME", help="such as 2026-01-31T09:30 (local) or 2026-01-31T09:30Z")
    where.add_argument("--shift-by", type=int, metavar="N", help="forward by N offsets; -N goes back")
    command.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:PARTITION,...]",
        help="only this one; may be repeated (default: all that the group has offsets of)",
    )
    command.add_argument("--execute", action="store_true", help="change the offsets; without this they are only shown")


def _reset(cluster: ClusterClient, admin: GroupAdmin, options: argparse.Namespace) -> int:
    target = _target(options)
    committed = admin.offsets(options.group)
    keys = _chosen(cluster, options.topic) if options.topic else sorted(committed)
    if not keys:
        raise ConfigError(f"{options.group} has no offsets; name topics with --topic")
    wanted = new_offsets(LogOffsets(cluster, options.timeout), keys, committed, target)
    columns = "group", "topic", "partition", "offset", "new offset"
    _print(columns, [(options.group, *key, committed.get(key), wanted[key]) for key in keys], options)
    if not options.execute:
        complain("nothing is changed yet; repeat it with --execute")
        return 0
    reset(admin, options.group, wanted)
    return 0


def _target(options: argparse.Namespace) -> Target:
    if options.to_datetime is not None:
        return Target(TIME, parse_timestamp("--to-datetime", options.to_datetime))
    if options.to_offset is not None:
        return Target(OFFSET, options.to_offset)
    if options.shift_by is not None:
        return Target(SHIFT, options.shift_by)
    return Target(EARLIEST if options.to_earliest else LATEST)


def _chosen(cluster: ClusterClient, texts: Sequence[str]) -> list[TopicPartition]:
    found: set[TopicPartition] = set()
    for text in texts:
        topic, colon, numbers = text.partition(":")
        require_topics([topic], cluster.topics, cluster.address)
        there = {index for name, index in cluster.places if name == topic}
        try:
            indexes = {int(number) for number in numbers.split(",")} if colon else there
        except ValueError:
            raise ConfigError(f"--topic {text}: must be TOPIC or TOPIC:0,1,2") from None
        if not indexes <= there:
            raise ConfigError(f"--topic {text}: {topic} has the partitions 0 to {max(there)}")
        found |= {(topic, index) for index in indexes}
    return sorted(found)


# delete


def _add_delete_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("groups", nargs="+", metavar="GROUP")


def _delete(cluster: ClusterClient, admin: GroupAdmin, options: argparse.Namespace) -> int:
    faults = []
    for name in options.groups:
        try:
            admin.delete(name)
        except (ConfigError, Unanswered) as fault:
            faults.append(str(fault))
    return complain(*faults) if faults else 0


_Perform = Callable[[ClusterClient, GroupAdmin, argparse.Namespace], int]
_COMMANDS: dict[str, tuple[_Perform, Callable[[argparse.ArgumentParser], None], str]] = {
    "list": (_list, _add_list_options, "the groups, with their states and coordinators"),
    "describe": (_describe, _add_describe_options, "offsets, ends and lag of each partition, and its consumer"),
    "reset": (_reset, _add_reset_options, "set the offsets of a group without members"),
    "delete": (_delete, _add_delete_options, "delete groups without members, with their offsets"),
}
