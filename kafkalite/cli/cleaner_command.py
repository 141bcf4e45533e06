"""`kafkalite cleaner status` and `kafkalite cleaner run`: show and start compaction on running brokers.

The status comes in tagged fields of DescribeLogDirs, a run is an API of our own (`protocol/messages/cleaner`). Each
broker of a cluster reports the partitions that it leads. They are printed as one table, or as one JSON object per line.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC
from typing import Any

from kafkalite.cli.command_config import add_bootstrap_server, add_command_config, seconds, security_of, whole
from kafkalite.client.blocking_client import BlockingClient, name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.log_dirs import describe, list_partitions
from kafkalite.common.errors import ConfigError, ErrorCode, Unanswered
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.common.output import aligned, complain, json_line, print_all, say
from kafkalite.common.text import size_text
from kafkalite.common.timestamps import format_timestamp
from kafkalite.protocol.messages.cleaner import CleanerPass, RunCleanerPartition, RunCleanerRequest
from kafkalite.protocol.messages.log_dirs import CLEANER_IS_OFF, CLEANING_IDLE, CLEANING_REPORTED, LogCleaning

_RUN_VERSION = 0
_ANSWER_S = 10.0
Statuses = dict[TopicPartition, LogCleaning]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite cleaner`."""
    commands = parser.add_subparsers(dest="cleaner_command", metavar="COMMAND", required=True)
    command = commands.add_parser(
        "status",
        help="show compacted partitions, and why others are not",
        description="Show every compacted partition: its state, its dirty ratio, what the last pass retained, and "
        "why it is not compacted now.",
    )
    command.add_argument("topics", nargs="*", metavar="TOPIC", help="only these (default: all that are compacted)")
    _add_common(command)
    command = commands.add_parser(
        "run",
        help="compact a topic now",
        description="Compact a topic now, whatever min.cleanable.dirty.ratio says. The active segment is left alone "
        "unless --roll seals it first. Without --wait the command queues the runs and ends.",
    )
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument(
        "--partition",
        action="append",
        type=whole(),
        metavar="N",
        help="only this one; may be given again (default: all)",
    )
    command.add_argument("--roll", action="store_true", help="seal the active segment first, and compact it too")
    command.add_argument("--wait", action="store_true", help="wait until it is done, and show the result")
    command.add_argument(
        "--timeout",
        type=seconds,
        default=3600.0,
        metavar="S",
        help="how long to wait, at most a day (default: 3600); the runs continue after that",
    )
    _add_common(command)


def _add_common(command: argparse.ArgumentParser) -> None:
    add_bootstrap_server(command)
    add_command_config(command)
    command.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    """`kafkalite cleaner`. Returns the exit code: 1 if something failed or is not known. Raises ConfigError."""
    try:
        with ClusterClient(options.bootstrap_server, _ANSWER_S, security_of(options)) as cluster:
            return _status(cluster, options) if options.cleaner_command == "status" else _run(cluster, options)
    except KeyboardInterrupt:
        complain("runs that have started continue; see kafkalite cleaner status")
        return 130


# status


def _status(cluster: ClusterClient, options: argparse.Namespace) -> int:
    found, complaints = status_of_cluster(cluster, options.topics)
    if options.json:
        print_all(_json_of_status(topic, index, one) for (topic, index), one in sorted(found.items()))
    elif found:
        print_all(aligned(_status_rows(found), left=(0, 2, 9)))
    else:
        say("no topic is compacted (cleanup.policy=compact)")
    complain(*complaints)
    return 1 if complaints or any(one.error for one in found.values()) else 0


def status_of_cluster(cluster: ClusterClient, topics: Sequence[str]) -> tuple[Statuses, list[str]]:
    """The status of every compacted partition, or of those of `topics`, and complaints for the operator. Raises
    Unanswered, ConfigError."""

    def ask(client: BlockingClient, led: set[TopicPartition] | None) -> tuple[Statuses, list[str]]:
        return status_of_broker(client, topics, only=led, elsewhere=cluster.topics)

    of_brokers, missing = cluster.ask_all(topics, ask)
    found = {key: one for statuses, _ in of_brokers for key, one in statuses.items()}
    complaints = list(dict.fromkeys(complaint for _, complaints in of_brokers for complaint in complaints))
    if cluster.is_one and complaints:  # a directory that failed may have the partitions without a leader
        missing = []
    compacted = {topic for topic, _ in found}
    for topic in topics:
        if topic not in compacted and not missing:
            raise ConfigError(f"{topic} is not compacted: its cleanup.policy has no 'compact'")
    return found, complaints + missing


