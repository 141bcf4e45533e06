"""`kafkalite consume`: the records of topics, as lines.

    kafkalite consume orders                     # from the beginning to the end of now
    kafkalite consume orders --follow            # those that come
    kafkalite consume orders --tail 10 --follow
    kafkalite consume orders --from 2026-01-31T12:00 --json

Of transactions those that are committed, unless --uncommitted asks for the others, too. On a terminal nothing that a
record contains moves the cursor; into a pipe or a file go its bytes.
"""

from __future__ import annotations

import argparse
import heapq
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from kafkalite.cli.command_config import add_bootstrap_server, add_command_config, add_timeout, security_of
from kafkalite.cli.output import complain
from kafkalite.cli.record_format import Render, renderer, safe
from kafkalite.client.blocking_client import Unanswered
from kafkalite.client.cluster_client import ClusterClient, require_topics
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.common.timestamps import format_timestamp, parse_timestamp
from kafkalite.console.messages.scanned_record import PartitionScan, ScannedRecord
from kafkalite.record.json_lines import Shown, json_of

_TAIL_MAX = 100_000
_WAIT_MS = 500
_WINDOW_MIN = 100
_RETRIES_MAX = 40
_PAUSE_S = 0.25
_WHERE = "beginning, end, an offset, or a time such as 2026-01-31T12:00"
_OFFSET = re.compile(r"\d{1,18}\Z", re.ASCII)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "--from",
        dest="begin",
        metavar="WHERE",
        help=f"{_WHERE} (default: beginning; with --follow, end)",
    )
    parser.add_argument("--tail", "-t", type=int, metavar="N", help="begin with the newest N records")
    parser.add_argument("--follow", "-F", action="store_true", help="go on with records as they come")
    parser.add_argument("--count", "-n", type=int, metavar="N", help="end after so many records")
    parser.add_argument("--partition", "-p", type=int, action="append", metavar="N", help="only this; may be repeated")
    parser.add_argument("--uncommitted", action="store_true", help="records of open and aborted transactions, too")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--format",
        "-f",
        metavar="FORMAT",
        help="%%t topic, %%p partition, %%o offset, %%T timestamp, %%d date, %%k key, %%v value, %%K %%V their sizes, "
        "%%h headers; \\n \\t \\xHH",
    )
    form.add_argument("--json", action="store_true", help="one JSON object a line")
    add_bootstrap_server(parser, "--bootstrap-server", "--bootstrap", "-b")
    add_command_config(parser)
    add_timeout(parser, 10.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code: 1 if records were left out that cannot be read. Raises ConfigError."""
    write = _writer(options)
    unreadable: set[tuple[TopicPartition, int]] = set()
    try:
        with ClusterClient(options.bootstrap_server, options.timeout, security_of(options)) as cluster:
            consumption = _Consumption(cluster, options, unreadable)
            for number, one in enumerate(consumption.records(), start=1):
                write(one)
                if number == options.count:
                    break
    except Unanswered as error:
        return complain(str(error))
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.flush()
    return 1 if unreadable else 0


def _writer(options: argparse.Namespace) -> Callable[[Shown], object]:
    """Raises ConfigError."""
    out, is_terminal = sys.stdout, sys.stdout.isatty()
    render: Render
    if options.json:
        render = json_of
    elif options.format is not None:
        render = renderer(options.format)
    elif is_terminal:
        return lambda one: print(_for_people(one, has_topics=len(options.topics) > 1))
    else:
        render = renderer("%v\\n")
    if is_terminal:
        return lambda one: out.write(safe(render(one)))
    raw = out.buffer
    if options.follow:
        return lambda one: (raw.write(render(one)), raw.flush())
    return lambda one: raw.write(render(one))


def _for_people(one: Shown, *, has_topics: bool) -> str:
    place = f"{safe(one.topic.encode())}/{one.partition}" if has_topics else str(one.partition)
    key = "-" if one.key is None else safe(one.key)
    value = "(none)" if one.value is None else safe(one.value)
    headers = "".join(
        f"  {safe(name.encode())}" + ("" if value is None else f"={safe(value)}") for name, value in one.headers
    )
    return f"{place}:{one.offset}  {format_timestamp(one.timestamp)}  {key}  {value}{headers}"


class _Consumption:
    """The wanted records, from the arguments. Into `unreadable` come the places of batches that are left out. Raises
    ConfigError."""

    def __init__(
        self, cluster: ClusterClient, options: argparse.Namespace, unreadable: set[tuple[TopicPartition, int]]
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._unreadable = unreadable
        self._partitions = self._chosen()
        self._scans = {
            key: PartitionScan(cluster, *key, committed_only=not options.uncommitted) for key in self._partitions
        }
        if options.tail is not None and not 0 < options.tail <= _TAIL_MAX:
            raise ConfigError(f"--tail {options.tail} must be from 1 to {_TAIL_MAX}")
        if options.count is not None and options.count < 1:
            raise ConfigError(f"--count {options.count} must be at least 1")
        if options.tail is not None and options.begin is not None:
            raise ConfigError("--tail and --from both say where to begin; give only one of them")

    def _chosen(self) -> list[TopicPartition]:
        options, places = self._options, self._cluster.places
        require_topics(options.topics, self._cluster.topics, self._cluster.address)
        found = sorted(key for key in places if key[0] in options.topics)
        if options.partition:
            for topic in options.topics:
                for index in options.partition:
                    if (topic, index) not in places:
                        raise ConfigError(f"topic {topic} has no partition {index}")
            found = [key for key in found if key[1] in options.partition]
        return found

    def records(self) -> Iterator[Shown]:
        """Raises Unanswered, ConfigError."""
        of_logs = LogOffsets(self._cluster, self._options.timeout)
        earliest = of_logs.starts(self._partitions)
        latest = of_logs.ends(self._partitions, committed=not self._options.uncommitted)
        if self._options.tail is not None:
            yield from self._newest(earliest, latest, self._options.tail)
            positions = dict(latest)
        else:
            positions = self._positions(of_logs, earliest, latest)
            yield from self._up_to(positions, latest)
        if self._options.follow:
            yield from self._as_they_come(positions)

    def _positions(
        self, of_logs: LogOffsets, earliest: dict[TopicPartition, int], latest: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        text = self._options.begin or ("end" if self._options.follow else "beginning")
        if text == "beginning":
            return dict(earliest)
        if text == "end":
            return dict(latest)
        if _OFFSET.match(text):
            offset = int(text)
            return {key: min(max(offset, earliest[key]), latest[key]) for key in self._partitions}
        found = of_logs.at_time(self._partitions, parse_timestamp("--from", text, what=_WHERE))
        return {key: found.get(key, latest[key]) for key in self._partitions}

    def _up_to(self, positions: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> Iterator[Shown]:
        """A piece of each partition in turn, until each is at its end; `positions` move."""
        left = [key for key in self._partitions if positions[key] < ends[key]]
        while left:
            for key in left:
                for one in self._read(key, positions[key], ends[key]):
                    yield _shown(key[0], one)
                positions[key] = self._scans[key].position
            left = [key for key in left if positions[key] < ends[key]]

    def _newest(
        self, earliest: dict[TopicPartition, int], latest: dict[TopicPartition, int], count: int
    ) -> Iterator[Shown]:
        """The newest of all partitions, in the order of time."""
        found: list[tuple[int, str, ScannedRecord]] = []
        for key in self._partitions:
            newest = self._newest_of(key, earliest[key], latest[key], count)
            found = heapq.nlargest(count, found + [(one.timestamp, key[0], one) for one in newest], key=_by_time)
        for _, topic, one in sorted(found, key=_by_time):
            yield _shown(topic, one)

    def _newest_of(self, key: TopicPartition, start: int, end: int, count: int) -> list[ScannedRecord]:
        """Looks further back until there are enough: compaction and markers leave gaps."""
        window = max(count, _WINDOW_MIN)
        while True:
            low, found = max(start, end - window), list[ScannedRecord]()
            position = low
            while position < end:
                found += self._read(key, position, end)
                position = self._scans[key].position
            if len(found) >= count or low == start:
                return found[-count:]
            window *= 4

    def _as_they_come(self, positions: dict[TopicPartition, int]) -> Iterator[Shown]:
        end = 1 << 62
        wait_ms = max(1, _WAIT_MS // len(self._partitions))
        while True:
            for key in self._partitions:
                for one in self._read(key, positions[key], end, wait_ms):
                    yield _shown(key[0], one)
                positions[key] = self._next_position(key, positions[key], end)

    def _next_position(self, key: TopicPartition, before: int, end: int) -> int:
        """Where the scan stands. It is at its end if the log has no such offset yet: a leader was elected that lacks
        some records."""
        now = self._scans[key].position
        if now < end:
            return now
        return min(before, LogOffsets(self._cluster, self._options.timeout).ends([key])[key])

    def _read(self, key: TopicPartition, position: int, end: int, wait_ms: int = 0) -> Sequence[ScannedRecord]:
        """Records, no markers. Looks for another leader when one has gone. Raises Unanswered."""
        for attempt in range(_RETRIES_MAX):
            try:
                found = self._scans[key].read(position, end, max_wait_ms=wait_ms)
            except Unanswered:
                if attempt + 1 == _RETRIES_MAX:
                    raise
                time.sleep(_PAUSE_S)
                with suppress(Unanswered):
                    self._cluster.refresh()
            else:
                return [one for one in found if one.marker is None and self._is_whole(key, one)]
        return ()

    def _is_whole(self, key: TopicPartition, one: ScannedRecord) -> bool:
        """Of a batch that cannot be read the user is told once."""
        if one.fault is not None and (key, one.offset) not in self._unreadable:
            self._unreadable.add((key, one.offset))
            complain(
                f"{key[0]}-{key[1]}: the batch at offset {one.offset} cannot be read, and is left out: {one.fault}"
            )
        return one.fault is None


def _by_time(entry: tuple[int, str, ScannedRecord]) -> tuple[int, int, int]:
    timestamp, _, one = entry
    return timestamp, one.partition, one.offset


def _shown(topic: str, one: ScannedRecord) -> Shown:
    return Shown(topic, one.partition, one.offset, one.timestamp, one.key, one.value, one.headers)
