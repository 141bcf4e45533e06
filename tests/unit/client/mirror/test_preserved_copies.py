"""Batches of a fetch with their offsets, against the records that a consumer of committed records would see."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.client.mirror.preserved_copies import PreservedBatch, filler, preserved_batches
from kafkalite.common.errors import Malformed
from kafkalite.record.batch import DELETE_HORIZON, TRANSACTIONAL, assemble, build_batch, parse_header
from kafkalite.record.batches import is_intact, read_batch
from kafkalite.record.message_set import build_set
from kafkalite.record.record import Record
from kafkalite.record.transaction_marker import build_marker
from tests.support.fetched_batches import NOW_MS, fetched, some


def records_of(batch: PreservedBatch) -> list[Record]:
    header = parse_header(batch.data)
    assert is_intact(header, batch.data)
    assert header.producer_id == header.producer_epoch == header.base_sequence == -1
    assert not header.is_transactional and header.last_offset + 1 == batch.end_offset
    found = read_batch(batch.data)
    assert len(found) == batch.record_count
    assert max((one.timestamp for one in found), default=-1) == batch.max_timestamp
    return found


def test_a_batch_without_a_producer_keeps_every_byte() -> None:
    data = bytes(build_batch(some(5), base_offset=10, codec=3))
    (batch,), position = preserved_batches(fetched(data), 10)
    assert bytes(batch.data) == data and position == 15
    records_of(batch)


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("how", [{"offset_deltas": [0, 3, 4, 9], "last_offset_delta": 12}, {"timestamp_type": 1}, {}])
def test_gaps_and_times_of_appends_stay_and_the_producer_goes(codec: int, how: dict[str, Any]) -> None:
    data = build_batch(
        some(4), base_offset=10, codec=codec, producer_id=7, producer_epoch=1, base_sequence=9, transactional=True,
        **how,
    )  # fmt: skip
    (batch,), position = preserved_batches(fetched(bytes(data)), 10)
    assert records_of(batch) == read_batch(data)
    before, after = parse_header(data), parse_header(batch.data)
    assert after.attributes == before.attributes & ~TRANSACTIONAL
    assert (after.base_offset, after.last_offset_delta) == (before.base_offset, before.last_offset_delta)
    assert position == before.last_offset + 1


def test_a_delete_horizon_stays() -> None:
    header = parse_header(data := build_batch(some(2), base_offset=3))
    data = assemble(header._replace(attributes=header.attributes | DELETE_HORIZON), data[61:])
    (batch,), _ = preserved_batches(fetched(bytes(data)), 3)
    assert parse_header(batch.data).has_delete_horizon


def test_a_batch_whose_first_records_are_deleted_begins_behind_them() -> None:
    data = build_batch(some(6), base_offset=10, codec=4, offset_deltas=[0, 1, 2, 5, 6, 8], last_offset_delta=9)
    (batch,), position = preserved_batches(fetched(bytes(data)), 13)
    assert records_of(batch) == [one for one in read_batch(data) if one.offset >= 13]
    assert position == batch.end_offset == 20


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_old_formats_get_the_new_one(magic: int, codec: int) -> None:
    rows = [(at, NOW_MS, b"k", b"v%d" % at) for at in (4, 5, 7)]
    data = build_set(rows, magic, codec=codec)
    batches, position = preserved_batches(fetched(data), 5)
    found = [one for batch in batches for one in records_of(batch)]
    wanted = NOW_MS if magic else -1
    assert [(one.offset, one.timestamp, one.value) for one in found] == [(5, wanted, b"v5"), (7, wanted, b"v7")]
    assert position == 8


def test_markers_and_aborted_transactions_are_gaps() -> None:
    log = bytearray()
    for number, commit in enumerate([True, False, True]):
        ids = {"producer_id": number, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        log += build_batch(some(2), base_offset=3 * number, **ids)  # type: ignore[arg-type]
        marker = build_marker(number, 0, 0, NOW_MS, commit=commit)
        marker[:8] = (3 * number + 2).to_bytes(8, "big")
        log += marker
    batches, position = preserved_batches(fetched(bytes(log), [(3, 1)]), 0)
    assert [one.offset for batch in batches for one in records_of(batch)] == [0, 1, 6, 7]
    assert position == 9


def test_a_batch_without_records_ends_where_it_is_asked_to() -> None:
    batch = filler(1 << 40)
    assert records_of(batch) == [] and batch.end_offset == 1 << 40


def test_a_damaged_batch_is_refused() -> None:
    data = bytearray(build_batch(some(5), base_offset=10))
    data[-1] ^= 1
    with pytest.raises(Malformed, match="offset 10 is damaged"):
        preserved_batches(fetched(bytes(data)), 10)
