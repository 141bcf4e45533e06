"""`kafkalite topic describe`: exactly how many records and bytes topics, partitions and segments hold.

A running broker answers DescribeLogDirs with tagged fields of ours; the request is repeated while the broker is still
counting. Each broker of a cluster counts the partitions that it leads. A stopped broker's data directory is counted as
by `kafkalite log count`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kafkalite.cli.command_config import (
    add_bootstrap_server,
    add_command_config,
    add_timeout,
    security_of,
)
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.client.cluster_client import ClusterClient, PartitionPlace, require_topics
from kafkalite.client.described_configs import own_settings
from kafkalite.client.log_dirs import describe, list_partitions
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import INTERNAL_TOPICS, TopicPartition
from kafkalite.common.output import aligned, complain, json_line, print_all, say
from kafkalite.common.text import size_text
from kafkalite.protocol.messages.log_dirs import COUNTING, COUNTS, COUNTS_OF_SEGMENTS, PartitionRecordCounts

_PAUSE_S = (0.05, 0.5)  # between requests, at first and at most
_ELEMENTS_MAX = 50_000  # partitions and segments in one response


class RecordCounts(NamedTuple):
    """A number of records is None where it is not known."""

    live_records: int | None = 0
    control_records: int | None = 0
    bytes: int = 0
    segments: int = 0

    def plus(self, other: RecordCounts) -> RecordCounts:
        pairs = zip(self, other, strict=True)
        return RecordCounts(*[None if a is None or b is None else a + b for a, b in pairs])  # type: ignore[arg-type]


@dataclass(slots=True)
class PartitionCounts:
    """The counts of one partition. `leader_epoch` is -1 if unknown. `segments` by base offset, empty unless requested.

    `elr` are the replicas besides the ISR that may be elected. `place` is None for the files of a stopped broker.
    """

    topic: str
    index: int
    leader_epoch: int
    start_offset: int
    end_offset: int
    counts: RecordCounts
    is_counting: bool = False
    segments: dict[int, RecordCounts] = field(default_factory=dict)
    elr: tuple[int, ...] = ()
    place: PartitionPlace | None = None


class Description:
    """The partitions in order, and complaints for the operator; `failed` are those about unreadable data."""

    def __init__(self, partitions: Iterable[PartitionCounts], failed: Sequence[str] = ()) -> None:
        self.partitions = sorted(partitions, key=lambda one: (one.topic, one.index))
        self.failed = tuple(failed)
        self.complaints = list(failed)
        missing = [f"{one.topic}-{one.index}" for one in self.partitions if one.counts.live_records is None]
        counting = sum(one.is_counting for one in self.partitions)
        if counting:
            self.complaints.append(f"{counting} partitions are still being counted; try again")
        if len(missing) > counting:
            self.complaints.append(f"not all of {', '.join(missing[:5])} can be counted; see kafkalite log verify")


def add_describe_options(command: argparse.ArgumentParser) -> None:
    """The options of `kafkalite topic describe`."""
    command.add_argument("topics", nargs="*", metavar="TOPIC", help="only these (default: all)")
    place = command.add_mutually_exclusive_group()
    add_bootstrap_server(place)
    place.add_argument("--data-dir", metavar="DIR[,DIR]", help="count the files of a stopped broker")
    add_command_config(command)
    command.add_argument("--segments", action="store_true", help="a row for each segment too")
    command.add_argument("--internal", action="store_true", help="internal topics, too; named ones are always shown")
    command.add_argument("--json", action="store_true", help="one JSON object a line")
    add_timeout(command, 60.0)


def run_describe(options: argparse.Namespace) -> int:
    """Returns the exit code: 1 if something is not known. Raises ConfigError, Unanswered."""
    settings: list[tuple[str, list[tuple[str, str]]]] = []
    if options.data_dir is not None:
        description = from_directories(options.data_dir.split(","), options.topics)
    else:
        with ClusterClient(options.bootstrap_server, min(options.timeout, 10.0), security_of(options)) as cluster:
            description = from_cluster(cluster, options.topics, options.timeout, segments=options.segments)
            if not options.topics and not options.internal:
                description.partitions = [one for one in description.partitions if one.topic not in INTERNAL_TOPICS]
            if not options.json:
                described = {one.topic for one in description.partitions}
                settings = own_settings(cluster, sorted(described & set(cluster.topics)))
    print_all((objects if options.json else table)(description, segments=options.segments))
    own = [(topic, ", ".join(f"{name}={value}" for name, value in found)) for topic, found in settings if found]
    say(*[f"settings of {topic}: {text}" for topic, text in own])
    return complain(*description.complaints) if description.complaints else 0


# from running brokers


def from_cluster(cluster: ClusterClient, topics: Sequence[str], timeout_s: float, *, segments: bool) -> Description:
    """The partitions that each broker leads. Raises Unanswered, ConfigError for a topic that does not exist."""
    deadline = time.monotonic() + timeout_s

    def ask(client: BlockingClient, led: set[TopicPartition] | None) -> Description:
        left_s = deadline - time.monotonic()
        return from_broker(client, topics, left_s, segments=segments, only=led, elsewhere=cluster.topics)

    descriptions, missing = cluster.ask_all(topics, ask)
    partitions = [partition for one in descriptions for partition in one.partitions]
    for partition in partitions:
        partition.place = cluster.places.get((partition.topic, partition.index))
    whole = Description(partitions, [complaint for one in descriptions for complaint in one.failed])
    if not cluster.is_one or not whole.complaints:  # a directory that failed may have the partitions without a leader
        whole.complaints += missing
    return whole


def from_broker(
    client: BlockingClient,
    topics: Sequence[str],
    timeout_s: float,
    *,
    segments: bool,
    only: set[TopicPartition] | None = None,
    elsewhere: set[str] | None = None,
) -> Description:
    """The partitions of one broker, or `only` these of them. Raises Unanswered, ConfigError for a topic that is neither
    here nor `elsewhere`."""
    deadline = time.monotonic() + timeout_s
    left, failed = list_partitions(client, topics, only, elsewhere)
    partitions: dict[TopicPartition, PartitionCounts] = {}
    pause_s, longest_s = _PAUSE_S
    while left:
        partitions.update(_count(client, left, COUNTS))
        left = [key for key in left if key in partitions and partitions[key].is_counting]
        if left and time.monotonic() + pause_s > deadline:
            break
        if left:
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
    if segments:
        for portion in _portions(partitions):
            partitions.update(_count(client, portion, COUNTS_OF_SEGMENTS))
    return Description(partitions.values(), failed)


def _portions(partitions: dict[TopicPartition, PartitionCounts]) -> Iterator[list[TopicPartition]]:
    """Keys whose segments fit into one response."""
    portion: list[TopicPartition] = []
    count = 0
    for key, one in partitions.items():
        if portion and count + one.counts.segments > _ELEMENTS_MAX:
            yield portion
            portion, count = [], 0
        portion.append(key)
        count += one.counts.segments + 1
    if portion:
        yield portion


def _count(
    client: BlockingClient, keys: Sequence[TopicPartition], count_records: int
) -> Iterator[tuple[TopicPartition, PartitionCounts]]:
    for response, partitions in describe(client, keys, count_records=count_records):
        if not response.counts_records:
            raise Unanswered(f"{client.address} is no kafkalite that counts records; try --data-dir")
        for key, one in partitions:
            if one.counts is not None:
                yield key, _partition_counts(key, one.partition_size, one.counts)


def _partition_counts(key: TopicPartition, size_bytes: int, counts: PartitionRecordCounts) -> PartitionCounts:
    def known(live: int, control: int, size_bytes: int, segment_count: int) -> RecordCounts:
        return RecordCounts(None if live < 0 else live, None if control < 0 else control, size_bytes, segment_count)

    return PartitionCounts(
        *key,
        counts.leader_epoch,
        counts.start_offset,
        counts.end_offset,
        known(counts.live_records, counts.control_records, size_bytes, counts.segment_count),
        COUNTING in (counts.live_records, counts.control_records),
        {one.base_offset: known(one.live_records, one.control_records, one.size_bytes, 1) for one in counts.segments},
        tuple(counts.elr),
    )


# from the files


def from_directories(directories: Sequence[str], topics: Sequence[str]) -> Description:
    """The counts of the files. Raises ConfigError for a path that is no data directory and for an unknown topic."""
    from kafkalite.inspection.count_records import Count, count

    def record_counts(found: Count, segment_count: int) -> RecordCounts:
        return RecordCounts(found.live_records, found.control_records, found.bytes, segment_count)

    partitions = []
    complaints = []
    for directory in directories:
        try:
            counted = count(directory, topics)
        except OSError as error:
            place = error.filename or directory
            raise ConfigError(f"cannot count {place}: {error.strerror or error}") from error
        if counted.is_running:
            complaints.append(f"a broker is running on {directory} and may still write; use --bootstrap instead")
        for one in counted.partitions:
            if lost_bytes := one.total.unread_bytes:
                name = one.partition.name
                complaints.append(f"{lost_bytes} bytes of {name} are no whole batches; see kafkalite log verify")
            segments = {base: record_counts(found, 1) for base, found in one.segments.items()}
            total = record_counts(one.total, len(segments))
            key = one.partition.topic, one.partition.partition
            partitions.append(PartitionCounts(*key, -1, one.start_offset, one.end_offset, total, False, segments))
    require_topics(topics, {one.topic for one in partitions}, " and ".join(directories))
    return Description(partitions, complaints)


# printing

_COUNT_COLUMNS = ("topic", "partition", "epoch", "start", "end", "live records", "control", "size", "segments")
_PLACE_COLUMNS = ("leader", "replicas", "isr", "elr", "")  # the last column names the fault


def table(description: Description, *, segments: bool) -> Iterator[str]:
    """A row for each partition, with `segments` for each segment too, the sum of each topic, and that of all."""
    rows: list[Sequence[str]] = [_COUNT_COLUMNS]
    places: dict[int, Sequence[str]] = {0: _PLACE_COLUMNS}  # beside some of the rows
    total = RecordCounts()
    topic_count = 0
    for topic, partitions in groupby(description.partitions, lambda one: one.topic):
        topic_count += 1
        of_topic = RecordCounts()
        for one in partitions:
            of_topic = of_topic.plus(one.counts)
            unknown = "counting" if one.is_counting else "unknown"
            epoch = "-" if one.leader_epoch < 0 else str(one.leader_epoch)
            offsets = f"{one.start_offset:,}", f"{one.end_offset:,}"
            places[len(rows)] = _place_row(one)
            rows.append(_count_row((topic, str(one.index), epoch, *offsets), one.counts, unknown))
            for base, counts in one.segments.items() if segments else ():
                rows.append(_count_row((f"  {base:020d}", "", "", "", ""), counts, unknown))
        rows.append(_count_row((topic, "all", "", "", ""), of_topic))
        total = total.plus(of_topic)
    if topic_count != 1:
        rows.append(_count_row((f"{topic_count} topics", str(len(description.partitions)), "", "", ""), total))
    if all(one.place is None for one in description.partitions):
        return aligned(rows)
    nothing = ("",) * len(_PLACE_COLUMNS)
    return aligned([(*row, *places.get(at, nothing)) for at, row in enumerate(rows)])


def _place_row(one: PartitionCounts) -> Sequence[str]:
    if one.place is None:
        return ("",) * len(_PLACE_COLUMNS)
    leader, replicas, isr, _ = one.place
    fault = "under-replicated" if len(isr) < len(replicas) else ""
    return (str(leader), *[",".join(map(str, brokers)) for brokers in (replicas, isr, one.elr)], fault)


def _count_row(head: Sequence[str], counts: RecordCounts, unknown: str = "unknown") -> Sequence[str]:
    records = counts.live_records, counts.control_records
    shown = [unknown if number is None else f"{number:,}" for number in records]
    return (*head, *shown, size_text(counts.bytes), f"{counts.segments:,}")


def objects(description: Description, *, segments: bool) -> Iterator[str]:
    """One JSON object a line: partitions, their segments if asked for, topics. A number that is not known is null."""
    of_topics: dict[str, RecordCounts] = {}
    for one in description.partitions:
        of_topics[one.topic] = of_topics.get(one.topic, RecordCounts()).plus(one.counts)
        key = {"topic": one.topic, "partition": one.index}
        for base, counts in one.segments.items() if segments else ():
            yield _json({"type": "segment", **key, "base_offset": base}, counts)
        epoch = None if one.leader_epoch < 0 else one.leader_epoch
        offsets = {"leader_epoch": epoch, "start_offset": one.start_offset, "end_offset": one.end_offset}
        yield _json({"type": "partition", **key, **offsets, **_place(one)}, one.counts)
    for topic, counts in of_topics.items():
        yield _json({"type": "topic", "topic": topic}, counts)


def _place(one: PartitionCounts) -> dict[str, object]:
    """The replicas of a partition of a running broker."""
    if one.place is None:
        return {}
    leader, replicas, isr, _ = one.place
    return {
        "leader": leader,
        "replicas": list(replicas),
        "isr": list(isr),
        "elr": list(one.elr),
        "is_under_replicated": len(isr) < len(replicas),
    }


def _json(head: dict[str, object], counts: RecordCounts) -> str:
    return json_line(head | counts._asdict())
