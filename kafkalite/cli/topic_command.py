"""`kafkalite topic describe`: exactly how many records and bytes topics, partitions and segments hold.

A running broker says what it knows (DescribeLogDirs, with our own tagged fields); where it has yet to count, it is
asked again. Of a cluster each broker is asked for what it leads. A data directory that no broker runs on is counted by
the code of `kafkalite log count`. All give the same partitions, and those become one table, or one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from kafkalite.client.blocking_client import BlockingClient, Unanswered, name_of_error
from kafkalite.client.cluster_client import ClusterClient, require_topics
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.log_dirs import (
    COUNTING,
    COUNTS,
    COUNTS_OF_SEGMENTS,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)

_VERSION = 4
_DEFAULT_ADDRESS = "localhost:9092"
_PAUSE_S = (0.05, 0.5)  # between questions, at first and at most
_ELEMENTS_MAX = 50_000  # of an answer: what is asked for at once
_PARTITIONS_MAX = 200  # the same; the broker takes 0.07 ms for each, and serves nobody else meanwhile


@dataclass(slots=True)
class Counts:
    """A number of records is None where it is not known."""

    live_records: int | None = 0
    control_records: int | None = 0
    size_bytes: int = 0
    segment_count: int = 0

    def add(self, other: Counts) -> None:
        self.live_records = _sum(self.live_records, other.live_records)
        self.control_records = _sum(self.control_records, other.control_records)
        self.size_bytes += other.size_bytes
        self.segment_count += other.segment_count


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


@dataclass(slots=True)
class Partition:
    """`leader_epoch` is -1 where it is not known. `segments` by base offset, empty unless they were asked for."""

    topic: str
    index: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    counts: Counts
    is_counting: bool = False
    segments: dict[int, Counts] = field(default_factory=dict)


class Described:
    """What was found, and what the operator should know besides."""

    def __init__(self, partitions: Iterable[Partition], failed: Sequence[str] = ()) -> None:
        """`failed`: what could not be looked at, each a sentence."""
        self.partitions = sorted(partitions, key=lambda one: (one.topic, one.index))
        self.failed = tuple(failed)
        self.complaints = list(failed)
        missing = [f"{one.topic}-{one.index}" for one in self.partitions if one.counts.live_records is None]
        counting = sum(one.is_counting for one in self.partitions)
        if counting:
            self.complaints.append(f"{counting} partitions are still being counted; ask again")
        if len(missing) > counting:
            self.complaints.append(f"not all of {', '.join(missing[:5])} can be counted; see kafkalite log verify")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite topic`."""
    commands = parser.add_subparsers(dest="topic_command", metavar="COMMAND", required=True)
    command = commands.add_parser(
        "describe",
        help="how many records topics hold, exactly",
        description="Show offsets, live records, control records, bytes and segments of every partition, exactly. Live "
        "records are data records at or past the start of the log; control records are the markers of transactions.",
    )
    command.add_argument("topics", nargs="*", metavar="TOPIC", help="only these (default: all)")
    place = command.add_mutually_exclusive_group()
    place.add_argument(
        *("--bootstrap", "--bootstrap-server"),
        metavar="HOST:PORT",
        help=f"a running broker, or several with commas; of a cluster all are asked (default: {_DEFAULT_ADDRESS})",
    )
    place.add_argument("--data-dir", metavar="DIR[,DIR]", help="count the files of a broker that is stopped")
    command.add_argument("--segments", action="store_true", help="a row for each segment too")
    command.add_argument("--json", action="store_true", help="one JSON object a line")
    command.add_argument("--timeout", type=float, default=60.0, metavar="S", help="how long to wait (default: 60)")


def run(options: argparse.Namespace) -> int:
    """`kafkalite topic describe`. Returns the exit code: 1 if something could not be told. Raises ConfigError."""
    try:
        if options.data_dir is not None:
            described = from_directories(options.data_dir.split(","), options.topics)
        else:
            with ClusterClient(options.bootstrap or _DEFAULT_ADDRESS, min(options.timeout, 10.0)) as cluster:
                described = from_cluster(cluster, options.topics, options.timeout, segments=options.segments)
    except Unanswered as error:
        print(f"kafkalite: {error}", file=sys.stderr)
        return 1
    lines = objects(described, segments=options.segments) if options.json else table(described, options.segments)
    for line in lines:
        print(line)
    for complaint in described.complaints:
        print(f"kafkalite: {complaint}", file=sys.stderr)
    return 1 if described.complaints else 0


