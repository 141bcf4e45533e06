"""Readers of a log that is being compacted: one keeps up and must see everything, one takes its time and must end up
with what is there, one holds on to bytes that it was promised."""

from __future__ import annotations

from random import Random

from kafkalite.common.errors import StorageError
from kafkalite.common.region import FileRegion
from kafkalite.log.partition.partition_log import PartitionLog
from tests.support.cleaner.compacted_ledger import CompactedLedger, Seen, View, aborted_of, parse, read


class Readers:
    """`caught_up`: the first reader has seen everything before that offset."""

    def __init__(self) -> None:
        self.caught_up = 0
        self._slow_offset = self._slow_since_ms = 0
        self._slow_view: View | None = None
        self._held: tuple[FileRegion, bytes] | None = None

    def begin_anew(self) -> None:
        """The log was closed."""
        self._held = self._slow_view = None

    def keep_up(self, log: PartitionLog, ledger: CompactedLedger) -> None:
        """A reader that is always near the end sees every record."""
        offset = max(self.caught_up, log.start_offset)
        seen = read(log, offset, log.end_offset)
        ledger.check_records(seen)
        missed = {r.offset for put in ledger.puts for r in put.records if r.offset >= offset} - set(seen.offsets())
        assert not missed, f"who kept up from {offset} on never saw {sorted(missed)}"
        self.caught_up = log.end_offset

    def look_slowly(self, log: PartitionLog, ledger: CompactedLedger, now_ms: int, random: Random) -> None:
        """Go on a little, or begin anew. A reader that needs less than delete.retention.ms has missed no tombstone."""
        limit = min(log.producers.first_unstable_offset, log.end_offset)
        if self._slow_view is None or not log.start_offset <= self._slow_offset <= limit:
            self._slow_view, self._slow_offset, self._slow_since_ms = {}, log.start_offset, now_ms
        region = log.read(self._slow_offset, random.choice((1, 200, 1000, 100_000)), limit)
        if region is not None:
            seen = Seen(parse(region.read(), self._slow_offset))
            ledger.check_records(seen)
            seen.view(aborted_of(log), self._slow_view)
            self._slow_offset = seen.batches[-1][0].last_offset + 1
        if self._slow_offset == limit or log.read(self._slow_offset, 1, limit) is None:
            if now_ms - self._slow_since_ms < ledger.retention_ms:
                expected = ledger.expected(log.start_offset, limit)
                values = {key: record.value for key, record in expected.items() if record.value is not None}
                found = {key: value for key, value in self._slow_view.items() if key in expected}
                assert found == values, f"who read slowly has {found}, not {values}"
            self._slow_view = None

    def hold(self, log: PartitionLog, random: Random) -> None:
        """A region that was handed to a reader can be read, whatever became of the segment."""
        if self._held is not None:
            region, data = self._held
            assert region.read() == data, "the bytes that a reader held on to have changed"
        offset = random.randint(log.start_offset, log.end_offset)
        self._held = None
        try:
            now = log.read(offset, 500, log.end_offset)
            if now is not None:
                self._held = now, now.read()
        except (OSError, StorageError):
            return  # the disk refused it
