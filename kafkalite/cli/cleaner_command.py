"""`kafkalite cleaner status` and `kafkalite cleaner run`: see compaction and steer it, on a running broker.

Status travels in tagged fields of DescribeLogDirs, a run is an API of our own (`protocol/messages/cleaner`). Of a
cluster each broker is asked for what it leads. What comes back becomes one table, or one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from kafkalite.cleaner.manager.status import CleaningState
from kafkalite.client.blocking_client import BlockingClient, Unanswered, name_of_error
from kafkalite.client.cluster_client import NO_LEADER, ClusterClient, require_topics
from kafkalite.common.errors import ConfigError, ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.cleaner import CleanerPass, RunCleanerPartition, RunCleanerRequest
from kafkalite.protocol.messages.log_dirs import (
    CLEANER_IS_OFF,
    CLEANING_TOLD,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    LogCleaning,
)

_LOG_DIRS_VERSION = 4
_RUN_VERSION = 0
_DEFAULT_ADDRESS = "localhost:9092"
_ANSWER_S = 10.0
_TIMEOUT_S_MAX = 86_400.0
_PARTITIONS_MAX = 200  # asked for at once; the broker serves nobody else meanwhile
Found = dict[TopicPartition, LogCleaning]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite cleaner`."""
    commands = parser.add_subparsers(dest="cleaner_command", metavar="COMMAND", required=True)
    command = commands.add_parser(
        "status",
        help="what is compacted, what is not, and why",
        description="Show every compacted partition: its state, how much of it is dirty, what the last pass kept, and "
        "why it is not compacted now.",
    )
    command.add_argument("topics", nargs="*", metavar="TOPIC", help="only these (default: all that are compacted)")
    _add_common(command)
    command = commands.add_parser(
        "run",
        help="compact a topic now",
        description="Compact a topic now, whatever min.cleanable.dirty.ratio says. The active segment is left alone "
        "unless --roll seals it first. Without --wait the runs are queued and the command ends.",
    )
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument(
        "--partition",
        action="append",
        type=_partition,
        metavar="N",
        help="only this one; may be given again (default: all)",
    )
    command.add_argument("--roll", action="store_true", help="seal the active segment first, and compact it too")
    command.add_argument("--wait", action="store_true", help="come back when it is done, and show what it did")
    command.add_argument(
        "--timeout",
        type=_seconds,
        default=3600.0,
        metavar="S",
        help="how long to wait, at most a day (default: 3600); the runs go on all the same",
    )
    _add_common(command)


def _partition(text: str) -> int:
    """What the wire has room for. Raises ValueError."""
    number = int(text)
    if not 0 <= number < 1 << 31:
        raise ValueError
    return number


def _seconds(text: str) -> float:
    """Raises ValueError."""
    number = float(text)
    if not 0 <= number <= _TIMEOUT_S_MAX:
        raise ValueError
    return number


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--bootstrap-server",
        "--bootstrap",
        default=_DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help=f"a running broker, or several with commas; of a cluster all are asked (default: {_DEFAULT_ADDRESS})",
    )
    command.add_argument("--json", action="store_true", help="one JSON object a line")


def run(options: argparse.Namespace) -> int:
    """`kafkalite cleaner`. Returns the exit code: 1 if something failed or could not be told. Raises ConfigError."""
    try:
        with ClusterClient(options.bootstrap_server, _ANSWER_S) as cluster:
            return _status(cluster, options) if options.cleaner_command == "status" else _run(cluster, options)
    except Unanswered as error:
        print(f"kafkalite: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kafkalite: what was begun goes on; see kafkalite cleaner status", file=sys.stderr)
        return 130


# status


def _status(cluster: ClusterClient, options: argparse.Namespace) -> int:
    found, complaints = asked_of_all(cluster, options.topics)
    if options.json:
        for (topic, index), one in sorted(found.items()):
            print(_json_of_status(topic, index, one))
    elif found:
        for line in _aligned(_status_rows(found), left=(0, 2, 9)):
            print(line)
    else:
        print("no topic is compacted (cleanup.policy=compact)")
    for complaint in complaints:
        print(f"kafkalite: {complaint}", file=sys.stderr)
    return 1 if complaints or any(one.error for one in found.values()) else 0


def asked_of_all(cluster: ClusterClient, topics: Sequence[str]) -> tuple[Found, list[str]]:
    """What is known of every compacted partition, or of those of `topics`; and what the operator should know besides.
    Raises Unanswered, ConfigError."""
    if cluster.is_one:
        found, complaints = asked(cluster.first, topics, elsewhere=cluster.topics)
        away = [] if complaints else cluster.not_led(topics)
    else:
        require_topics(topics, cluster.topics, cluster.address)
        told, missing = cluster.ask_leaders(
            cluster.led_by(topics), lambda client, led: asked(client, topics, only=led, elsewhere=cluster.topics)
        )
        found = {key: one for each, _ in told for key, one in each.items()}
        complaints = list(dict.fromkeys(complaint for _, each in told for complaint in each))
        away = missing + cluster.not_led(topics)
    compacted = {topic for topic, _ in found}
    for topic in topics:
        if topic not in compacted and not away:
            raise ConfigError(f"{topic} is not compacted: its cleanup.policy has no 'compact'")
    return found, complaints + away


