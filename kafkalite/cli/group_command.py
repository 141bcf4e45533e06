"""`kafkalite group`: groups of every type: list, describe lag and members, reset and delete offsets, delete.

`reset` prints the new offsets, and changes them only with --execute. Its options are those of kafka-consumer-groups.sh;
the list has the types of kafka-groups.sh.
Source: org.apache.kafka.tools.consumer.group.ConsumerGroupCommand, org.apache.kafka.tools.GroupsCommand (4.3).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence

from kafkalite.cli.command_config import add_commands, add_yes, is_confirmed, security_of
from kafkalite.cli.share_group_rows import POSITION_COLUMNS, RECORD_COLUMNS, ShareGroupRows
from kafkalite.client.cluster_client import ClusterClient, require_topics
from kafkalite.client.group_admin import (
    EARLIEST,
    LATEST,
    OFFSET,
    SHIFT,
    TIME,
    GroupAdmin,
    Target,
    new_offsets,
    reset,
)
from kafkalite.client.group_description import CLASSIC, CONSUMER, SHARE, STREAMS, Group, Member, sentences_of
from kafkalite.client.group_rows import lag_of
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.share_groups import share_admin_of
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.names import TopicPartition
from kafkalite.common.output import complain, print_rows, say
from kafkalite.common.timestamps import parse_timestamp

_TYPES = CLASSIC, CONSUMER, SHARE, STREAMS
_EMPTY = '""'  # a group may have an empty name
_LEFT = 0, 1  # columns of the tables that are aligned to the left
_IDENTIFIERS = "partition", "coordinator", "epoch", "group epoch", "target epoch"

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
    print_rows(columns, rows, as_json=options.json, left=_LEFT, empty=_EMPTY, identifiers=_IDENTIFIERS)


# list


def _add_list_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--state", action="append", default=[], help="only groups in this state, such as Stable")
    command.add_argument(
        "--type", action="append", default=[], choices=_TYPES, type=str.lower, help="only groups of this type"
    )


def _list(cluster: ClusterClient, admin: GroupAdmin, options: argparse.Namespace) -> int:
    states = {state.lower() for state in options.state}
    types = set(options.type)
    groups = [
        group
        for group in admin.list_groups()
        if (not states or group.state.lower() in states) and (not types or group.group_type in types)
    ]
    _print(("group", "state", "type", "protocol", "coordinator"), groups, options)
    return 0


# describe


def _add_describe_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("groups", nargs="*", metavar="GROUP", help="only these (default: all)")
    what = command.add_mutually_exclusive_group()
    what.add_argument("--members", action="store_true", help="members, with their epochs, assignments, subscriptions")
    what.add_argument("--state", action="store_true", help="one row for each group, with its epochs")
    what.add_argument("--records", action="store_true", help="of share groups: who holds which records since when")


_COLUMNS = ("group", "topic", "partition", "offset", "end", "lag", "member", "client", "host")
_MEMBER_COLUMNS = (
    "group", "member", "instance", "type", "epoch", "client", "host", "assignment", "target", "topics", "regex"
)  # fmt: skip
_STATE_COLUMNS = ("group", "state", "type", "assignor", "group epoch", "target epoch", "members", "coordinator")


def _describe(cluster: ClusterClient, admin: GroupAdmin, options: argparse.Namespace) -> int:
    groups = _described(admin, options)
    if options.state:
        _print(_STATE_COLUMNS, [_state_row(group) for group in groups], options)
        return 0
    if not options.json:
        for group in groups:
            say(_headline(group), *(f"  {sentence}" for sentence in (*group.topology, *sentences_of(group))))
    if options.members:
        rows = [_member_row(group, member, options) for group in groups for member in group.members]
        _print(_MEMBER_COLUMNS, rows, options)
        return 0
    share_rows = ShareGroupRows(cluster, admin, options.timeout)
    shares = [group for group in groups if group.group_type == SHARE]
    if options.records:
        return _print_records(share_rows, shares, options)
    return _print_positions(cluster, admin, share_rows, groups, options)


def _print_positions(
    cluster: ClusterClient,
    admin: GroupAdmin,
    share_rows: ShareGroupRows,
    groups: Sequence[Group],
    options: argparse.Namespace,
) -> int:
    """One table of groups of consumers, and one of share groups."""
    tables: dict[Sequence[str], list[Row]] = {}
    faults: dict[TopicPartition, str] = {}
    for group in groups:
        if group.group_type == SHARE:
            found, unknown = share_rows.positions(group)
        else:
            found, unknown = _rows(group, admin, LogOffsets(cluster, options.timeout))
        tables.setdefault(POSITION_COLUMNS if group.group_type == SHARE else _COLUMNS, []).extend(found)
        faults |= unknown
    for columns, rows in (tables or {_COLUMNS: []}).items():
        _print(columns, rows, options)
    complaints = [f"the end of {topic}-{index} is not known: {why}" for (topic, index), why in sorted(faults.items())]
    return complain(*complaints) if complaints else 0


def _print_records(share_rows: ShareGroupRows, shares: Sequence[Group], options: argparse.Namespace) -> int:
    rows: list[Row] = []
    complaints: list[str] = []
    for group in shares:
        found, missing = share_rows.records(group, as_json=options.json)
        rows += found
        complaints += missing
    _print(RECORD_COLUMNS, rows, options)
    return complain(*complaints) if complaints else 0


def _described(admin: GroupAdmin, options: argparse.Namespace) -> list[Group]:
    """The named groups, or all. One of a type that this command cannot describe has only offsets."""
    listed = admin.list_groups()
    others = {one.group_id: one for one in listed if one.group_type not in (None, *_TYPES)}
    found = []
    for name in dict.fromkeys(options.groups or [group.group_id for group in listed]):
        if (other := others.get(name)) is None:
            found.append(admin.describe(name))
        else:
            kind = other.group_type or ""
            complain(f"{name} is of type {kind}: only its offsets are shown, without its members")
            found.append(Group(name, other.coordinator, other.state, other.protocol_type or "", "", (), kind))
    return found


def _headline(group: Group) -> str:
    protocol = f", {group.protocol}" if group.protocol else ""
    epochs = ""
    if group.epoch is not None:
        epochs = f", group epoch {group.epoch}, target assignment epoch {group.target_epoch}"
    members = f"members: {len(group.members)}{protocol}"
    return f"{group.group_id or _EMPTY}: {group.state}, {members}, coordinator {group.coordinator}{epochs}"


def _state_row(group: Group) -> Row:
    epochs = group.epoch, group.target_epoch
    protocol = group.protocol or None
    return (
        group.group_id, group.state, group.group_type, protocol, *epochs, len(group.members), group.coordinator
    )  # fmt: skip


def _member_row(group: Group, member: Member, options: argparse.Namespace) -> Row:
    """Assignments and topics are objects and lists in JSON, TOPIC:0,1;TOPIC:2 in a table. Members of groups of Kafka
    Streams have tasks by subtopology instead of partitions by topic."""
    kind = CLASSIC if group.group_type == CLASSIC else member.member_type
    who = group.group_id, member.member_id, member.instance_id, kind, member.epoch, member.client_id, member.host
    assignments: list[Mapping[str, Sequence[int]] | None]
    if member.tasks is not None:
        assignments = [member.tasks, member.target_tasks]
    else:
        assignments = [_by_topic(member.partitions), None if member.target is None else _by_topic(member.target)]
    if options.json:
        return (*who, *assignments, member.topics, member.topic_regex)
    shown = [None if each is None else _assignment_text(each) for each in assignments]
    return (*who, *shown, ",".join(member.topics) or None, member.topic_regex)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        found.setdefault(topic, []).append(index)
    return found


def _assignment_text(assignment: Mapping[str, Sequence[int]]) -> str | None:
    return ";".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in assignment.items()) or None


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
    return (None, None, None) if member is None else (member.name, member.client_id, member.host)


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
    shares = share_admin_of(admin, options.group)
    committed = admin.offsets(options.group) if shares is None else shares.start_offsets(options.group)
    keys = _chosen(cluster, options.topic) if options.topic else sorted(committed)
    if not keys:
        raise ConfigError(f"{options.group} has no offsets; name topics with --topic")
    wanted = new_offsets(LogOffsets(cluster, options.timeout), keys, committed, target)
    columns = "group", "topic", "partition", "offset", "new offset"
    _print(columns, [(options.group, *key, committed.get(key), wanted[key]) for key in keys], options)
    if not options.execute:
        complain("dry run: nothing is changed; add --execute to apply it")
        return 0
    reset(admin, options.group, wanted, admin.commit if shares is None else shares.alter)
    if not options.json:
        say(f"offsets of group {options.group} set")
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


def _add_delete_offsets_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("group", metavar="GROUP")
    command.add_argument(
        "--topic",
        action="append",
        required=True,
        metavar="TOPIC[:PARTITION,...]",
        help="a topic that the group does not read now; may be repeated",
    )


def _delete_offsets(cluster: ClusterClient, admin: GroupAdmin, options: argparse.Namespace) -> int:
    shares = share_admin_of(admin, options.group)
    if shares is None:
        refusals = admin.delete_offsets(options.group, _chosen(cluster, options.topic))
    else:
        if named := [each for each in options.topic if ":" in each]:
            raise ConfigError(f"--topic {named[0]}: the offsets of a share group are deleted for whole topics")
        refusals = shares.delete(options.group, {topic for topic, _ in _chosen(cluster, options.topic)})
    return complain(*refusals) if refusals else 0


def _add_delete_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("groups", nargs="+", metavar="GROUP")
    add_yes(command)


def _delete(cluster: ClusterClient, admin: GroupAdmin, options: argparse.Namespace) -> int:
    if not is_confirmed(options, f"The offsets of {', '.join(options.groups)} are lost."):
        return 1
    faults = []
    for name in options.groups:
        try:
            admin.delete(name)
            say(*([] if options.json else [f"group {name} deleted"]))
        except (ConfigError, Unanswered) as fault:
            faults.append(str(fault))
    return complain(*faults) if faults else 0


_Perform = Callable[[ClusterClient, GroupAdmin, argparse.Namespace], int]
_COMMANDS: dict[str, tuple[_Perform, Callable[[argparse.ArgumentParser], None], str]] = {
    "list": (_list, _add_list_options, "the groups, with their types, states and coordinators"),
    "describe": (
        _describe,
        _add_describe_options,
        "offsets, ends and lag of each partition, and its consumer; or members, states, records in flight",
    ),
    "reset": (_reset, _add_reset_options, "set the offsets of a group without members"),
    "delete-offsets": (_delete_offsets, _add_delete_offsets_options, "delete offsets of topics that are not read now"),
    "delete": (_delete, _add_delete_options, "delete groups without members, with their offsets"),
}
