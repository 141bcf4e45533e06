"""The transactions of one log: ends them with markers, looks up aborted ones, follows a truncation.

A read_committed fetch needs the aborted transactions with records in its range, wherever their markers are. Each is in
the transaction index of the segment with its marker, so the search begins at the first index that ends at or past the
fetch offset, and is over at an entry whose last stable offset is past the range. Most logs have no aborted transaction
behind a consumer's offset; that takes one comparison and opens no file.
Source: kafka.log.UnifiedLog (append), org.apache.kafka.storage.internals.log.LocalLog (collectAbortedTransactions).
"""

from __future__ import annotations

from bisect import bisect_left

from kafkalite.common.errors import StorageError
from kafkalite.common.region import FileRegion
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.partition.flusher import Flusher
from kafkalite.log.partition.log_context import LogLocation
from kafkalite.log.partition.segment_list import SegmentList
from kafkalite.log.segment.segment import NEVER, Segment
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.record.batch import MAGIC, MAGIC_AT, parse_header


class LogTransactions:
    """Fields: no marker of an aborted transaction lies behind `last_aborted_offset`, NEVER until it is known.

    Invariant: `_with_aborted` are those of the segments `_listed` that have aborted transactions.
    """

    __slots__ = ("_listed", "_location", "_producers", "_segments", "_with_aborted", "last_aborted_offset")

    def __init__(self, location: LogLocation, segments: SegmentList, producers: ProducerState) -> None:
        self._location = location
        self._segments = segments
        self._producers = producers
        producers.verifications.setting = segments.context.verification
        producers.earlier_batches = segments.earlier_batches
        self._listed: tuple[Segment, ...] = ()
        self._with_aborted: tuple[Segment, ...] = ()
        self.last_aborted_offset = NEVER

    def end(self, batch: memoryview, *, acknowledged: bool) -> None:
        """Applies a marker that was appended to the active segment. If it aborts a transaction, the index gets its
        entry first; if that fails, the transaction stays open, and another marker may end it. Raises StorageError."""
        header = parse_header(batch)
        marker = self._producers.marker_in(header, batch)
        if marker is None:
            return
        aborted = self._producers.aborted_by(header, marker)
        if aborted is not None:
            index = self._segments.active.txn_index
            with self._location.refusing("index an abort in"):
                if not index.entries:
                    self._listed = ()  # a segment more has aborted transactions
                index.append(aborted)
                self.last_aborted_offset = aborted.last_offset
        self._producers.end_transaction(header, marker, acknowledged=acknowledged)

    def end_here(self, batch: memoryview, offset: int, replicated_offset: int, flusher: Flusher) -> None:
        """As `end`, for a marker of this leader at the `offset` that ends the log. It stays there if the index refuses
        its entry: then it is acknowledged as any batch is, since a follower fetches only when all of its log is."""
        try:
            self.end(batch, acknowledged=offset < min(flusher.flush_at, replicated_offset))
        except StorageError:
            flusher.on_append(offset + 1)
            raise

    def reload(self, start_offset: int, end_offset: int, committed_offset: int) -> None:
        """Builds the producers' state again after a truncation to `end_offset`; markers at or past `committed_offset`
        are not acknowledged. Nothing is read if there was never any. Raises OSError, StorageError."""
        producers, context = self._producers, self._segments.context
        self._forget_aborted()
        covered = producers.restore(start_offset, end_offset, context.clock.wall_ms(), context.producer_expiration_ms)
        producers.forget_markers_from(covered)
        had_any = producers.highest_id >= 0
        for batch in self._segments.batches(covered, end_offset) if had_any and covered < end_offset else ():
            if batch[MAGIC_AT] == MAGIC:  # messages of v0 and v1 have no producer
                header = parse_header(batch)
                producers.apply(header, batch, acknowledged=header.last_offset < committed_offset)

    def forget(self) -> None:
        """The log is emptied: drops all producers and their snapshots. Raises OSError."""
        self._forget_aborted()
        self._producers.clear()
        self._producers.forget_markers_from(0)
        self._producers.snapshots.drop_all()

    def _forget_aborted(self) -> None:
        """A truncation may take the entries of a segment that stays."""
        self._listed = ()
        self.last_aborted_offset = NEVER

    def aborted(self, fetch_offset: int, upper_bound: int) -> list[AbortedTxn]:
        """The aborted transactions with records in [fetch_offset, upper_bound), in the order of their markers. Raises
        StorageError."""
        try:
            return self._collect(fetch_offset, upper_bound) if self._any_from(fetch_offset) else []
        except OSError as error:
            raise self._location.unreadable(error) from error

    def aborted_in(self, region: FileRegion, fetch_offset: int) -> list[AbortedTxn]:
        """The aborted transactions with records in `region`, which a read of `fetch_offset` has just found, and perhaps
        some that begin a little behind it. Raises StorageError."""
        if fetch_offset > self.last_aborted_offset:
            return []
        try:
            if not self._any_from(fetch_offset):
                return []
            return self._collect(fetch_offset, self._offset_behind(region, fetch_offset))
        except OSError as error:
            raise self._location.unreadable(error) from error

    def _any_from(self, offset: int) -> bool:
        """Whether the marker of any aborted transaction is at or past `offset`."""
        listed = self._segments.segments
        if self._listed is not listed:
            self._with_aborted = tuple(segment for segment in listed if segment.txn_index.entries)
            self._listed = listed
        found = self._with_aborted
        self.last_aborted_offset = found[-1].txn_index.last_offset if found else -1
        return self.last_aborted_offset >= offset

    def _collect(self, fetch_offset: int, upper_bound: int) -> list[AbortedTxn]:
        found: list[AbortedTxn] = []
        candidates = self._with_aborted
        first = bisect_left(candidates, fetch_offset, key=lambda segment: segment.txn_index.last_offset)
        for segment in candidates[first:]:
            more, is_complete = segment.txn_index.overlapping(fetch_offset, upper_bound)
            found += more
            if is_complete:
                break
        return found

    def _offset_behind(self, region: FileRegion, offset: int) -> int:
        """An offset past all records of `region`, which a read of `offset` has found."""
        listed = self._segments
        at = listed.index_of(offset)
        while listed.segments[at].file is not region.file:
            at += 1
        found = listed.segments[at].offset_behind(region.position + region.size)
        if found is not None:
            return found
        return listed.bases[at + 1] if at + 1 < len(listed.bases) else NEVER
