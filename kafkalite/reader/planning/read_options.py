"""Values of a read: its topics, positions and limits. `kafkalite.reader.options` makes them from text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafkalite.reader.planning.split import EVERY_ROW, RowFilter

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
    of a query, not from options: what they leave out is not missed.
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
