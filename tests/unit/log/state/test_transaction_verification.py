"""The first batch of a transaction needs a guard, and a guard that a marker has passed is worth nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError, UnverifiedTransaction
from kafkalite.log.state.producer_state import ProducerState
from kafkalite.log.state.transaction_verification import VERIFICATIONS_MAX, VerificationGuard
from kafkalite.log.storage.files import Files
from kafkalite.record.batch import BatchHeader, parse_header
from kafkalite.record.transaction_marker import build_marker, read_marker

PRODUCER = 7


@pytest.fixture
def state(tmp_path: Path) -> ProducerState:
    return ProducerState(str(tmp_path), [], Files())


def send(
    state: ProducerState, sequence: int, guard: VerificationGuard | None = None, offset: int = 10, epoch: int = 0,
) -> None:  # fmt: skip
    """A transactional batch of one record."""
    assert state.check(PRODUCER, epoch, sequence, 0, True, guard) is None
    state.update(PRODUCER, epoch, sequence, offset, 0, 1000, True)


def end(state: ProducerState, offset: int, epoch: int = 0, *, commit: bool = True) -> None:
    batch = build_marker(PRODUCER, epoch, 3, 1000, commit=commit)
    header: BatchHeader = parse_header(batch)._replace(base_offset=offset)
    marker = read_marker(batch)
    assert marker is not None
    state.end_transaction(header, marker)


def begin(state: ProducerState, sequence: int, epoch: int = 0) -> VerificationGuard:
    guard = state.begin_verification(PRODUCER, epoch, sequence)
    assert guard is not None
    return guard


def test_a_transaction_opens_with_its_guard_and_goes_on_without(state: ProducerState) -> None:
    with pytest.raises(UnverifiedTransaction):
        send(state, 0)
    guard = begin(state, 0)
    with pytest.raises(UnverifiedTransaction):
        send(state, 0, VerificationGuard())
    assert len(state) == 0, "nothing is changed"
    send(state, 0, guard)
    assert state.begin_verification(PRODUCER, 0, 1) is None
    send(state, 1, offset=11)
    assert state.ongoing == {10: PRODUCER} and len(state.verifications) == 0


def test_a_duplicate_of_an_ended_transaction_is_none(state: ProducerState) -> None:
    """It is verified first, so it gets the coordinator's answer whichever way its request takes. In a new transaction
    it is other records with used numbers, and to call it a duplicate would lose them."""
    send(state, 0, begin(state, 0))
    assert state.check(PRODUCER, 0, 0, 0, True) is not None
    end(state, 11)
    with pytest.raises(UnverifiedTransaction):
        state.check(PRODUCER, 0, 0, 0, True)
    with pytest.raises(KafkaError) as refusal:
        state.check(PRODUCER, 0, 0, 0, True, begin(state, 0))
    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.verifications.end(PRODUCER)
    send(state, 1, begin(state, 1), offset=12)
    assert state.check(PRODUCER, 0, 1, 0, True) is not None, "a duplicate in the open one"


def test_a_transaction_with_an_epoch_of_its_own_begins_with_sequence_0(state: ProducerState) -> None:
    """Nothing is known of its producer here, so nothing of the transaction can have been lost (Kafka 4.3)."""
    guard = state.begin_verification(PRODUCER, 1, 7, own_epochs=True)
    with pytest.raises(KafkaError) as refusal:
        send(state, 7, guard, epoch=1)
    assert refusal.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and len(state) == 0
    assert state.begin_verification(PRODUCER, 1, 0, own_epochs=True) is guard
    send(state, 0, guard, epoch=1)
    with pytest.raises(KafkaError) as refusal:
        state.begin_verification(PRODUCER, 0, 0, own_epochs=True)
    assert refusal.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_producers_that_are_never_confirmed_do_not_fill_the_memory(state: ProducerState) -> None:
    for producer_id in range(100, 100 + 2 * VERIFICATIONS_MAX):
        state.begin_verification(producer_id, 0, 0)
    assert len(state.verifications) == VERIFICATIONS_MAX
    send(state, 0, begin(state, 0))


def test_a_marker_makes_the_guard_invalid(state: ProducerState) -> None:
    """The coordinator's answer may come after the transaction that it spoke of is over."""
    guard = begin(state, 0)
    end(state, 10, commit=False)
    with pytest.raises(UnverifiedTransaction):
        send(state, 0, guard)
    send(state, 0, begin(state, 0), offset=11)
    end(state, 12)
    assert not state.ongoing
    with pytest.raises(UnverifiedTransaction) as raised:
        send(state, 1, guard, offset=13)
    assert raised.value.code == ErrorCode.INVALID_TXN_STATE


def test_batches_in_flight_share_the_guard_and_the_lowest_sequence_comes_first(state: ProducerState) -> None:
    guard = begin(state, 4)
    assert begin(state, 2) is guard and begin(state, 6) is guard
    with pytest.raises(KafkaError) as raised:
        send(state, 4, guard)
    assert raised.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(state, 2, guard)
    send(state, 3, offset=11)


def test_a_new_epoch_begins_its_sequences_anew(state: ProducerState) -> None:
    guard = begin(state, 4)
    assert begin(state, 0, epoch=1) is guard
    begin(state, 2, epoch=0)
    with pytest.raises(KafkaError):
        send(state, 4, guard, epoch=1)
    send(state, 0, guard, epoch=1)


def test_a_transaction_of_an_earlier_epoch_is_another_one(state: ProducerState) -> None:
    send(state, 0, begin(state, 0))
    with pytest.raises(UnverifiedTransaction):
        send(state, 0, epoch=1, offset=11)
    with pytest.raises(KafkaError) as raised:
        end(state, 11, epoch=1)
        send(state, 1, epoch=0, offset=12)
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_old_epoch_within_an_open_transaction_needs_no_verification_to_be_refused(state: ProducerState) -> None:
    send(state, 0, begin(state, 0, epoch=3), epoch=3)
    assert state.begin_verification(PRODUCER, 2, 0) is None
    with pytest.raises(KafkaError) as refused:
        state.check(PRODUCER, 2, 0, 0, True)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_without_verification_any_transaction_opens(state: ProducerState) -> None:
    state.verifications.setting.enabled = False
    send(state, 0)
    assert state.first_unstable_offset == 10


def test_a_verification_that_nothing_came_of_expires(state: ProducerState) -> None:
    guard = begin(state, 0)
    state.expire(5_000, 1_000)
    state.expire(5_999, 1_000)
    assert begin(state, 0) is guard
    state.expire(6_000, 1_000)
    with pytest.raises(UnverifiedTransaction):
        send(state, 0, guard)


def test_outside_a_transaction_nothing_is_verified(state: ProducerState) -> None:
    assert state.check(PRODUCER, 0, 0, 0) is None
    state.update(PRODUCER, 0, 0, 3, 0, 1000)
    assert state.check(PRODUCER, 0, 1, 0) is None
    send(state, 1, begin(state, 1))
    with pytest.raises(KafkaError) as raised:
        state.check(PRODUCER, 0, 2, 0)
    assert raised.value.code == ErrorCode.INVALID_TXN_STATE
    assert not isinstance(raised.value, UnverifiedTransaction)