# from running brokers


def from_cluster(cluster: ClusterClient, topics: Sequence[str], timeout_s: float, *, segments: bool) -> Described:
    """Of each broker what it leads. Raises Unanswered, ConfigError for a topic that is not there."""
    if cluster.is_one:
        described = from_broker(cluster.first, topics, timeout_s, segments=segments, elsewhere=cluster.topics)
        if not described.complaints:  # else a directory may have failed, and what nobody leads be in it
            described.complaints += cluster.not_led(topics)
        return described
    require_topics(topics, cluster.topics, cluster.address)
    deadline = time.monotonic() + timeout_s

    def ask(client: BlockingClient, led: set[TopicPartition]) -> Described:
        left_s = deadline - time.monotonic()
        return from_broker(client, topics, left_s, segments=segments, only=led, elsewhere=cluster.topics)

    told, complaints = cluster.ask_leaders(cluster.led_by(topics), ask)
    described = Described(one for each in told for one in each.partitions)
    failed = [complaint for each in told for complaint in each.failed]
    described.complaints = [*failed, *described.complaints, *complaints, *cluster.not_led(topics)]
    return described


def from_broker(
    client: BlockingClient,
    topics: Sequence[str],
    timeout_s: float,
    *,
    segments: bool,
    only: set[TopicPartition] | None = None,
    elsewhere: set[str] | None = None,
) -> Described:
    """What it has; `only` that, if given. Raises Unanswered, ConfigError for a topic that is neither there nor
    `elsewhere`."""
    deadline = time.monotonic() + timeout_s
    failed = []
    keys: list[TopicPartition] = []
    for result in _ask(client, DescribeLogDirsRequest(topics=None)).results:
        if result.error_code:
            failed.append(f"{result.log_dir} has failed, and what is in it is left out here")
        found = [(topic.name, one.partition_index) for topic in result.topics for one in topic.partitions]
        keys += [key for key in found if (not topics or key[0] in topics) and (only is None or key in only)]
    require_topics(topics, {topic for topic, _ in keys} | (elsewhere or set()), client.address)
    partitions: dict[TopicPartition, Partition] = {}
    left = sorted(set(keys))
    pause_s, longest_s = _PAUSE_S
    while left:
        for at in range(0, len(left), _PARTITIONS_MAX):
            partitions.update(_counted(client, left[at : at + _PARTITIONS_MAX], COUNTS))
        left = [key for key in left if key in partitions and partitions[key].is_counting]
        if left and time.monotonic() + pause_s > deadline:
            break
        if left:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
    if segments:
        for some in _portions(partitions):
            partitions.update(_counted(client, some, COUNTS_OF_SEGMENTS))
    return Described(partitions.values(), failed)


def _ask(client: BlockingClient, request: DescribeLogDirsRequest) -> Any:
    response = client.ask(request, _VERSION)
    if response.error_code:
        raise Unanswered(f"{client.address} refuses to answer: {name_of_error(response.error_code)}")
    return response


def _portions(partitions: dict[TopicPartition, Partition]) -> Iterator[list[TopicPartition]]:
    """Keys that can be asked for at once: not too many segments together."""
    some: list[TopicPartition] = []
    count = 0
    for key, one in partitions.items():
        if some and count + one.counts.segment_count > _ELEMENTS_MAX:
            yield some
            some, count = [], 0
        some.append(key)
        count += one.counts.segment_count + 1
    if some:
        yield some


def _counted(
    client: BlockingClient, keys: Iterable[TopicPartition], count_records: int
) -> Iterator[tuple[TopicPartition, Partition]]:
    asked: dict[str, list[int]] = {}
    for topic, index in keys:
        asked.setdefault(topic, []).append(index)
    topics = [DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in asked.items()]
    response = _ask(client, DescribeLogDirsRequest(topics=topics, count_records=count_records))
    if not response.counts_records:
        raise Unanswered(f"{client.address} is no kafkalite that counts records; try --data-dir")
    for result in response.results:
        for topic in result.topics:
            for one in topic.partitions:
                if one.counts is not None:
                    yield (topic.name, one.partition_index), _partition(topic.name, one)


