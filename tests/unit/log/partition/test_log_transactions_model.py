"""Open and aborted transactions against a list of all records, over random histories with truncations, restarts,
crashes and deletions."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.log.state.producer_state import NO_TRANSACTION
from kafkalite.record.batch import iter_batches
from tests.support.log.transactional_batches import end, send
from tests.unit.log.conftest import Disk, Log

PLAIN = -1


class Entry(NamedTuple):
    """The record at one offset. `commit` is None for a data record; `producer` is PLAIN outside any transaction."""

    producer: int
    commit: bool | None = None


class PlainLog:
    """The list, and everything that follows from it, by reading it from the front. `starts` are the first offsets of
    batches."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.starts = [0]

    def add(self, entry: Entry, count: int = 1) -> None:
        self.entries += [entry] * count
        self.starts.append(len(self.entries))

    def truncate(self, at: float, lowest: int) -> int:
        offset = max(lowest, self.starts[int(at * (len(self.starts) - 1))])
        self.starts = [start for start in self.starts if start <= offset]
        del self.entries[offset:]
        return offset

    def read(self) -> tuple[dict[int, int], list[AbortedTxn]]:
        """Open transactions (producer by first offset), and the aborted ones in the order of their markers."""
        opened: dict[int, int] = {}
        aborted: list[AbortedTxn] = []
        for offset, entry in enumerate(self.entries):
            if entry.producer == PLAIN:
                continue
            if entry.commit is None:
                opened.setdefault(entry.producer, offset)
                continue
            first = opened.pop(entry.producer, None)
            if first is not None and not entry.commit:
                stable = min(opened.values(), default=offset + 1)
                aborted.append(AbortedTxn(entry.producer, first, offset, stable))
        return {first: producer for producer, first in sorted(opened.items(), key=lambda one: one[1])}, aborted


producers = st.integers(1, 4)
steps = st.one_of(
    st.tuples(st.just("send"), producers, st.integers(1, 3)),
    st.tuples(st.just("send"), producers, st.integers(1, 3)),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("end"), producers, st.booleans()),
    st.tuples(st.just("plain"), st.integers(1, 3), st.none()),
    st.tuples(st.just("truncate"), st.floats(0, 1), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
    st.tuples(st.just("kill"), st.none(), st.none()),
    st.tuples(st.just("delete"), st.floats(0, 1), st.none()),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(steps, max_size=50), ranges=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 40)), max_size=6)
)
def test_the_log_knows_what_a_plain_list_tells(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[str, int | float | None, int | bool | None]],
    ranges: list[tuple[float, int]],
) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        root: Path = tmp_path_factory.mktemp("history")
        disk = Disk(root, monkeypatch)
        log = disk.open(segment_bytes=400, index_interval_bytes=100)
        plain = PlainLog()
        for what, first, second in history:
            if what == "send":
                assert isinstance(first, int) and isinstance(second, int)
                send(log, first, *"abc"[:second])
                plain.add(Entry(first), second)
            elif what == "end":
                assert isinstance(first, int)
                end(log, first, commit=bool(second))
                plain.add(Entry(first, bool(second)))
            elif what == "plain":
                assert isinstance(first, int)
                log.write(*"abc"[:first])
                plain.add(Entry(PLAIN), first)
            elif what == "truncate":
                assert first is not None
                log.log.truncate_to(plain.truncate(first, log.log.start_offset))
            elif what == "restart":
                log = disk.restart(log)
            elif what == "kill":
                log = kill(disk, log)
            else:
                assert first is not None
                log.log.delete_records_before(int(first * len(plain.entries)))
            check(log.log, plain, ranges)
        log.log.abandon()


def kill(disk: Disk, log: Log) -> Log:
    log.log.abandon()
    start_offset, recovery_point = log.log.start_offset, log.log.flusher.recovery_point
    return disk.open(clean=False, recovery_point=recovery_point, start_offset=start_offset)


def check(log: PartitionLog, plain: PlainLog, ranges: list[tuple[float, int]]) -> None:
    opened, aborted = plain.read()
    start = log.start_offset
    assert log.end_offset == len(plain.entries)
    if not start:
        assert log.producers.ongoing == opened
        assert log.producers.first_unstable_offset == min(opened, default=NO_TRANSACTION)
        assert [txn for segment in log.segments for txn in segment.txn_index.all()] == aborted
    # a crash forgets where a transaction began whose first records were deleted, and with it other last stable offsets
    wanted = {(txn.producer_id, txn.first_offset, txn.last_offset) for txn in aborted if txn.first_offset >= start}
    for at, length in [*ranges, (0.0, len(plain.entries))]:
        offset = start + int(at * (log.end_offset - start))
        expected = {txn for txn in wanted if txn[2] >= offset and txn[1] < offset + length}
        found = {txn[:3] for txn in log.transactions.aborted(offset, offset + length)}
        assert found >= expected and (start or found == expected)
        region = log.read(offset, 40 * length, log.end_offset)
        if region is not None:
            last = max((header.last_offset for header, _ in iter_batches(region.read())), default=offset)
            expected = {txn for txn in wanted if txn[2] >= offset and txn[1] <= last}
            assert {txn[:3] for txn in log.transactions.aborted_in(region, offset)} >= expected
