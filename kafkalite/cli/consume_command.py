"""`kafkalite consume`: the records of topics, as lines.

    kafkalite consume orders                     # from the beginning to the present end
    kafkalite consume orders --follow            # new records as they arrive
    kafkalite consume orders --tail 10 --follow
    kafkalite consume orders --from 2026-01-31T12:00 --json

Only records of committed transactions are printed, unless --uncommitted is given. On a terminal control characters of a
record are escaped; a pipe or a file gets its bytes.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator

from kafkalite.cli.command_config import add_bootstrap_server, add_command_config, add_timeout, security_of
from kafkalite.cli.record_format import renderer, safe
from kafkalite.client.cluster_client import ClusterClient, require_topics
from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.client.scan import BEGINNING, END, OFFSET, TAIL, TIME, Scan, Start
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import TopicPartition
from kafkalite.common.output import complain
from kafkalite.common.timestamps import format_timestamp, parse_timestamp
from kafkalite.record.json_lines import Shown, json_pieces

_TAIL_MAX = 100_000
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
    parser.add_argument(
        "--follow", "-F", action="store_true", help="wait for new records and print them as they arrive"
    )
    parser.add_argument("--count", "-n", type=int, metavar="N", help="stop after this many records")
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
    add_bootstrap_server(parser)
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
    except KeyboardInterrupt:
        pass
    finally:
        sys.stdout.flush()
    return 1 if unreadable else 0


def _writer(options: argparse.Namespace) -> Callable[[Shown], object]:
    """Raises ConfigError."""
    out, is_terminal = sys.stdout, sys.stdout.isatty()
    pieces: Callable[[Shown], Iterable[bytes]]
    if options.json:
        pieces = json_pieces
    elif options.format is None and is_terminal:
        return lambda one: print(_for_people(one, has_topics=len(options.topics) > 1))
    else:
        pieces = renderer("%v\\n" if options.format is None else options.format)
    if is_terminal:
        return lambda one: out.write(safe(b"".join(pieces(one))))
    raw = out.buffer
    if options.follow:
        return lambda one: (raw.writelines(pieces(one)), raw.flush())
    return lambda one: raw.writelines(pieces(one))


def _for_people(one: Shown, *, has_topics: bool) -> str:
    place = f"{safe(one.topic.encode())}/{one.partition}" if has_topics else str(one.partition)
    key = "-" if one.key is None else safe(one.key)
    value = "(none)" if one.value is None else safe(one.value)
    headers = "".join(
        f"  {safe(name.encode())}" + ("" if value is None else f"={safe(value)}") for name, value in one.headers
    )
    return f"{place}:{one.offset}  {format_timestamp(one.timestamp)}  {key}  {value}{headers}"


class _Consumption:
    """The records that the arguments select. `unreadable` has the positions of batches that are left out. Raises
    ConfigError."""

    def __init__(
        self, cluster: ClusterClient, options: argparse.Namespace, unreadable: set[tuple[TopicPartition, int]]
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._unreadable = unreadable
        self._partitions = self._chosen()
        if options.tail is not None and not 0 < options.tail <= _TAIL_MAX:
            raise ConfigError(f"--tail {options.tail} must be from 1 to {_TAIL_MAX}")
        if options.count is not None and options.count < 1:
            raise ConfigError(f"--count {options.count} must be at least 1")
        if options.tail is not None and options.begin is not None:
            raise ConfigError("--tail and --from both name the first record; give only one of them")

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
        options = self._options
        scan = Scan(
            self._cluster,
            self._partitions,
            self._start(),
            self._select,
            _report_gap,
            timeout_s=options.timeout,
            committed_only=not options.uncommitted,
        )
        if options.tail is not None:
            yield from self._newest(scan, options.tail)
        else:
            for one in scan.forwards():
                waiting = one.by_time()[::-1]
                del one  # its records are not kept while the next ones are read
                while waiting:
                    yield waiting.pop().shown()
        if options.follow:
            for one in scan.tail():
                yield from (record.shown() for records in one.found.values() for record in records)

    def _start(self) -> Start:
        options = self._options
        text = options.begin or ("end" if options.follow else "beginning")
        if options.tail is not None:
            return Start(END)
        if text in ("beginning", "end"):
            return Start(TAIL if text == "end" else BEGINNING)
        if _OFFSET.match(text):
            return Start(OFFSET, int(text))
        return Start(TIME, time_ms=parse_timestamp("--from", text, what=_WHERE))

    def _newest(self, scan: Scan, count: int) -> Iterator[Shown]:
        """The newest of all partitions, in the order of time."""
        for one in scan.backwards(count, count):
            if one.found:
                newest = [record for records in one.found.values() for record in records[:count]]
                yield from (record.shown() for record in sorted(newest, key=_by_time)[-count:])
                return

    def _select(self, records: list[ScannedRecord]) -> list[ScannedRecord]:
        """The data records, without markers of transactions."""
        return [one for one in records if one.marker is None and self._is_whole(one)]

    def _is_whole(self, one: ScannedRecord) -> bool:
        """Reports a batch that cannot be read once."""
        place = (one.topic, one.partition), one.offset
        if one.fault is not None and place not in self._unreadable:
            self._unreadable.add(place)
            complain(
                f"{one.topic}-{one.partition}: the batch at offset {one.offset} cannot be read, and is left out: "
                f"{one.fault}"
            )
        return one.fault is None


def _report_gap(partition: TopicPartition, offset: int, position: int) -> None:
    topic, index = partition
    complain(f"{topic}-{index}: the records from offset {offset} on were deleted; resumes at offset {position}")


def _by_time(one: ScannedRecord) -> tuple[int, int, int]:
    return one.timestamp, one.partition, one.offset
