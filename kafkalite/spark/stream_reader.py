"""The stream of the format "kafkalite": micro-batches of offsets, kept in the checkpoint as Spark's Kafka source does.

Spark writes the end of a micro-batch to the checkpoint before it reads, and plans the same offsets again after a
restart. All state is in these offsets: the reader may die at any moment.

The starting offsets are in no checkpoint until a micro-batch has ended. Where another read would find other ones
(latest, the last n offsets, a timestamp behind the last record), the first micro-batch is therefore empty: it ends
where the stream begins, and so brings the beginning into the checkpoint before anything is read.

The JSON in the checkpoint is that of Spark's own Kafka source: {"orders": {"0": 23}}, where 23 is the next offset to
read. Topics and partitions are sorted, since Spark compares offsets as text.

Partitions that come later begin at 0, as for Spark. Spark 4.2 passes the start of a micro-batch and a limit to the
reader; before, it requests the latest offset alone, so the reader remembers where the last micro-batch ended.
Source: pyspark.sql.datasource.DataSourceStreamReader,
org.apache.spark.sql.kafka010.{JsonUtils, KafkaMicroBatchStream}.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafkalite.common.errors import StorageError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition
from kafkalite.common.text import read_json
from kafkalite.reader.chunk_reader import COLUMNS, read_as_asked
from kafkalite.reader.plan import OffsetRange, current_offsets, offset_ranges, plan_ranges
from kafkalite.reader.planning.discovery import directories
from kafkalite.reader.planning.read_options import At, ReadOptions
from kafkalite.reader.planning.split import Split
from kafkalite.spark.worker_process import make_reuse_cheap

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError:  # Spark 4.0 and 4.1 have no limits for Python's sources
    HAS_LIMITS = False
else:
    HAS_LIMITS = True

logger = logging.getLogger(__name__)

_NO_LIMIT = (1 << 63) - 1


class StreamSplit(InputPartition):
    """One split of a micro-batch is one Spark partition."""

    def __init__(self, split: Split) -> None:
        super().__init__(split)


class _MicroBatches(DataSourceStreamReader):
    """Decides where micro-batches end. Raises StorageError for offsets that are gone, with failOnDataLoss."""

    def __init__(
        self,
        options: ReadOptions,
        columns: Sequence[tuple[str, bool]],
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.options = options
        self.columns = columns
        self._now_ms = now_ms
        self._delay = TriggerDelay(options.min_offsets_per_trigger or 0, options.max_trigger_delay_ms)
        self._initial: dict[TopicPartition, int] | None = None
        self._must_log_initial = False
        self._latest: Offsets = {}
        self._log_starts: Offsets = {}
        self._stops_at_target = False  # Trigger.AvailableNow
        self._target: dict[TopicPartition, int] | None = None

    def initialOffset(self) -> dict[str, dict[str, int]]:
        return to_json(self._begin())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The splits of a micro-batch, planned when it is about to run."""
        begin = from_json(start)
        ranges = {of: OffsetRange(begin.get(of, 0), stop) for of, stop in from_json(end).items()}
        ranges = {of: one for of, one in ranges.items() if one.start < one.end}
        return [StreamSplit(split) for split in plan_ranges(self.options, ranges)] if ranges else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        make_reuse_cheap()
        schema = pa.schema([pa.field(name, COLUMNS[name].arrow, nullable) for name, nullable in self.columns])
        return read_as_asked(partition.value, schema, self.options)

    def _begin(self) -> dict[TopicPartition, int]:
        """The starting offsets of the options, resolved once."""
        if self._initial is None:
            requested = offset_ranges(self.options)
            self._initial = {of: start for of, (start, _) in requested.items()}
            positions = {of: self.options.start.position(*of) for of in requested}
            self._must_log_initial = any(
                position is not None
                and (
                    position.at in (At.LATEST, At.BEFORE_LATEST)
                    or (position.at is At.TIMESTAMP and requested[of][0] == requested[of][1])
                )
                for of, position in positions.items()
            )
        return self._initial

    def _end_of_batch(self, start: Offsets, most: int, *, may_wait: bool) -> Offsets:
        """Where the micro-batch that begins at `start` ends; there, if there is none now."""
        if self._must_log_initial and start == self._initial:
            self._must_log_initial = False
            self._latest = start
            return start
        if self._target is None or not self._stops_at_target:
            self._target = self._find_target(start)
        self._latest = self._target
        waits = may_wait and not self._stops_at_target  # what is available now does not become more
        if waits and self._delay.waits(count_new(start, self._latest), self._now_ms()):
            return start
        if most >= _NO_LIMIT:
            return self._latest
        return share_out(most, {**self._log_starts, **start}, self._latest)

    def _find_target(self, start: Offsets) -> dict[TopicPartition, int]:
        """The latest offsets. A partition that ends before `start` was deleted and made again, or its log was cut."""
        current = current_offsets(self.options)
        self._log_starts = {of: one.start for of, one in current.items()}
        latest = {of: one.end for of, one in current.items()}
        for of, begin in start.items():
            name = f"{of[0]}-{of[1]}"
            if of not in latest:
                self._lose(f"partition {name} is gone; offsets from {begin} on may have been missed")
            elif latest[of] < begin and len(directories(self.options)) > 1:
                latest[of] = begin  # the replica that had these offsets cannot be seen now
            elif latest[of] < begin:
                self._lose(f"{name} ends at {latest[of]}, before offset {begin}, up to which it was read")
        return latest

    def _lose(self, what: str) -> None:
        if self.options.fail_on_data_loss:
            raise StorageError(f"{what}; set failOnDataLoss to false to continue with what is there")
        logger.warning("%s", what)


