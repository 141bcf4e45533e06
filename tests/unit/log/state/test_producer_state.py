from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kafkalite.common.checksum import crc32c
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.log.index.transaction_index import AbortedTxn
from kafkalite.log.state.producer import Producer
from kafkalite.log.state.producer_state import NO_TRANSACTION, ProducerState
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import NewRecord, build_batch, parse_header

MAX_SEQUENCE = 2**31 - 1


@pytest.fixture
def state(tmp_path: Path) -> ProducerState:
    return ProducerState(str(tmp_path), [], Files())


def send(state: ProducerState, first: int, count: int, offset: int, epoch: int = 0) -> int | None:
    """Producer 7 sends `count` records that would begin at `offset`; the earlier base offset if it is a duplicate."""
    earlier = state.check(7, epoch, first, count - 1)
    if earlier is not None:
        return earlier.first_offset
    state.update(7, epoch, first, offset + count - 1, count - 1, 1000)
    return None


def refusal(state: ProducerState, first: int, epoch: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        state.check(7, epoch, first, 0)
    return raised.value.code


def test_the_last_five_batches_are_recognised(state: ProducerState) -> None:
    for i in range(7):
        assert send(state, i * 10, 10, 100 + i * 10) is None
    assert [send(state, i * 10, 10, 999) for i in range(2, 7)] == [120, 130, 140, 150, 160]
    assert refusal(state, 10) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # too old to be known
    assert refusal(state, 80) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER  # one is missing
    assert send(state, 70, 10, 170) is None


def test_a_known_first_sequence_with_another_length_is_no_duplicate(state: ProducerState) -> None:
    send(state, 0, 10, 0)
    assert refusal(state, 0) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_anywhere(state: ProducerState) -> None:
    assert send(state, 12345, 1, 0) is None
    assert send(state, 12346, 1, 1) is None


def test_sequences_wrap_to_zero(state: ProducerState) -> None:
    send(state, MAX_SEQUENCE - 1, 2, 0)
    assert send(state, 0, 3, 2) is None
    assert send(state, MAX_SEQUENCE - 1, 2, 9) == 0
    state.update(8, 0, MAX_SEQUENCE, 7, 2, 0)  # wraps inside the batch: MAX, 0, 1
    again = state.check(8, 0, MAX_SEQUENCE, 2)
    assert again is not None
    assert again.first_offset == 5
    assert state.check(8, 0, 2, 0) is None


def test_a_new_epoch_begins_at_zero_and_ends_the_old(state: ProducerState) -> None:
    send(state, 0, 5, 0, epoch=3)
    assert refusal(state, 5, epoch=4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(state, 0, 5, 5, epoch=4) is None
    assert refusal(state, 5, epoch=3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert send(state, 0, 5, 9, epoch=4) == 5


def test_silent_producers_are_forgotten(state: ProducerState) -> None:
    send(state, 0, 1, 0)
    assert state.expire(1000 + 86_399_999, 86_400_000) == 0
    assert state.expire(1000 + 86_400_000, 86_400_000) == 1
    assert send(state, 99, 1, 1) is None


def test_a_snapshot_keeps_the_last_batch(state: ProducerState) -> None:
    send(state, 0, 10, 90, epoch=2)
    send(state, 10, 5, 100, epoch=2)
    producer = state.get(7)
    assert producer is not None
    back = Producer.from_snapshot(producer.to_snapshot(7))
    assert (back.epoch, back.last_sequence, back.batches) == (2, 14, producer.batches[1:])


def test_a_snapshot_with_bytes_behind_its_last_producer_is_not_used(tmp_path: Path, state: ProducerState) -> None:
    for i in range(2):
        send(state, i, 1, i)
        state.take_snapshot(i + 1)
    body = struct.pack(">i", 0) + b"\0"
    (tmp_path / "00000000000000000002.snapshot").write_bytes(b"\0\1" + struct.pack(">I", crc32c(body)) + body)
    assert state.restore(0, 2, 1000, 86_400_000) == 1


def test_a_restart_goes_back_to_the_newest_good_snapshot(tmp_path: Path, state: ProducerState) -> None:
    for i in range(3):
        send(state, i, 1, i)
        assert state.take_snapshot(i + 1) is not None
    assert state.take_snapshot(2) is None, "there is a newer one"
    newest = tmp_path / "00000000000000000003.snapshot"
    newest.write_bytes(newest.read_bytes()[:-1] + b"\0")
    again = ProducerState(str(tmp_path), [1, 2, 3], Files())
    assert again.restore(0, 3, 1000, 86_400_000) == 2
    assert not newest.exists()
    assert again.check(7, 0, 2, 0) is None
    found = again.check(7, 0, 1, 0)
    assert found is not None
    assert found.first_offset == 1
    assert again.restore(0, 1, 1000, 86_400_000) == 1
    assert again.snapshots.offsets == [1]
    assert again.restore(5, 9, 1000, 86_400_000) == 5
    assert len(again) == 0
    assert again.snapshots.offsets == []


def test_snapshots_that_no_segment_begins_with_go_but_the_newest_stays(tmp_path: Path, state: ProducerState) -> None:
    for offset in (5, 10, 15, 20, 25):
        state.take_snapshot(offset)
    state.snapshots.keep_useful([0, 10, 20])
    assert state.snapshots.offsets == [10, 20, 25]
    state.snapshots.keep_useful([0, 10, 30])
    assert state.snapshots.offsets == [10]


def test_transactions_in_a_foreign_log_are_followed(state: ProducerState) -> None:
    def replay(base_offset: int, producer_id: int, control: bytes | None = None) -> AbortedTxn | None:
        key = control
        value = b"\0\0\0\0\0\5" if control else b"v"
        batch = build_batch(
            [NewRecord(key, value, (), 50)], base_offset=base_offset, producer_id=producer_id, producer_epoch=0,
            base_sequence=-1 if control else 0, transactional=True, control=control is not None,
        )  # fmt: skip
        return state.apply(parse_header(batch), memoryview(batch))

    commit, abort = b"\0\0\0\1", b"\0\0\0\0"
    assert replay(10, 1) is None
    assert replay(11, 2) is None
    assert state.first_unstable_offset == 10
    assert state.oldest_open == (1, 0, 0, 50, -1, 10)
    assert refusal_inside_transaction(state) == ErrorCode.INVALID_TXN_STATE
    assert replay(12, 2, abort) == AbortedTxn(2, 11, 12, 10)
    assert replay(13, 1, commit) is None
    assert state.first_unstable_offset == NO_TRANSACTION
    assert replay(14, 1) is None
    assert replay(15, 1, abort) == AbortedTxn(1, 14, 15, 16)
    assert replay(16, 3, abort) is None, "nothing was open"
    assert replay(17, 3, b"\0\0\0\2") is None, "a control record for others"
    producer = state.get(1)
    assert producer is not None
    assert producer.coordinator_epoch == 5


def refusal_inside_transaction(state: ProducerState) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        state.check(1, 0, 1, 0)
    return raised.value.code
