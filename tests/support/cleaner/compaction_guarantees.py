"""The guarantees of compaction for any cleaner: held against what was in a log before a cleaning and after it.

    - what is left stands at its offset, unchanged, in order
    - the last value of every key is there; once only, as far as the log is clean
    - a tombstone that is the last of its key is there until its time has come, and that time is told once
    - no record of an aborted transaction is shown; a marker is there as long as data of its transaction are
    - each producer's last batch is there, if only its header

Source: the documentation of Apache Kafka, design, log compaction; KIP-98, KIP-534.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafkalite.cleaner.job.job import CleanJob
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.record.batch import MAGIC, BatchHeader
from kafkalite.record.record import Record
from tests.support.cleaner.plain_cleaner import entries, records_of


@dataclass
class Contents:
    """`records` by offset, each with the header of its batch; `shown` without markers and what was aborted;
    `headers` by last offset. `aborted` is what the transaction indexes say."""

    records: dict[int, tuple[BatchHeader, Record]]
    shown: dict[int, tuple[BatchHeader, Record]]
    headers: dict[int, BatchHeader]
    aborted: list[AbortedTxn]

    @classmethod
    def of(cls, logs: Mapping[int, bytes], aborted: Sequence[AbortedTxn]) -> Contents:
        contents = cls({}, {}, {}, list(aborted))
        last = -1
        for base in sorted(logs):
            for header, batch in entries(logs[base]):
                found = records_of(header, batch)
                offsets = [record.offset for record in found]
                first = header.base_offset if header.magic == MAGIC else offsets[0]
                assert base <= first and last < first <= header.last_offset, f"{header} after {last} in {base}"
                assert offsets == sorted(set(offsets)) and set(offsets) <= set(range(first, header.last_offset + 1))
                last = header.last_offset
                contents.headers[last] = header
                is_shown = not header.is_control and not contents.is_aborted(header)
                for record in found:
                    contents.records[record.offset] = header, record
                    if is_shown:
                        contents.shown[record.offset] = header, record
        return contents

    @property
    def record_count(self) -> int:
        return len(self.records)

    def is_aborted(self, header: BatchHeader) -> bool:
        return header.is_transactional and any(
            txn.producer_id == header.producer_id and txn.first_offset <= header.last_offset <= txn.last_offset
            for txn in self.aborted
        )

    def last_of_keys(self) -> dict[bytes, int]:
        return {record.key: offset for offset, (_, record) in self.shown.items() if record.key is not None}


def check_promises(job: CleanJob, end_offset: int, before: Contents, after: Contents, keys: set[bytes]) -> None:
    """`keys` are those in the offset map."""
    for offset, (header, record) in after.records.items():
        assert offset in before.records, f"offset {offset} was not there"
        assert record == before.records[offset][1], f"{before.records[offset][1]} became {record}"
        old = before.records[offset][0]
        assert (header.base_offset == old.base_offset or header.magic < MAGIC) and header[2:4] == old[2:4]
        assert (header.last_offset, *header[9:12]) == (old.last_offset, *old[9:12]) or header.magic < MAGIC
        _check_horizon(job, old, header)
    for offset in before.shown:
        is_there = offset in after.records
        assert offset < end_offset or is_there, f"{offset} is gone; the log is clean only below {end_offset}"
    _check_last_values(job, end_offset, before, after)
    times = Counter(r.key for offset, (_, r) in after.shown.items() if offset < end_offset and r.key in keys)
    assert all(count == 1 for count in times.values()), f"more than once: {times.most_common(3)}"
    assert not [r for offset, (h, r) in after.shown.items() if r.key is None and offset < end_offset]
    _check_transactions(before, after)
    _check_producers(job, before, after)


def _check_last_values(job: CleanJob, end_offset: int, before: Contents, after: Contents) -> None:
    for key, offset in before.last_of_keys().items():
        header, record = before.shown[offset]
        if offset in after.shown:
            if record.value is None and header.magic == MAGIC and offset < end_offset:
                assert after.shown[offset][0].has_delete_horizon, f"{record} stays for ever"
            continue
        assert record.value is None, f"the last value of {key!r} is gone: {record}"
        if header.magic == MAGIC:
            assert header.has_delete_horizon and header.base_timestamp <= job.now_ms, f"{record} went too early"
        else:
            source = next(s for s in job.segments if s.base_offset <= offset < s.end_offset)
            newest = max((s.modified_ns for s in job.segments if s.base_offset < job.first_dirty_offset), default=0)
            assert source.modified_ns // 1_000_000 <= max(0, newest // 1_000_000 - job.delete_retention_ms)


def _check_horizon(job: CleanJob, old: BatchHeader, new: BatchHeader) -> None:
    if old.has_delete_horizon:
        assert (new.has_delete_horizon, new.base_timestamp) == (True, old.base_timestamp), "a promise was moved"
    elif new.has_delete_horizon:
        assert new.base_timestamp == job.now_ms + job.delete_retention_ms


def _check_transactions(before: Contents, after: Contents) -> None:
    assert all(txn in before.aborted for txn in after.aborted)
    for last, header in after.headers.items():
        if header.is_control:
            continue
        if before.is_aborted(header):
            assert after.is_aborted(header), f"what was aborted is shown: {header}"
            ends = [
                t.last_offset for t in after.aborted if t.producer_id == header.producer_id and t.last_offset > last
            ]
            assert min(ends) in after.records, f"the marker of {header} is gone"
        else:
            assert not after.is_aborted(header), f"what was committed is hidden: {header}"


def _check_producers(job: CleanJob, before: Contents, after: Contents) -> None:
    for producer, last in job.last_records.items():
        header = before.headers.get(last.last_data_offset)
        if header is not None and header.producer_id == producer:
            now = after.headers.get(last.last_data_offset)
            assert now is not None, f"the last batch of producer {producer} is gone: {header}"
            assert (now.producer_epoch, now.last_sequence) == (header.producer_epoch, header.last_sequence)