if HAS_LIMITS:

    class KafkaliteStreamReader(_MicroBatches, SupportsTriggerAvailableNow):
        """For Spark 4.2 and later."""

        def getDefaultReadLimit(self) -> Any:
            most = self.options.max_offsets_per_trigger
            if most is None and self.options.min_offsets_per_trigger is None:
                return ReadAllAvailable()
            return ReadMaxRows(most or _NO_LIMIT)  # the other limit is kept by `latestOffset`

        def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, dict[str, int]]:
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else _NO_LIMIT
            may_wait = not isinstance(limit, ReadAllAvailable)
            return to_json(self._end_of_batch(from_json(start), most, may_wait=may_wait))

        def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
            return to_json(self._latest) if self._latest else None

        def prepareForTriggerAvailableNow(self) -> None:
            self._stops_at_target = True

else:

    class KafkaliteStreamReader(_MicroBatches):  # type: ignore[no-redef]
        """For Spark 4.0 and 4.1, whose Trigger.AvailableNow asks for the latest offset once: with
        maxOffsetsPerTrigger it runs one micro-batch of that size."""

        _position: Offsets | None = None  # where the last micro-batch ended

        def latestOffset(self) -> dict[str, dict[str, int]]:  # type: ignore[override]
            start = self._begin() if self._position is None else self._position
            most = self.options.max_offsets_per_trigger or _NO_LIMIT
            return to_json(self._end_of_batch(start, most, may_wait=True))

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
            """Spark calls it after a restart, too, with the last offsets of the checkpoint as both."""
            self._position = from_json(end)
            return super().partitions(start, end)


Offsets = Mapping[TopicPartition, int]


def to_json(offsets: Offsets) -> dict[str, dict[str, int]]:
    """The offsets as Spark writes them, once it has made text of them."""
    by_topic: dict[str, dict[str, int]] = {}
    for topic, partition in sorted(offsets):
        by_topic.setdefault(topic, {})[str(partition)] = offsets[topic, partition]
    return by_topic


def from_json(by_topic: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse."""
    return {(topic, int(number)): offset for topic, numbers in by_topic.items() for number, offset in numbers.items()}


def share_out(limit: int, start: Offsets, latest: Offsets) -> dict[TopicPartition, int]:
    """Where a micro-batch of about `limit` offsets ends: each partition has a share in proportion to what it has, one
    offset at least. Partitions that are not in `start` begin at 0."""
    sizes = {of: end - start.get(of, 0) for of, end in latest.items()}
    total = sum(size for size in sizes.values() if size > 0)
    if not total:
        return dict(latest)
    ends = {}
    for of, size in sizes.items():
        if size <= 0:
            ends[of] = latest[of]
            continue
        share = limit * (size / total)
        # a small partition does not starve beside a large one
        ends[of] = min(latest[of], start.get(of, 0) + (math.ceil(share) if share < 1 else math.floor(share)))
    return ends


def count_new(start: Offsets, latest: Offsets) -> int:
    """The offsets between them."""
    return sum(max(0, end - start.get(of, 0)) for of, end in latest.items())


class TriggerDelay:
    """minOffsetsPerTrigger and maxTriggerDelay: a micro-batch waits for enough offsets, up to a limit. The first one
    does not wait."""

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        self._last_ms: int | None = None

    def waits(self, new_offsets: int, now_ms: int) -> bool:
        """Whether there is no micro-batch now."""
        is_late = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if new_offsets < self._min_offsets and not is_late:
            return True
        self._last_ms = now_ms
        return False


class OffsetsBehindLatest(NamedTuple):
    """How many offsets the partitions of a source are behind, with the names that Spark's Kafka source has for it."""

    minOffsetsBehindLatest: int
    maxOffsetsBehindLatest: int
    avgOffsetsBehindLatest: float


def offsets_behind_latest(source: Any) -> OffsetsBehindLatest | None:
    """The offsets that a source is behind, from its entry in a progress report (`query.lastProgress["sources"][0]`, or
    `event.progress.sources[0]` of a listener). None where the report has no latest offset: before Spark 4.2.

    A data source in Python cannot put numbers of its own into the report; this computes them from the offsets there.
    """
    end, latest = (_reported(source, name) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    behind = [max(0, offset - end.get(of, 0)) for of, offset in latest.items()]
    return OffsetsBehindLatest(min(behind), max(behind), sum(behind) / len(behind)) if behind else None


def _reported(source: Any, name: str) -> dict[TopicPartition, int] | None:
    value = source.get(name) if isinstance(source, Mapping) else getattr(source, name, None)
    value = read_json(value) if isinstance(value, str) and value else value
    return from_json(value) if value else None