def status_of_broker(
    client: BlockingClient,
    topics: Sequence[str],
    *,
    only: set[TopicPartition] | None = None,
    elsewhere: set[str] | None = None,
) -> tuple[Statuses, list[str]]:
    """As `status_of_cluster` for the partitions of one broker, or `only` these of them."""
    keys, complaints = list_partitions(client, topics, only, elsewhere)
    found: Statuses = {}
    is_off = False
    for response, partitions in describe(client, keys, describe_cleaning=True):
        if response.cleaning not in (CLEANING_REPORTED, CLEANER_IS_OFF):
            raise Unanswered(f"{client.address} is no kafkalite that reports compaction")
        is_off = response.cleaning == CLEANER_IS_OFF
        found.update((key, one.cleaning) for key, one in partitions if one.cleaning is not None)
    if is_off and found:
        complaints.append("nothing is compacted: log.cleaner.enable is false; set it to true and restart the broker")
    return found, complaints


_STATUS_COLUMNS = (
    "topic", "partition", "state", "dirty", "dirty size", "clean size", "last run", "kept records", "kept size",
    "why not now",
)  # fmt: skip


def _status_rows(found: Statuses) -> Iterator[Sequence[str]]:
    yield _STATUS_COLUMNS
    for (topic, index), one in sorted(found.items()):
        last: CleanerPass | None = one.last
        yield (
            topic,
            str(index),
            one.state,
            f"{one.dirty_ratio_ppm / 10_000:.1f}%",
            size_text(one.dirty_bytes),
            size_text(one.clean_bytes),
            _time(one.last_run_ms),
            "-" if last is None else _kept(last.records_kept, last.records_read),
            "-" if last is None else _kept_size(last.bytes_kept, last.bytes_read),
            _why_not(one),
        )


def _why_not(one: LogCleaning) -> str:
    if one.error:
        return f"error: {one.error}"
    return one.why_not or ("due at the next check" if one.state == CLEANING_IDLE else "")


def _json_of_status(topic: str, index: int, one: LogCleaning) -> str:
    return json_line(
        {
            "topic": topic,
            "partition": index,
            "state": one.state,
            "dirty_ratio": one.dirty_ratio_ppm / 1_000_000,
            "clean_bytes": one.clean_bytes,
            "dirty_bytes": one.dirty_bytes,
            "uncleanable_bytes": one.uncleanable_bytes,
            "first_dirty_offset": one.first_dirty_offset,
            "first_uncleanable_offset": one.first_uncleanable_offset,
            "runs": one.runs,
            "last_run_ms": None if one.last_run_ms < 0 else one.last_run_ms,
            "last": None if one.last is None else _pass(one.last),
            "why_not": one.why_not,
            "error": one.error,
        }
    )


# run


def _run(cluster: ClusterClient, options: argparse.Namespace) -> int:
    partitions, complaints = _run_everywhere(cluster, options)
    if options.json:
        print_all(_json_of_run(options.topic, one, waited=options.wait) for one in partitions)
    else:
        print_all(aligned(_run_rows(options.topic, partitions, waited=options.wait), left=(0, 2, 7)))
    failed = [one for one in partitions if one.error_code]
    for one in failed[:5]:
        complain(f"{options.topic}-{one.partition_index}: {one.message or name_of_error(one.error_code)}")
    complain(*complaints)
    return 1 if failed or complaints else 0


