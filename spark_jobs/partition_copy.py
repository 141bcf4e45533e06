"""The copy of one partition into a topic, each record exactly once and in its order, however often it is killed.

Records go in transactions, and each transaction carries the offset at the source that it ends at, as the offset of a
group for the target's partition. So records and progress are there together or not at all; a copy that is killed leaves
a transaction that its successor aborts, and the successor begins where the last committed one ended.

Every transaction begins with the transactional id's next epoch, which fences its predecessor, and then reads the
progress. If another copy has committed since the last transaction, this copy ends with an error: two at a time can make
each other fail, and neither can repeat or leave out a record.

The progress of a group without members expires (offsets.retention.minutes, 7 days by default). A target that has
records but no progress is refused, so that nothing is copied twice; and the progress names its source, so that a copy
of another source does not resume from it.
Source: KIP-98 (transactions), KIP-447 (stable offsets).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kafkalite.client.cluster_client import ClusterClient, Retries, WriteFailed
from kafkalite.client.log_offsets import LogOffsets
from kafkalite.client.producer.bulk_load import BulkLoad
from kafkalite.client.producer.options import ProducerOptions, WriteOptions
from kafkalite.client.producer.producer import Producer
from kafkalite.client.producer.transactions import CommittedOffset, GroupOffsets, Identity, Transactions
from kafkalite.common.errors import Unanswered
from kafkalite.common.names import TopicPartition

TRANSACTION_BYTES = 64 << 20
_BACKOFF_S = (
    0.01  # the markers of the last transaction are written before the next one begins: a matter of milliseconds
)

Batches = Callable[[int], Iterator[pa.RecordBatch]]
"""Record batches of the source's partition from an offset on, ascending: with the column offset, and the sink's."""


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """A copy. `name` is the group of its progress and the beginning of its transactional ids; `source` is a text that
    identifies the source.
    """

    producer: ProducerOptions
    name: str
    source: str
    into_existing: bool = False
    with_timestamp: bool = True  # the source has a column for it
    transaction_bytes: int = TRANSACTION_BYTES


class Copied(NamedTuple):
    """The copy of one partition in this run: records, and the source's offsets from `start` to before `end`."""

    topic: str
    partition: int
    records: int
    start: int
    end: int


def connected(options: CopyOptions) -> contextlib.closing[ClusterClient]:
    """The target's cluster, for a `with`."""
    return contextlib.closing(options.producer.connect())


class PartitionCopy:
    """Copies into the partition `target`, as `copy` says. Raises WriteFailed."""

    def __init__(self, options: CopyOptions, cluster: ClusterClient, target: TopicPartition) -> None:
        self._options = options
        self._cluster = cluster
        self._target = target
        self._retries = Retries(options.producer.max_block_ms / 1000, _BACKOFF_S)
        self._transactions = Transactions(cluster, self._retries)
        self._progress = GroupOffsets(options.name, cluster, self._retries)
        self._id = f"{options.name}-{target[0]}-{target[1]}"
        self._records = 0

    def copy(self, batches: Batches, start: int, end: int | None = None) -> Copied:
        """Copy the records from the progress on, or from the offset `start` if there is none, up to `end` (exclusive),
        or to the last one without `end`."""
        identity, first = self._begin(None)
        if first is None:
            self._refuse_records()
            self._commit(identity, start)
            identity, first = self._begin(start)
            assert first is not None
        position = first
        wanted = batches(position) if end is None or position < end else iter(())
        source = _pieces(wanted, self._options.transaction_bytes)
        while (written := self._write(identity, source)) is not None:
            position = written
            self._commit(identity, position)
            identity, _ = self._begin(position)
        if end is not None and position < end:  # compaction has left nothing there
            position = end
            self._commit(identity, position)
        return Copied(*self._target, self._records, first, position)

    def _begin(self, expected: int | None) -> tuple[Identity, int | None]:
        """The identity of a new transaction, and the progress, which is `expected` unless another copy is at work."""
        identity = self._transactions.begin(self._id, self._options.producer.transaction_timeout_ms)
        found = self._progress.committed(self._target)
        if found is not None and found.metadata != self._options.source:
            raise WriteFailed(
                f"{self._name} has the progress of a copy from {found.metadata!r}, and this one is from "
                f"{self._options.source!r}; give this one a --name of its own"
            )
        if expected is not None and (found is None or found.offset != expected):
            raise WriteFailed(
                f"another copy with the name {self._options.name!r} writes to {self._name}; wait for its end"
            )
        return identity, None if found is None else found.offset

    def _write(self, identity: Identity, source: Iterator[pa.RecordBatch]) -> int | None:
        """Write about as much as belongs into a transaction. The offset behind it, None if nothing is left."""
        options = WriteOptions(
            self._options.producer, self._target[0], self._options.with_timestamp, True, self._options.name
        )
        load = BulkLoad(options, Producer(self._options.producer, self._cluster, self._retries, identity))
        size, position = 0, None
        try:
            for batch in source:
                if batch.num_rows:
                    position = self._check(batch, position)
                    load.write(batch.drop_columns("offset"))
                    size += batch.nbytes
                    if size >= self._options.transaction_bytes:
                        break
            load.finish()
        except BaseException:
            with contextlib.suppress(WriteFailed):
                self._transactions.end(identity, commit=False)
            raise
        self._records += load.row_count
        return position

    def _check(self, batch: pa.RecordBatch, position: int | None) -> int:
        """The offset behind the batch, whose offsets must ascend."""
        offsets = batch.column("offset").to_numpy()
        wrong = np.flatnonzero(np.diff(offsets, prepend=-1 if position is None else position - 1) <= 0)
        if len(wrong):
            raise WriteFailed(f"the source of {self._name} has offset {offsets[wrong[0]]} twice or not in order")
        return int(offsets[-1]) + 1

    def _commit(self, identity: Identity, position: int) -> None:
        self._transactions.add(identity, (), self._options.name)
        self._progress.commit(identity, {self._target: CommittedOffset(position, self._options.source)})
        self._transactions.end(identity, commit=True)

    def _refuse_records(self) -> None:
        if not self._options.into_existing and not _is_empty(self._cluster, self._retries, self._target):
            raise WriteFailed(
                f"{self._name} has records, and no progress of a copy with the name {self._options.name!r}: it is "
                "another topic, or the progress has expired. Copy into a new topic, or give --into-existing to begin "
                "at --from behind what is there"
            )

    @property
    def _name(self) -> str:
        return f"{self._target[0]}-{self._target[1]}"


def _pieces(batches: Iterator[pa.RecordBatch], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batches, those that are larger in parts of about so many bytes: one alone may be many transactions."""
    for batch in batches:
        rows = max(1, batch.num_rows * most_bytes // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _is_empty(cluster: ClusterClient, retries: Retries, partition: TopicPartition) -> bool:
    """Whether a partition has no records. Raises WriteFailed."""
    offsets = LogOffsets(cluster, retries.timeout_s, monotonic_s=retries.monotonic_s, sleep=retries.sleep)
    try:
        return offsets.starts([partition]) == offsets.ends([partition])
    except Unanswered as fault:
        raise WriteFailed(str(fault)) from None
