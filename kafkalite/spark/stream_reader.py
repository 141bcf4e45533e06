"""The stream of the format "kafkalite": micro-batches of offsets, kept in the checkpoint as Spark's Kafka source does.

Spark writes the end of a micro-batch to the checkpoint before it reads, and plans the same offsets again after a
restart. All state is in these offsets: the reader may die at any moment.

The starting offsets are in no checkpoint until a micro-batch has ended. Where another look would find other ones
(latest, the last n offsets, a timestamp behind the last record), the first micro-batch is therefore empty: it ends
where the stream begins, and so brings the beginning into the checkpoint before anything is read.

Partitions that come later begin at 0, as for Spark. Spark 4.2 tells the reader where a micro-batch starts, and a limit;
before, it asks for the latest offset alone, so the reader remembers where the last micro-batch ended.
Source: pyspark.sql.datasource.DataSourceStreamReader, org.apache.spark.sql.kafka010.KafkaMicroBatchStream.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kafkalite.common.errors import StorageError
from kafkalite.common.names import TopicPartition
from kafkalite.reader.arrow import COLUMNS
from kafkalite.reader.chunk_reader import read_as_asked
from kafkalite.reader.plan import OffsetRange, current_offsets, offset_ranges, plan_ranges
from kafkalite.reader.planning.read_options import At, ReadOptions
from kafkalite.reader.planning.split import Split
from kafkalite.spark.stream_offsets import Offsets, TriggerDelay, count_new, from_json, share_out, to_json
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
        """The offsets that the options ask for, looked up once."""
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
            self._target = self._look(start)
        self._latest = self._target
        waits = may_wait and not self._stops_at_target  # what is available now does not become more
        if waits and self._delay.waits(count_new(start, self._latest), self._now_ms()):
            return start
        if most >= _NO_LIMIT:
            return self._latest
        return share_out(most, {**self._log_starts, **start}, self._latest)

    def _look(self, start: Offsets) -> dict[TopicPartition, int]:
        """The latest offsets. A partition that ends before `start` was deleted and made again, or its log was cut."""
        current = current_offsets(self.options)
        self._log_starts = {of: one.start for of, one in current.items()}
        latest = {of: one.end for of, one in current.items()}
        for of, begin in start.items():
            name = f"{of[0]}-{of[1]}"
            if of not in latest:
                self._lose(f"partition {name} is gone; offsets from {begin} on may have been missed")
            elif latest[of] < begin and len(self.options.paths) > 1:
                latest[of] = begin  # the replica that had these offsets cannot be seen now
            elif latest[of] < begin:
                self._lose(f"{name} ends at {latest[of]}, before offset {begin}, up to which it was read")
        return latest

    def _lose(self, what: str) -> None:
        if self.options.fail_on_data_loss:
            raise StorageError(f"{what}; set failOnDataLoss to false to go on with what is there")
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
