"""Random reads of a topic: the options, the splits, the columns; and the rows that a stock consumer has for them.

Positions that the options name become offsets by the consumer's own requests (ListOffsets); then it seeks and reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa

import kafkalite
from kafkalite.common.errors import ConfigError
from kafkalite.reader.chunk_reader import COLUMNS, count_rows, read_split
from kafkalite.reader.options import parse_options
from kafkalite.reader.plan import plan
from kafkalite.reader.planning.split import EVERY_ROW, ReadReport, ReadSettings, RowFilter, Split
from tests.support.inspection.random_logs import TIME_MS
from tests.support.reader.stock_consumer import StockConsumer

SPLITS_MAX = 64
STRATEGY = "startingOffsetsByTimestampStrategy"
ALL = tuple(COLUMNS)


class ReadCase:
    """One read of `topic`, drawn from a seed. `bounds` are the consumer's log start and end of each partition."""

    def __init__(
        self, seed: int, topic: str, consumer: StockConsumer, partitions: int, *, read_committed: bool
    ) -> None:
        self.random = Random(seed)
        self.topic = topic
        self.consumer = consumer
        self.whole = self.bounds = {index: consumer.bounds(topic, index) for index in range(partitions)}
        self.options: dict[str, str] = {
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed" if read_committed else "read_uncommitted",
        }
        self._choose_topics()
        starts, ends = self._limit("starting"), self._limit("ending")
        self.keeps = self.random.random() < 0.7  # failOnDataLoss
        self.options["failOnDataLoss"] = str(self.keeps).lower()
        self.ranges = self._ranges(starts, ends)
        self._choose_splits()

    def _choose_topics(self) -> None:
        draw = self.random
        form = draw.choice(("subscribe", "subscribePattern", "assign"))
        if form == "assign":
            chosen = draw.sample(sorted(self.bounds), draw.randint(1, len(self.bounds)))
            self.bounds = {index: self.bounds[index] for index in sorted(chosen)}
            self.options[form] = json.dumps({self.topic: chosen})
        else:
            self.options[form] = self.topic if form == "subscribe" else f"^{self.topic}$"

    # positions

    def _limit(self, side: str) -> dict[int, int | None]:
        """Sets an option; the offset that it means for each partition, None for a time that is not reached."""
        draw = self.random
        is_start = side == "starting"
        form = draw.choice(("default", "word", "before", "json", "json", "partial", "timestamp", "by_timestamp"))
        word = "earliest" if is_start else "latest"
        default = {index: start if is_start else end for index, (start, end) in self.bounds.items()}
        if form == "default":
            return dict(default)
        if form == "word":
            self.options[f"{side}Offsets"] = word
            return dict(default)
        if form == "before":
            count = draw.randrange(0, 40)
            self.options[f"{side}Offsets"] = f"latest-{count}"
            return {index: max(start, end - count) for index, (start, end) in self.bounds.items()}
        if form == "timestamp":
            moment = self._moment()
            self.options[f"{side}Timestamp"] = str(moment)
            return {index: self._at(index, moment, is_start=is_start) for index in self.bounds}
        if form == "by_timestamp":
            moments = {index: self._moment() for index in self.bounds}
            self.options[f"{side}OffsetsByTimestamp"] = json.dumps({self.topic: moments})
            return {index: self._at(index, moment, is_start=is_start) for index, moment in moments.items()}
        return self._by_partition(side, default, is_partial=form == "partial")

    def _by_partition(self, side: str, default: Mapping[int, int], *, is_partial: bool) -> dict[int, int | None]:
        draw = self.random
        named: dict[str, int | str] = {}
        meant: dict[int, int | None] = {}
        for index, (start, end) in self.bounds.items():
            form = draw.choice(("offset", "offset", "offset", "special", "before", "beyond"))
            if is_partial and draw.random() < 0.5:
                meant[index] = default[index]
            elif form == "special":
                named[str(index)] = -2 if side == "starting" else -1
                meant[index] = default[index]
            elif form == "before":
                count = draw.randrange(0, 40)
                named[str(index)] = f"latest-{count}"
                meant[index] = max(start, end - count)
            else:
                beyond = 5 if form == "beyond" and draw.random() < 0.5 else 0
                meant[index] = draw.randint(max(0, start - beyond), end + beyond)
                named[str(index)] = meant[index] or 0
        if is_partial:
            named["*"] = -2 if side == "starting" else -1
        self.options[f"{side}Offsets"] = json.dumps({self.topic: named})
        return meant

    def _moment(self) -> int:
        draw = self.random
        return draw.choice((0, TIME_MS - 10, *(TIME_MS + 50 * draw.randrange(150) for _ in range(8)), 1 << 42))

    def _at(self, index: int, moment: int, *, is_start: bool) -> int | None:
        found = self.consumer.first_at(self.topic, index, moment)
        end = self.bounds[index][1]
        if found is None or found >= end:
            return None if is_start else end
        return found

    def _ranges(
        self, starts: Mapping[int, int | None], ends: Mapping[int, int | None]
    ) -> dict[int, tuple[int, int]] | None:
        """The offsets to read of each partition; None if the options are refused."""
        if None in starts.values() and self.random.random() < 0.5:
            self.options[STRATEGY] = "latest"
        ranges = {}
        for index, (log_start, log_end) in self.bounds.items():
            start, end = starts[index], ends[index]
            if start is None:
                if STRATEGY not in self.options:
                    return None
                start = log_end
            assert end is not None
            if (self.keeps and not (log_start <= start <= log_end and log_start <= end <= log_end)) or start > end:
                return None
            ranges[index] = (min(max(start, log_start), log_end), min(max(end, log_start), log_end))
        return ranges

    # splits

    def _choose_splits(self) -> None:
        draw = self.random
        self.parallelism = draw.choice((0, 0, 2, 8))
        self.most: int | None = None
        form = draw.choice(("none", "minPartitions", "maxPartitionBytes", "maxRecordsPerPartition"))
        if form == "minPartitions":
            self.options[form] = str(draw.randint(1, SPLITS_MAX))
        elif form == "maxPartitionBytes":
            self.options[form] = str(draw.choice((200, 1000, 5000, 20_000, 1 << 20)))
        elif form == "maxRecordsPerPartition":
            count = sum(end - start for start, end in (self.ranges or {}).values())
            self.most = max(1, draw.randint(count // SPLITS_MAX, count + 1))
            self.options[form] = str(self.most)
        self.row_filter = EVERY_ROW
        if draw.random() < 0.25:
            low = [draw.choice((EVERY_ROW[0], draw.randrange(200))), draw.choice((EVERY_ROW[2], self._moment()))]
            high = [draw.choice((EVERY_ROW[1], draw.randrange(300))), draw.choice((EVERY_ROW[3], self._moment()))]
            self.row_filter = RowFilter(low[0], high[0], low[1], high[1])
        self.columns: Sequence[str] = ALL
        if draw.random() < 0.3:
            self.columns = draw.sample(ALL, draw.randint(1, len(ALL)))

    # both views

    def expected_rows(self, columns: Sequence[str] = ALL) -> list[tuple[Any, ...]]:
        """By the consumer, in the order of partitions and offsets."""
        assert self.ranges is not None
        low, high, earliest, latest = self.row_filter
        rows = self.consumer.read(self.topic, self.ranges)
        return [
            tuple(getattr(row, name) for name in columns)
            for row in rows
            if low <= row.offset <= high and earliest <= row.timestamp <= latest
        ]

    def plan(self, path: str) -> list[Split]:
        """Raises ConfigError."""
        options = parse_options({"path": path, **self.options})
        return plan(replace(options, row_filter=self.row_filter), parallelism=self.parallelism)

    def check(self, path: str) -> int:
        """Compares what the reader of the data directory gives with what the consumer gives. Returns the rows."""
        if self.ranges is None:
            try:
                splits = self.plan(path)
            except ConfigError:
                return 0
            raise AssertionError(f"{self} is not refused: {splits}")
        splits = self.plan(path)
        expected = self.expected_rows(self.columns)
        settings = ReadSettings(batch_bytes=self.random.choice((1, 64 << 20)))
        found: list[tuple[Any, ...]] = []
        for split in splits:
            report = ReadReport()
            rows = list(rows_of(read_split(split, schema_of(self.columns), settings, report), self.columns))
            assert self.most is None or len(rows) <= self.most, f"{self}: a split of {len(rows)} rows"
            assert not report.lost and report.rows == len(rows), f"{self}: {report}"
            found += rows
        assert found == expected, f"{self}: {difference(found, expected)}"
        counted = sum(count_rows(split) for split in splits)
        assert counted == len(expected), f"{self}: {counted} rows are counted, {len(expected)} are there"
        return len(expected)

    def check_whole(self, path: str) -> None:
        """`kafkalite.read` of the whole topic, in one piece."""
        committed = self.options["kafka.isolation.level"]
        reader = kafkalite.read(path, self.topic, isolation_level=committed, include_headers=True)
        found = list(rows_of(reader, ALL))
        expected = [tuple(row) for row in self.consumer.read(self.topic, self.whole)]
        assert found == expected, f"{self.topic}: {difference(found, expected)}"

    def __str__(self) -> str:
        return (
            f"{self.options} parallelism {self.parallelism} {self.row_filter} columns {self.columns} of {self.bounds}, "
            f"that is {self.ranges}"
        )


def schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, COLUMNS[name].arrow) for name in columns])


def rows_of(batches: Any, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows of Arrow batches as `Row` has them: milliseconds, tuples of headers."""
    for batch in batches:
        values = [_values(batch.column(name), name) for name in columns]
        yield from zip(*values, strict=True)


def _values(column: pa.Array, name: str) -> list[Any]:
    if name == "timestamp":
        return [None if micros is None else micros // 1000 for micros in column.cast(pa.int64()).to_pylist()]
    if name == "headers":
        return [row and tuple((each["key"], each["value"]) for each in row) for row in column.to_pylist()]
    return list(column.to_pylist())


def difference(found: Sequence[Any], expected: Sequence[Any]) -> str:
    at = next(
        (n for n, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b), min(len(found), len(expected))
    )
    return f"{len(found)} rows for {len(expected)}; at {at} {found[at : at + 2]} for {expected[at : at + 2]}"
