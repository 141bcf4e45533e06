"""Records all appends to one compacted log, and checks the guarantees of compaction after any fault.

Every record that is there stands at its offset as it was written. A reader from beginning to end finds the last value
of each key; a tombstone is visible for delete.retention.ms from the first pass that met it. After a kill everything
acknowledged counts, after a power cut everything flushed. Transactions: their outcome counts from the moment when it
was acknowledged, because the coordinator that decided it repeats it.
Source: the documentation of Apache Kafka, design, log compaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafkalite.cleaner.job.job import CleanJob
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.record.batch import BatchHeader, parse_header
from kafkalite.record.record import Record, read_records
from tests.support.log.ledger import NEVER, Ledger

View = dict[bytes, bytes]  # the last value of each key that has one


@dataclass(eq=False)
class Transaction:
    """`commits` None: not decided yet."""

    producer_id: int
    commits: bool | None = None


@dataclass(frozen=True, eq=False)
class Put:
    """A batch as it was written. `ends` is the transaction that it is the marker of, `within` the one it is part of."""

    header: BatchHeader
    records: list[Record]
    within: Transaction | None = None
    ends: Transaction | None = None

    @property
    def last(self) -> int:
        return self.header.last_offset


@dataclass
class Seen:
    """The records that a reader has met: whole batches, each with what is left in it."""

    batches: list[tuple[BatchHeader, list[Record]]] = field(default_factory=list)

    def offsets(self) -> list[int]:
        return [record.offset for _, records in self.batches for record in records]

    def view(self, aborted: Iterable[AbortedTxn], view: View | None = None) -> View:
        """As a consumer with read_committed keeps it. `view`: what it has already."""
        view = {} if view is None else view
        for _, record in self.shown(aborted):
            assert record.key is not None
            if record.value is None:
                view.pop(record.key, None)
            else:
                view[record.key] = record.value
        return view

    def shown(self, aborted: Iterable[AbortedTxn]) -> Iterable[tuple[BatchHeader, Record]]:
        by_producer: dict[int, list[AbortedTxn]] = {}
        for txn in aborted:
            by_producer.setdefault(txn.producer_id, []).append(txn)
        for header, records in self.batches:
            txns = by_producer.get(header.producer_id, ()) if header.is_transactional else ()
            if not header.is_control and not any(t.first_offset <= header.last_offset <= t.last_offset for t in txns):
                for record in records:
                    yield header, record


class CompactedLedger(Ledger):
    """Fields beyond those of a log's ledger: `puts` is what was acknowledged, in order; `tried` what may be behind it
    after a crash. `doubtful` are producers whose last batches were lost: those before may be compacted already, and
    then nothing is known of them, or only what came before. `stays_until_ms` says until when a tombstone can be seen,
    by its offset, once a cleaning has met it; `retention_ms` is the shortest delete.retention.ms of any cleaning."""

    def __init__(self) -> None:
        super().__init__()
        self.puts: list[Put] = []
        self.tried: Put | None = None
        self.doubtful: set[int] = set()
        self.stays_until_ms: dict[int, int] = {}
        self.retention_ms = NEVER
        self._by_last: dict[int, Put] = {}

    @property
    def end(self) -> int:
        return self.puts[-1].last + 1 if self.puts else 0

    def acknowledge(self, put: Put) -> None:
        self.puts.append(put)
        if put.ends is None:  # a marker says nothing of its data
            self.doubtful.discard(put.header.producer_id)
        self._by_last[put.last] = put
        self.tried = None

    def cut(self, end_offset: int) -> None:
        """Records that were not flushed are lost. A coordinator that decided upon a transaction will do so again."""
        while self.puts and self.puts[-1].last >= end_offset:
            put = self.puts.pop()
            del self._by_last[put.last]
            self.doubtful.add(put.header.producer_id)
        self.stays_until_ms = {offset: ms for offset, ms in self.stays_until_ms.items() if offset < end_offset}

    def of_transaction(self, transaction: Transaction) -> list[Put]:
        return [put for put in self.puts if put.within is transaction]

    def unended(self) -> dict[int, list[Transaction]]:
        """The transactions of each producer that have no marker. Where one was lost in between, and with it the border
        between two transactions, the next marker is that of both."""
        pending: dict[int, list[Transaction]] = {}
        for put in self.puts:
            since = pending.setdefault(put.header.producer_id, [])
            if put.within is not None and put.within not in since:
                since.append(put.within)
            if put.ends is not None:
                for transaction in since:
                    transaction.commits = put.ends.commits
                since.clear()
        return {producer_id: since for producer_id, since in pending.items() if since}

    def expected(self, start_offset: int, limit_offset: int) -> dict[bytes, Record]:
        """The last record of each key, tombstones too, that a consumer with read_committed may read."""
        found: dict[bytes, Record] = {}
        for put in self.puts:
            if put.ends is None and (put.within is None or put.within.commits) and put.last < limit_offset:
                for record in put.records:
                    if record.offset >= start_offset:
                        assert record.key is not None
                        found[record.key] = record
        return found

    def begins_pass(self, job: CleanJob) -> None:
        upto, until_ms = job.first_uncleanable_offset, job.now_ms + job.delete_retention_ms
        for put in self.puts:
            if put.last < upto:
                for record in put.records:
                    if record.value is None:
                        self.stays_until_ms[record.offset] = min(
                            until_ms, self.stays_until_ms.get(record.offset, NEVER)
                        )
        self.retention_ms = min(self.retention_ms, job.delete_retention_ms)

    # what a log must be like

    def reopened(self, log: PartitionLog, *, everything: bool, forgets_names: bool = False) -> None:
        """Before transactions that had been decided are ended again; `check` comes behind."""
        if self.tried is not None and log.end_offset > self.tried.last:
            self.acknowledge(self.tried)
        self.tried = None
        promised = min(self.end, self.cutting_at) if everything else self.promised
        end = max(self.end, log.segments[-1].base_offset)  # what lay before that may all be gone
        assert promised <= log.end_offset <= end, f"it ends at {log.end_offset}, not in {promised}..{end}"
        assert log.flusher.recovery_point <= log.end_offset
        start = log.start_offset
        asked = self.start_asked
        if forgets_names and not everything and self.promised <= asked:
            asked = start
        assert self.start_kept <= start <= asked, f"starts at {start}, not in {self.start_kept}..{self.start_asked}"
        self.start_asked = max(self.start_asked, start)
        self.cut(log.end_offset)
        if not everything:
            self._find_lost(log)
        self.cutting_at = NEVER

    def _find_lost(self, log: PartitionLog) -> None:
        """Of what nobody had waited for, anything may be missing: a compacted log has gaps, so nobody can tell."""
        there = {parse_header(batch).last_offset for batch in log.batches(log.segments[0].base_offset)}
        lost = [put for put in self.puts if put.last >= self.promised and put.last not in there]
        self.doubtful.update(put.header.producer_id for put in lost)
        self.puts = [put for put in self.puts if put not in lost]

    def check(self, log: PartitionLog) -> None:
        limit = min(log.producers.first_unstable_offset, log.end_offset)
        seen = read(log, log.start_offset, limit)
        self.check_records(seen)
        aborted = aborted_of(log)
        expected = self.expected(log.start_offset, limit)
        view = seen.view(aborted)
        wanted = {key: record.value for key, record in expected.items() if record.value is not None}
        for key in wanted.keys() | view.keys():
            assert view.get(key) == wanted.get(key), f"{key!r} is {view.get(key)!r}, should be {expected.get(key)}"
        last = {record.key: record for _, record in seen.shown(aborted)}
        now_ms = log._context.clock.wall_ms()
        for key, record in expected.items():
            if record.value is None and record.offset not in {last[key].offset if key in last else -1}:
                assert self.stays_until_ms.get(record.offset, NEVER) <= now_ms, f"{record} went too early"
        self._check_indexes(log)
        self.check_producers(log)
        self.check_times(log)

    def check_records(self, seen: Seen) -> None:
        """Each as it was written, in order."""
        last = -1
        for header, records in seen.batches:
            put = self._by_last.get(header.last_offset)
            assert put is not None, f"nobody wrote {header}"
            now, then = header, put.header
            assert last < now.base_offset == then.base_offset, f"{header} behind {last}"
            assert now[2:4] + now[9:12] == then[2:4] + then[9:12], f"{header} was {put.header}"
            written = {record.offset: record for record in put.records}
            for record in records:
                assert written.get(record.offset) == record, f"{record} was {written.get(record.offset)}"
                assert last < record.offset <= now.last_offset
                last = record.offset
            last = now.last_offset

    def check_producers(self, log: PartitionLog) -> None:
        """The last producers are remembered, if they may be."""
        lasts: dict[int, Put] = {}
        for put in self.puts:
            if put.ends is None and put.header.producer_id >= 0:
                lasts[put.header.producer_id] = put
        for producer_id, put in lasts.items():
            known = log.producers.get(producer_id)
            if put.last >= log.start_offset and (known is not None or producer_id not in self.doubtful):
                assert known is not None, f"producer {producer_id} of {put.header} is forgotten"
                got, wanted = (known.epoch, known.last_sequence), (put.header.producer_epoch, put.header.last_sequence)
                is_as_told = got <= wanted if producer_id in self.doubtful else got == wanted
                assert is_as_told, f"producer {producer_id} stands at {got}, not {wanted}"

    def check_times(self, log: PartitionLog) -> None:
        seen = read(log, log.start_offset, log.end_offset)
        records = [(r.timestamp, r.offset) for _, found in seen.batches for r in found if r.offset >= log.start_offset]
        times = sorted({time for time, _ in records})
        for time in times[:: max(1, len(times) // 3)]:
            expected = next((time_, offset) for time_, offset in records if time_ >= time)
            found = log.lookup_of_timestamp(time, log.end_offset).answer()
            assert found is not None and found[:2] == expected, f"time {time} is found at {found}, not {expected}"


def read(log: PartitionLog, offset: int, limit_offset: int, max_bytes: int = 1 << 30) -> Seen:
    """Everything from the batch that holds `offset` on, as a consumer fetches it."""
    seen = Seen()
    while (region := log.read(offset, max_bytes, limit_offset)) is not None:
        found = parse(region.read(), offset)
        assert found, "a fetch that yields no whole batch never ends"
        seen.batches += found
        offset = found[-1][0].last_offset + 1
    return seen


def parse(data: bytes, from_offset: int) -> list[tuple[BatchHeader, list[Record]]]:
    """The whole batches in what was fetched, with their records from an offset on."""
    found = []
    position = 0
    while position + 61 <= len(data):
        header = parse_header(data, position)
        end = position + header.size_bytes
        if end > len(data):
            break
        records = [record for record in read_records(data[position:end]) if record.offset >= from_offset]
        found.append((header, records))
        position = end
    return found


def aborted_of(log: PartitionLog) -> list[AbortedTxn]:
    return [txn for segment in log.segments for txn in segment.txn_index.all()]
