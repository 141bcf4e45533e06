"""Metrics in the Prometheus text format, read from their owners at each scrape.

    metrics = Metrics()
    metrics.gauge("kafka_server_replicamanager_partitioncount", "Partitions on this broker.", lambda: len(logs))
    metrics.table(COLUMNS, ("topic", "partition"), rows)          # one row for each partition

`pieces` yields the text in pieces that each take a bounded time for any number of partitions, so that clients on the
same loop can be served between two pieces. The format requires all samples of a metric together, so a table is read to
its end before its first line is yielded.
Source: the Prometheus exposition format, version 0.0.4.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from kafkalite.common.named_tuple import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ROWS_PER_PIECE = 16  # some 10 us each, with all metrics of a partition
_LINES_PER_PIECE = 2048

COUNTER = "counter"
_COUNTERS = ("_total", "_count", "_sum", "_bucket")
GAUGE = "gauge"

Value = float | None
"""None means unknown; the sample is left out."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")


class Column(NamedTuple):
    """One metric of a table, COUNTER or GAUGE; a counter's name ends in _total, in _count beside a time, or
    as those of a histogram."""

    name: str
    help: str
    kind: str = ""

    @property
    def type(self) -> str:
        return self.kind or (COUNTER if self.name.endswith("_total") else GAUGE)


class Row(NamedTuple):
    """The values of the labels, and one value for each column."""

    labels: Sequence[str]
    values: Sequence[Value]


class _Table(NamedTuple):
    columns: Sequence[Column]
    names: Sequence[str]
    labels: Sequence[str]
    rows: Callable[[], Iterable[Row | None]]


class Metrics:
    """All metrics, in the order of their registration. Invariant: names are unique."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._tables: list[_Table] = []

    def gauge(self, name: str, text: str, read: Callable[[], Value]) -> None:
        """A number that goes up and down."""
        self.table((Column(name, text, GAUGE),), (), lambda: (Row((), (read(),)),))

    def counter(self, name: str, text: str, read: Callable[[], Value]) -> None:
        """A number that only grows, from 0 at the start of the process."""
        self.table((Column(name, text, COUNTER),), (), lambda: (Row((), (read(),)),))

    def table(self, columns: Sequence[Column], labels: Sequence[str], rows: Callable[[], Iterable[Row | None]]) -> None:
        """Several metrics with the same labels. `rows` is called for each scrape and iterated with pauses, so it must
        tolerate changes meanwhile. None instead of a row requests a pause."""
        for column in columns:
            assert _NAME.match(column.name) and column.name not in self.names, column.name
            ends = column.name.endswith
            assert ends(_COUNTERS) if column.type == COUNTER else not ends("_total"), column.name
            self.names.add(column.name)
        assert all(map(_LABEL.match, labels)), labels
        self._tables.append(_Table(tuple(columns), [column.name for column in columns], tuple(labels), rows))

    def pieces(self, rows_per_piece: int = ROWS_PER_PIECE) -> Iterator[str]:
        """The whole text, in order. Many pieces are empty and only offer a pause."""
        for table in self._tables:
            samples: list[list[str]] = [[] for _ in table.columns]
            for number, row in enumerate(table.rows(), start=1):
                if row is not None:
                    _add(table, row, samples)
                if row is None or number % rows_per_piece == 0:
                    yield ""
            for column, lines in zip(table.columns, samples, strict=True):
                if lines:
                    yield f"# HELP {column.name} {_escaped(column.help)}\n# TYPE {column.name} {column.type}\n"
                while lines:  # freed piece by piece, too: 70,000 strings at once take 4 ms
                    yield "".join(lines[:_LINES_PER_PIECE])
                    del lines[:_LINES_PER_PIECE]


def _add(table: _Table, row: Row, samples: list[list[str]]) -> None:
    """One line for each value that is known."""
    labels = ""
    if table.labels:
        pairs = zip(table.labels, row.labels, strict=True)
        labels = "{" + ",".join([f'{name}="{_quoted(value)}"' for name, value in pairs]) + "}"
    for name, value, lines in zip(table.names, row.values, samples, strict=True):
        if value.__class__ is int:
            lines.append(f"{name}{labels} {value}\n")
        elif value is not None:
            lines.append(f"{name}{labels} {_number(value)}\n")


def _number(value: float) -> str:
    value = float(value)  # a bool is 0 or 1 to readers, not True
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        text = _escaped(text).replace('"', '\\"')
    return text


_VALUES_MAX = 100  # that are kept


class LatestValues:
    """How often something happened, and its latest hundred values, such as durations in milliseconds. Kafka's
    histograms keep a sample of all values; the latest ones say how it is now."""

    __slots__ = ("_latest", "count")

    def __init__(self) -> None:
        self.count = 0
        self._latest: deque[int] = deque(maxlen=_VALUES_MAX)

    def add(self, value: int) -> None:
        self.count += 1
        self._latest.append(value)

    def average(self) -> float | None:
        """The mean of the latest values; None if there was none."""
        return sum(self._latest) / len(self._latest) if self._latest else None

    def quantile(self, quantile: float) -> int | None:
        """The value that this share of the latest ones does not exceed; None if there was none."""
        ordered = sorted(self._latest)
        return ordered[max(0, math.ceil(quantile * len(ordered)) - 1)] if ordered else None