def _partition(topic: str, one: Any) -> Partition:
    told = one.counts
    counts = Counts(_known(told.live_records), _known(told.control_records), one.partition_size, told.segment_count)
    return Partition(
        topic,
        one.partition_index,
        told.leader_epoch,
        told.start_offset,
        told.end_offset,
        counts,
        COUNTING in (told.live_records, told.control_records),
        {
            segment.base_offset: Counts(
                _known(segment.live_records), _known(segment.control_records), segment.size_bytes, 1
            )
            for segment in told.segments
        },
    )


def _known(count: int) -> int | None:
    return None if count < 0 else count


# from the files


def from_directories(directories: Sequence[str], topics: Sequence[str]) -> Described:
    """Raises ConfigError for what is no data directory and for a topic that is not there."""
    from kafkalite.inspection.count_records import Count, count

    def counts(found: Count, segment_count: int) -> Counts:
        return Counts(found.live_records, found.control_records, found.bytes, segment_count)

    partitions = []
    complaints = []
    for directory in directories:
        try:
            counted = count(directory, topics)
        except OSError as error:
            place = error.filename or directory
            raise ConfigError(f"cannot count {place}: {error.strerror or error}") from error
        if counted.is_running:
            complaints.append(f"a broker is running on {directory} and may go on writing; better ask it (--bootstrap)")
        for one in counted.partitions:
            if one.total.unread_bytes:
                name, lost_bytes = one.partition.name, one.total.unread_bytes
                complaints.append(f"{lost_bytes} bytes of {name} are no whole batches; see kafkalite log verify")
            partitions.append(
                Partition(
                    one.partition.topic,
                    one.partition.partition,
                    -1,
                    one.start_offset,
                    one.end_offset,
                    counts(one.total, len(one.segments)),
                    False,
                    {base: counts(found, 1) for base, found in one.segments.items()},
                )
            )
    require_topics(topics, {one.topic for one in partitions}, " and ".join(directories))
    return Described(partitions, complaints)


# showing it

_COLUMNS = ("topic", "partition", "epoch", "start", "end", "live records", "control", "bytes", "segments")


def table(described: Described, segments: bool) -> Iterator[str]:
    """A row for each partition, with `segments` for each segment too, the sum of each topic, and that of all."""
    rows: list[Sequence[str]] = [_COLUMNS]
    total = Counts()
    topic_count = 0
    for topic, partitions in groupby(described.partitions, lambda one: one.topic):
        topic_count += 1
        of_topic = Counts()
        for one in partitions:
            of_topic.add(one.counts)
            missing = "counting" if one.is_counting else "unknown"
            epoch = "-" if one.leader_epoch < 0 else str(one.leader_epoch)
            where = (topic, str(one.index), epoch, f"{one.start_offset:,}", f"{one.end_offset:,}")
            rows.append(_row(where, one.counts, missing))
            for base, found in one.segments.items() if segments else ():
                rows.append(_row((f"  {base:020d}", "", "", "", ""), found, missing))
        rows.append(_row((topic, "all", "", "", ""), of_topic))
        total.add(of_topic)
    if topic_count != 1:
        rows.append(_row((f"{topic_count} topics", str(len(described.partitions)), "", "", ""), total))
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *cells]).rstrip()


def _row(where: Sequence[str], counts: Counts, missing: str = "unknown") -> Sequence[str]:
    numbers = [counts.live_records, counts.control_records, counts.size_bytes, counts.segment_count]
    return (*where, *[missing if number is None else f"{number:,}" for number in numbers])


def objects(described: Described, *, segments: bool) -> Iterator[str]:
    """One JSON object a line: partitions, their segments if asked for, topics. What is not known is null."""
    of_topics: dict[str, Counts] = {}
    for one in described.partitions:
        of_topics.setdefault(one.topic, Counts()).add(one.counts)
        where = {"topic": one.topic, "partition": one.index}
        if segments:
            for base, found in one.segments.items():
                yield _json({"type": "segment", **where, "base_offset": base}, found)
        offsets = {"start_offset": one.start_offset, "end_offset": one.end_offset}
        epoch = {"leader_epoch": None if one.leader_epoch < 0 else one.leader_epoch}
        yield _json({"type": "partition", **where, **epoch, **offsets}, one.counts)
    for topic, found in of_topics.items():
        yield _json({"type": "topic", "topic": topic}, found)


def _json(where: dict[str, object], counts: Counts) -> str:
    numbers = {
        "live_records": counts.live_records,
        "control_records": counts.control_records,
        "bytes": counts.size_bytes,
        "segments": counts.segment_count,
    }
    return json.dumps(where | numbers, separators=(",", ":"))
