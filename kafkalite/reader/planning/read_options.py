"""Values of a read: its topics, positions and limits, and the filters of a query that narrow them.

`kafkalite.reader.options` makes the options from text. A comparison of topic or partition leaves out partitions. One of
offset or timestamp becomes bounds: planning leaves out segments and parts of segments by them, the reader batches and
then records. Of timestamps, planning uses the lower bound only: an index has the point up to which all records are
earlier, and no file has the point from which on all are later, since timestamps need not ascend. Where they are known
to do so, set startingTimestamp and endingTimestamp.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.reader.planning.split import EVERY_ROW, HIGHEST, LOWEST, RowFilter

ANY_TOPIC = "*"
ANY_PARTITION = -1


class At(Enum):
    """Meaning of a position's value."""

    EARLIEST = "earliest"  # the log start; no value
    LATEST = "latest"  # the log end, or the last stable offset; no value
    OFFSET = "offset"
    BEFORE_LATEST = "latest-n"  # so many offsets before the latest
    TIMESTAMP = "timestamp"  # the first record that is not earlier, in ms


class Position(NamedTuple):
    """A place in a partition that planning finds the offset of."""

    at: At
    value: int = 0


EARLIEST = Position(At.EARLIEST)
LATEST = Position(At.LATEST)


class Limit(NamedTuple):
    """The positions that an option gives, by topic and partition, ANY_TOPIC and ANY_PARTITION among them.

    A limit without names holds for every partition.
    """

    option: str
    positions: Mapping[str, Mapping[int, Position]]

    def position(self, topic: str, partition: int) -> Position | None:
        """The position for a partition, the most closely named one; None if the option leaves it out."""
        for partitions in (self.positions.get(topic, {}), self.positions.get(ANY_TOPIC, {})):
            for index in (partition, ANY_PARTITION):
                if index in partitions:
                    return partitions[index]
        return None

    def named(self) -> set[tuple[str, int]]:
        """The partitions that are named one by one."""
        return {
            (topic, partition)
            for topic, partitions in self.positions.items()
            for partition in partitions
            if topic != ANY_TOPIC and partition != ANY_PARTITION
        }


def everywhere(option: str, position: Position) -> Limit:
    """The limit that has one position for all partitions."""
    return Limit(option, {ANY_TOPIC: {ANY_PARTITION: position}})


class Selection(NamedTuple):
    """Topics and partitions that filters of a query let pass; None where there is no bound."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    min_partition: int = 0
    max_partition: int = (1 << 31) - 1

    def has(self, topic: str, partition: int) -> bool:
        """Whether rows of this partition may be wanted."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.min_partition <= partition <= self.max_partition
        )


EVERY_PARTITION = Selection()


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """A read: its topics, positions and limits.

    Exactly one of `topics`, `topic_pattern` and `assigned` is set. `selection` and `row_filter` come from the filters
    of a query, not from options: records that they leave out are not missed.
    """

    paths: tuple[str, ...]
    topics: tuple[str, ...] | None
    topic_pattern: str | None
    assigned: Mapping[str, tuple[int, ...]] | None
    start: Limit
    end: Limit
    later_is_latest: bool  # a starting timestamp behind the last record means the latest offset, not an error
    read_committed: bool
    fail_on_data_loss: bool
    include_headers: bool
    columns: tuple[str, ...] | None
    min_partitions: int
    max_records_per_partition: int | None
    max_partition_bytes: int
    batch_bytes: int
    permissive: bool
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60 * 1000
    selection: Selection = EVERY_PARTITION
    row_filter: RowFilter = EVERY_ROW


Value = int | str | tuple[int, ...] | tuple[str, ...]

_COMPARED = ("=", "<", "<=", ">", ">=")


class Comparison(NamedTuple):
    """`column operator value`: the column is topic, partition, offset or timestamp, the operator one of = < <= > >= in.

    A timestamp is in microseconds since 1970, as Spark has it. The value for "in" is a tuple.
    """

    column: str
    operator: str
    value: Value


def is_exact(comparison: Comparison) -> bool:
    """Whether no row comes that the comparison rules out, once options are narrowed by it.

    The query must compare the others again, though they may leave something out.
    """
    column, operator, _ = comparison
    if column == "topic":
        return operator in ("=", "in")
    if column == "partition":
        return operator in _COMPARED or operator == "in"
    return column in ("offset", "timestamp") and operator in _COMPARED


def narrow(options: ReadOptions, comparisons: Iterable[Comparison]) -> ReadOptions:
    """The options of a read of those rows that all of the comparisons let pass, or of more where one is not exact.

    Checks and errors stay those of the whole read: a filter hides no offset that is missing.
    """
    selection, rows = options.selection, options.row_filter
    for comparison in comparisons:
        column, operator, value = comparison
        if column == "topic" and is_exact(comparison):
            selection = _narrow_topics(selection, value)
        elif (bounds := _bounds(comparison)) is not None:
            low, high = bounds
            if column == "partition":
                selection = _narrow_partitions(selection, operator, value, low, high)
            elif column == "offset":
                rows = rows._replace(min_offset=max(rows.min_offset, low), max_offset=min(rows.max_offset, high))
            elif column == "timestamp":
                rows = _narrow_times(rows, low, high)
    return replace(options, selection=selection, row_filter=rows)


def _bounds(comparison: Comparison) -> tuple[int, int] | None:
    """The smallest and the largest value that may pass; None for values that are no integers."""
    _, operator, value = comparison
    values = value if isinstance(value, tuple) else (value,)
    numbers = [one for one in values if isinstance(one, int)]
    if len(numbers) < len(values) or (operator not in _COMPARED and operator != "in"):
        return None
    if not numbers:
        return HIGHEST, LOWEST
    low, high = min(numbers), max(numbers)
    if operator in ("<", "<="):
        return LOWEST, high - (operator == "<")
    if operator in (">", ">="):
        return low + (operator == ">"), HIGHEST
    return low, high


def _narrow_topics(selection: Selection, value: Value) -> Selection:
    topics = frozenset(str(one) for one in (value if isinstance(value, tuple) else (value,)))
    return selection._replace(topics=topics if selection.topics is None else selection.topics & topics)


def _narrow_partitions(selection: Selection, operator: str, value: Value, low: int, high: int) -> Selection:
    if operator == "in" and isinstance(value, tuple):
        partitions = frozenset(int(one) for one in value)
        return selection._replace(
            partitions=partitions if selection.partitions is None else selection.partitions & partitions
        )
    return selection._replace(
        min_partition=max(selection.min_partition, low), max_partition=min(selection.max_partition, high)
    )


def _narrow_times(rows: RowFilter, low_us: int, high_us: int) -> RowFilter:
    """The bounds in milliseconds: a record's time is a whole number of them."""
    low = LOWEST if low_us == LOWEST else -(-low_us // 1000)
    high = HIGHEST if high_us == HIGHEST else high_us // 1000
    return rows._replace(min_timestamp=max(rows.min_timestamp, low), max_timestamp=min(rows.max_timestamp, high))