def _run_everywhere(cluster: ClusterClient, options: argparse.Namespace) -> tuple[list[RunCleanerPartition], list[str]]:
    """The outcome for each partition, and complaints for the operator. The brokers work in parallel.

    Raises Unanswered; if the topic or a partition does not exist, before any run starts.
    """
    if cluster.is_one:
        cluster.first.send(_request(options, options.partition), _RUN_VERSION)
        partitions = _outcome(cluster.first, options)
        return partitions, cluster.not_led([options.topic]) if options.partition is None else []
    places = {index: place for (topic, index), place in cluster.places.items() if topic == options.topic}
    if not places:
        raise Unanswered(f"topic {options.topic} not found at {cluster.address}")
    led: dict[int, set[TopicPartition]] = {}
    is_led = True
    for index in sorted(places if options.partition is None else set(options.partition)):
        if index not in places:
            raise Unanswered(f"{options.topic} has {len(places)} partitions, counted from 0; there is no {index}")
        leader = places[index].leader
        if leader == NO_LEADER:
            is_led = False
        else:
            led.setdefault(leader, set()).add((options.topic, index))

    def begin(client: BlockingClient, keys: set[TopicPartition]) -> BlockingClient:
        client.send(_request(options, sorted(index for _, index in keys)), _RUN_VERSION)
        return client

    begun, complaints = cluster.ask_leaders(led, begin)
    done: list[RunCleanerPartition] = []
    for client in begun:
        try:
            done += _outcome(client, options)
        except Unanswered as error:
            complaints.append(str(error))
    if begun and not done:
        raise Unanswered(complaints[0])
    if not is_led:
        complaints += cluster.not_led([options.topic])
    return sorted(done, key=lambda one: one.partition_index), complaints


def _request(options: argparse.Namespace, partitions: list[int] | None) -> RunCleanerRequest:
    return RunCleanerRequest(
        topic=options.topic,
        partitions=partitions,
        rolls=options.roll,
        waits=options.wait,
        timeout_ms=round(options.timeout * 1000),
    )


def _outcome(client: BlockingClient, options: argparse.Namespace) -> list[RunCleanerPartition]:
    """The response to a run that has started. Raises Unanswered."""
    patience_s = _ANSWER_S + options.timeout if options.wait else None
    response = client.receive(RunCleanerRequest, _RUN_VERSION, patience_s)
    if response.error_code:
        raise Unanswered(response.error_message or name_of_error(response.error_code))
    partitions: list[RunCleanerPartition] = response.partitions
    return partitions


_RUN_COLUMNS = ("topic", "partition", "result", "seconds", "kept records", "kept size", "tombstones dropped", "why")


def _run_rows(topic: str, partitions: Iterable[RunCleanerPartition], *, waited: bool) -> Iterator[Sequence[str]]:
    yield _RUN_COLUMNS
    for one in partitions:
        done = one.done
        numbers: Sequence[str] = ("-", "-", "-", "-")
        if done is not None:
            numbers = (
                f"{done.total_ms / 1000:.1f}",
                _kept(done.records_kept, done.records_read),
                _kept_size(done.bytes_kept, done.bytes_read),
                f"{done.tombstones_dropped:,}",
            )
        why = "" if one.error_code else one.message or ""
        yield (topic, str(one.partition_index), _result(one, waited=waited), *numbers, why)


def _result(one: RunCleanerPartition, *, waited: bool) -> str:
    if one.error_code == ErrorCode.REQUEST_TIMED_OUT:
        return "running"
    if one.error_code:
        return "failed"
    if one.done is not None:
        return "compacted"
    return "nothing to do" if waited or one.message else "queued"


def _json_of_run(topic: str, one: RunCleanerPartition, *, waited: bool) -> str:
    return json_line(
        {
            "topic": topic,
            "partition": one.partition_index,
            "result": _result(one, waited=waited),
            "error": one.message if one.error_code else None,
            "why": None if one.error_code else one.message,
            "done": None if one.done is None else _pass(one.done),
        }
    )


# both

_PASS_NUMBERS = (
    "bytes_read", "bytes_kept", "records_read", "records_kept", "tombstones_dropped", "keyless_dropped",
    "aborted_dropped", "markers_dropped", "map_keys", "map_bytes_read", "map_records_read",
    "unread_batches",
)  # fmt: skip


def _pass(done: CleanerPass) -> dict[str, Any]:
    return {
        **{name: getattr(done, name) for name in _PASS_NUMBERS},
        "map_utilization": done.map_utilization_ppm / 1_000_000,
        "map_seconds": done.map_ms / 1000,
        "seconds": done.total_ms / 1000,
        "throttled_seconds": done.throttled_ms / 1000,
        "first_unread": done.first_unread or None,
    }


def _kept(kept: int, read: int) -> str:
    return f"{kept:,} of {read:,}"


def _kept_size(kept: int, read: int) -> str:
    return f"{size_text(kept)} of {size_text(read)}"


def _time(wall_ms: int) -> str:
    """In UTC, to the second."""
    return "never" if wall_ms < 0 else format_timestamp(wall_ms, UTC, unit="seconds")
