"""Batches of a fetch, against the records that a consumer of committed records would see."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalite.client.mirror.committed_batches import CommittedBatch, committed_batches
from kafkalite.common.errors import Malformed
from kafkalite.record.batch import HEADER_BYTES, MAGIC, BatchHeader, assemble, build_batch
from kafkalite.record.batches import read_batch, whole_batches
from kafkalite.record.message_set import build_set
from kafkalite.record.record import Record
from kafkalite.record.transaction_marker import build_marker
from tests.support.fetched_batches import NOW_MS, fetched, some


def records_of(batch: CommittedBatch) -> list[Record]:
    """Its records with the offsets at the source."""
    header = BatchHeader(
        0, 0, -1, MAGIC, 0, batch.codec, batch.record_count - 1, batch.base_timestamp, batch.max_timestamp, -1, -1, -1,
        batch.record_count,
    )  # fmt: skip
    found = read_batch(assemble(header, batch.records))
    assert [one.offset for one in found] == list(range(batch.record_count))  # as a broker demands it
    offsets = [part.source + at for part in batch.parts for at in range(part.records)]
    assert [part.place for part in batch.parts] == [
        sum(each.records for each in batch.parts[:number]) for number in range(len(batch.parts))
    ]
    assert batch.max_timestamp == max(one.timestamp for one in found)
    return [one._replace(offset=offset) for one, offset in zip(found, offsets, strict=True)]


def test_a_dense_batch_keeps_its_bytes() -> None:
    data = build_batch(some(5), base_offset=10, codec=3, producer_id=7, producer_epoch=1, base_sequence=99)
    (batch,), position = committed_batches(fetched(bytes(data)), 10)
    assert bytes(batch.records) == bytes(data[HEADER_BYTES:])
    assert position == 15
    assert records_of(batch) == read_batch(data)


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_with_gaps_becomes_dense(codec: int) -> None:
    data = build_batch(some(4), base_offset=10, codec=codec, offset_deltas=[0, 3, 4, 9], last_offset_delta=12)
    (batch,), position = committed_batches(fetched(bytes(data)), 10)
    assert position == 23 and batch.codec == codec
    assert records_of(batch) == read_batch(data)


def test_a_batch_with_the_time_of_its_append_gets_times_of_records() -> None:
    data = build_batch(some(3), base_offset=10, timestamp_type=1)
    (batch,), _ = committed_batches(fetched(bytes(data)), 0)
    assert records_of(batch) == read_batch(data)


def test_records_before_the_position_are_not_copied_again() -> None:
    data = bytes(build_batch(some(5), base_offset=10)) + bytes(build_batch(some(2), base_offset=20))
    batches, position = committed_batches(fetched(data), 13)
    assert [one.offset for batch in batches for one in records_of(batch)] == [13, 14, 20, 21]
    assert position == 22
    assert committed_batches(fetched(data), 22) == ([], 22)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_formats(magic: int, codec: int) -> None:
    data = build_set([(at, NOW_MS, b"k", b"v%d" % at) for at in (4, 5, 7)], magic, codec=codec)
    batches, position = committed_batches(fetched(data), 5)
    assert [(one.offset, one.value) for batch in batches for one in records_of(batch)] == [(5, b"v5"), (7, b"v7")]
    assert position == 8


def test_a_batch_that_compaction_has_emptied_is_passed_over() -> None:
    data = build_batch([], base_offset=10, last_offset_delta=4, producer_id=7, producer_epoch=0, base_sequence=0)
    assert committed_batches(fetched(bytes(data)), 10) == ([], 15)


def test_a_damaged_batch_is_refused() -> None:
    data = bytearray(build_batch(some(5), base_offset=10))
    data[-1] ^= 1
    with pytest.raises(Malformed, match="offset 10 is damaged"):
        committed_batches(fetched(bytes(data)), 10)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["data", "commit", "abort"])), max_size=30),
    st.integers(0, 29),
)
@example([("a", "data"), ("a", "abort"), ("a", "data"), ("a", "commit")], 1)  # a response that begins with the marker
def test_transactions_of_several_producers(story: list[tuple[str, str]], first: int) -> None:
    """A fetch begins with any batch; the response has the aborted transactions that end there or later."""
    log = bytearray()
    offset = 0
    opened: dict[int, list[int]] = {}
    committed: list[int] = []
    aborted: list[tuple[int, int, int]] = []
    for name, action in story:
        producer_id = ord(name)
        if action == "data":
            batch = build_batch(
                some(2), base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0,
                transactional=True,
            )  # fmt: skip
            opened.setdefault(producer_id, []).extend((offset, offset + 1))
        else:
            batch = build_marker(producer_id, 0, 0, NOW_MS, commit=action == "commit")
            batch[:8] = offset.to_bytes(8, "big")
            mine = opened.pop(producer_id, [])
            if action == "commit":
                committed += mine
            elif mine:
                aborted.append((mine[0], producer_id, offset))
        log += batch
        offset += 2 if action == "data" else 1
    stable = min((mine[0] for mine in opened.values()), default=offset)
    readable = [(header, batch) for header, batch in whole_batches(bytes(log)) if header.base_offset < stable][first:]
    start = readable[0][0].base_offset if readable else stable
    data = b"".join(bytes(batch) for _, batch in readable)
    listed = [(begin, producer_id) for begin, producer_id, end in aborted if end >= start]
    batches, position = committed_batches(fetched(data, listed), start)
    seen = [one.offset for batch in batches for one in records_of(batch)]
    assert seen == sorted(one for one in committed if start <= one < stable)
    assert position == stable