def asked(
    client: BlockingClient,
    topics: Sequence[str],
    *,
    only: set[TopicPartition] | None = None,
    elsewhere: set[str] | None = None,
) -> tuple[Found, list[str]]:
    """The same of one broker: of all that it has, or `only` of that."""
    response = _ask(client, DescribeLogDirsRequest(topics=None))
    failed = [result.log_dir for result in response.results if result.error_code]
    there = dict(_partitions(response))
    keys = sorted(key for key in there if (not topics or key[0] in topics) and (only is None or key in only))
    require_topics(topics, {topic for topic, _ in there} | (elsewhere or set()), client.address)
    found: Found = {}
    is_off = False
    for at in range(0, len(keys), _PARTITIONS_MAX):
        response = _ask_of_cleaning(client, keys[at : at + _PARTITIONS_MAX])
        is_off = response.cleaning == CLEANER_IS_OFF
        found.update((key, cleaning) for key, cleaning in _partitions(response) if cleaning is not None)
    complaints = [f"{directory} has failed, and what is in it is left out here" for directory in failed]
    if is_off and found:
        complaints.append("nothing is compacted: log.cleaner.enable is false; set it to true and start the broker anew")
    return found, complaints


def _ask_of_cleaning(client: BlockingClient, keys: Iterable[TopicPartition]) -> Any:
    wanted: dict[str, list[int]] = {}
    for topic, index in keys:
        wanted.setdefault(topic, []).append(index)
    topics = [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in wanted.items()]
    response = _ask(client, DescribeLogDirsRequest(topics=topics, describe_cleaning=True))
    if response.cleaning not in (CLEANING_TOLD, CLEANER_IS_OFF):
        raise Unanswered(f"{client.address} is no kafkalite that tells of compaction")
    return response


def _ask(client: BlockingClient, request: DescribeLogDirsRequest) -> Any:
    response = client.ask(request, _LOG_DIRS_VERSION)
    if response.error_code:
        raise Unanswered(f"{client.address} refuses to answer: {name_of_error(response.error_code)}")
    return response


def _partitions(response: Any) -> Iterator[tuple[TopicPartition, LogCleaning | None]]:
    for result in response.results:
        for topic in result.topics:
            for one in topic.partitions:
                yield (topic.name, one.partition_index), one.cleaning


_STATUS_COLUMNS = (
    "topic", "partition", "state", "dirty", "dirty bytes", "clean bytes", "last run", "kept records", "kept bytes",
    "why not now",
)  # fmt: skip


def _status_rows(found: Found) -> Iterator[Sequence[str]]:
    yield _STATUS_COLUMNS
    for (topic, index), one in sorted(found.items()):
        last: CleanerPass | None = one.last
        yield (
            topic,
            str(index),
            one.state,
            f"{one.dirty_ratio_ppm / 10_000:.1f}%",
            f"{one.dirty_bytes:,}",
            f"{one.clean_bytes:,}",
            _time(one.last_run_ms),
            "-" if last is None else _kept(last.records_kept, last.records_read),
            "-" if last is None else _kept(last.bytes_kept, last.bytes_read),
            _why_not(one),
        )


def _why_not(one: LogCleaning) -> str:
    if one.error:
        return f"error: {one.error}"
    return one.why_not or ("due at the next look" if one.state == CleaningState.IDLE.value else "")


def _json_of_status(topic: str, index: int, one: LogCleaning) -> str:
    return _json(
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
        for one in partitions:
            print(_json_of_run(options.topic, one, waited=options.wait))
    else:
        for line in _aligned(_run_rows(options.topic, partitions, waited=options.wait), left=(0, 2, 7)):
            print(line)
    failed = [one for one in partitions if one.error_code]
    for one in failed[:5]:
        why = one.message or name_of_error(one.error_code)
        print(f"kafkalite: {options.topic}-{one.partition_index}: {why}", file=sys.stderr)
    for complaint in complaints:
        print(f"kafkalite: {complaint}", file=sys.stderr)
    return 1 if failed or complaints else 0


def _run_everywhere(cluster: ClusterClient, options: argparse.Namespace) -> tuple[list[RunCleanerPartition], list[str]]:
    """What became of each partition, and what the operator should know besides. The brokers work side by side. Raises
    Unanswered, before anything is begun if the topic or a partition is not there."""
    if cluster.is_one:
        cluster.first.send(_request(options, options.partition), _RUN_VERSION)
        partitions = _outcome(cluster.first, options)
        return partitions, cluster.not_led([options.topic]) if options.partition is None else []
    there = {index: place for (topic, index), place in cluster.places.items() if topic == options.topic}
    wanted = sorted(there if options.partition is None else set(options.partition))
    missing = [index for index in wanted if index not in there]
    if not there:
        raise Unanswered(f"there is no topic {options.topic} in {cluster.address}")
    if missing:
        raise Unanswered(f"{options.topic} has {len(there)} partitions, counted from 0; there is no {missing[0]}")
    led: dict[int, set[TopicPartition]] = {}
    for index in wanted:
        if there[index].leader != NO_LEADER:
            led.setdefault(there[index].leader, set()).add((options.topic, index))

    def begin(client: BlockingClient, keys: set[TopicPartition]) -> BlockingClient:
        client.send(_request(options, sorted(index for _, index in keys)), _RUN_VERSION)
        return client

    begun, complaints = cluster.ask_leaders(led, begin) if led else ([], [])
    done: list[RunCleanerPartition] = []
    for client in begun:
        try:
            done += _outcome(client, options)
        except Unanswered as error:
            complaints.append(str(error))
    if begun and not done:
        raise Unanswered(complaints[0])
    idle = [index for index in wanted if there[index].leader == NO_LEADER]
    return sorted(done, key=lambda one: one.partition_index), complaints + (
        cluster.not_led([options.topic]) if idle else []
    )


def _request(options: argparse.Namespace, partitions: list[int] | None) -> RunCleanerRequest:
    return RunCleanerRequest(
        topic=options.topic,
        partitions=partitions,
        rolls=options.roll,
        waits=options.wait,
        timeout_ms=round(options.timeout * 1000),
    )


def _outcome(client: BlockingClient, options: argparse.Namespace) -> list[RunCleanerPartition]:
    """What comes back of a run that was begun. Raises Unanswered."""
    patience_s = _ANSWER_S + options.timeout if options.wait else None
    response = client.receive(RunCleanerRequest, _RUN_VERSION, patience_s)
    if response.error_code:
        raise Unanswered(response.error_message or name_of_error(response.error_code))
    partitions: list[RunCleanerPartition] = response.partitions
    return partitions


_RUN_COLUMNS = ("topic", "partition", "result", "seconds", "kept records", "kept bytes", "tombstones dropped", "why")


def _run_rows(topic: str, partitions: Iterable[RunCleanerPartition], *, waited: bool) -> Iterator[Sequence[str]]:
    yield _RUN_COLUMNS
    for one in partitions:
        done = one.done
        numbers: Sequence[str] = ("-", "-", "-", "-")
        if done is not None:
            numbers = (
                f"{done.total_ms / 1000:.1f}",
                _kept(done.records_kept, done.records_read),
                _kept(done.bytes_kept, done.bytes_read),
                f"{done.tombstones_dropped:,}",
            )
        why = "" if one.error_code else one.message or ""
        yield (topic, str(one.partition_index), _result(one, waited=waited), *numbers, why)


def _result(one: RunCleanerPartition, *, waited: bool) -> str:
    if one.error_code == ErrorCode.REQUEST_TIMED_OUT:
        return "goes on"
    if one.error_code:
        return "failed"
    if one.done is not None:
        return "compacted"
    return "nothing to do" if waited or one.message else "queued"


def _json_of_run(topic: str, one: RunCleanerPartition, *, waited: bool) -> str:
    return _json(
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


def _pass(done: CleanerPass) -> dict[str, Any]:
    return {
        "bytes_read": done.bytes_read,
        "bytes_kept": done.bytes_kept,
        "records_read": done.records_read,
        "records_kept": done.records_kept,
        "tombstones_dropped": done.tombstones_dropped,
        "keyless_dropped": done.keyless_dropped,
        "aborted_dropped": done.aborted_dropped,
        "markers_dropped": done.markers_dropped,
        "map_keys": done.map_keys,
        "map_bytes_read": done.map_bytes_read,
        "map_records_read": done.map_records_read,
        "map_utilization": done.map_utilization_ppm / 1_000_000,
        "map_seconds": done.map_ms / 1000,
        "seconds": done.total_ms / 1000,
        "throttled_seconds": done.throttled_ms / 1000,
    }


def _kept(kept: int, read: int) -> str:
    return f"{kept:,} of {read:,}"


def _time(wall_ms: int) -> str:
    """In UTC, to the second."""
    if wall_ms < 0:
        return "never"
    try:
        return datetime.fromtimestamp(wall_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):  # a clock that was far off, or a broker that is none
        return f"{wall_ms} ms"


def _aligned(rows: Iterable[Sequence[str]], left: Sequence[int]) -> Iterator[str]:
    """Columns of equal width, those in `left` beginning at the left."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.ljust(width) if at in left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _json(values: dict[str, Any]) -> str:
    return json.dumps(values, separators=(",", ":"))
