"""The transactions of one id: who may do what, in which order it is stored, and what everybody is told."""

import pytest

from kafkalite.common.clock import Moment
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import ProducerIdAndEpoch
from kafkalite.coordinator.runtime.effects import Answer, Append
from kafkalite.coordinator.transaction.transaction import Transaction
from kafkalite.coordinator.transaction.transaction_state import (
    COMPLETE_COMMIT,
    COMPLETED_AS,
    DEAD,
    EMPTY,
    ENTERED_FROM,
    ID_OF_STATE,
    IDLE,
    ONGOING,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    AllocateProducerId,
    CompletionStored,
    EndStored,
    EndTransactionResult,
    InitProducerIdResult,
    PartitionsStored,
    SendMarkers,
    TransactionMetadata,
    TransactionState,
    transaction_key,
    transaction_value,
)
from tests.support.transaction_world import CLICKS, ORDERS, START_MS, TIMEOUT_MS, stored_metadata

OK = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_TXN_STATE
MINUTE_MS = 60_000


def append(metadata, then):
    return Append([(transaction_key("t"), transaction_value(metadata))], then)


def after(ms):
    return Moment(0, START_MS + ms)


def test_one_transaction_as_effects():
    stored = TransactionMetadata(5, 3, TIMEOUT_MS, START_MS, last_producer_epoch=2)
    transaction = Transaction("t", 0, stored)
    ongoing = stored._replace(
        state=ONGOING, partitions=frozenset({ORDERS, CLICKS}), start_ms=START_MS + 1, last_update_ms=START_MS + 1
    )
    assert transaction.add_partitions(5, 3, [ORDERS, CLICKS], "a", START_MS + 1) == [
        append(ongoing, PartitionsStored("a"))
    ]
    assert transaction.metadata == stored  # until the record is on disk
    assert transaction.on_append(PartitionsStored("a"), OK, after(2)) == [Answer("a", OK)]
    prepared = ongoing._replace(state=PREPARE_COMMIT, last_update_ms=START_MS + 3)
    assert transaction.end(5, 3, "b", START_MS + 3, commit=True, transaction_version=0) == [
        append(prepared, EndStored("b"))
    ]
    assert transaction.on_append(EndStored("b"), OK, after(4)) == [
        Answer("b", EndTransactionResult(OK, 5, 3)),  # before any marker is written
        SendMarkers(5, 3, True, frozenset({ORDERS, CLICKS})),
    ]
    assert transaction.on_marker_written(ORDERS) == []
    assert set(transaction.partitions) == {CLICKS}
    assert transaction.on_marker_written(ORDERS) == []
    completed = prepared._replace(state=COMPLETE_COMMIT, partitions=frozenset(), last_update_ms=START_MS + 4)
    assert transaction.on_marker_written(CLICKS) == [append(completed, CompletionStored())]
    assert transaction.on_append(CompletionStored(), OK, after(9)) == []
    assert transaction.metadata == completed


def test_the_tables_speak_of_every_state():
    states = set(TransactionState)
    assert set(ENTERED_FROM) == set(ID_OF_STATE) == states
    assert [ID_OF_STATE[state] for state in TransactionState] == list(range(8))
    assert set().union(*ENTERED_FROM.values()) == states - {DEAD, PREPARE_EPOCH_FENCE}
    assert set(COMPLETED_AS) | IDLE | {ONGOING, DEAD, PREPARE_EPOCH_FENCE} == states


# --- InitProducerId


def test_every_new_producer_gets_the_next_epoch(world):
    assert world.init(timeout_ms=5_000) == (OK, 1000, 1)
    assert world.transaction.timeout_ms == 5_000
    assert world.add(ORDERS, ids=(1000, 0)) == FENCED
    assert world.add(ORDERS, ids=(999, 1)) == UNMAPPED


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_producer_after_a_transaction(world, commit):
    world.add(ORDERS)
    world.end(commit=commit)
    assert world.init() == (OK, 1000, 1)
    assert world.state == "Empty"
    assert world.log[-1].start_ms == -1


def test_a_new_producer_aborts_the_transaction_of_its_predecessor_and_asks_again(world):
    world.add(ORDERS)
    assert world.init() == InitProducerIdResult(CONCURRENT)
    assert world.marked == [(ORDERS, 1000, 1, False)]  # an epoch that nobody was given
    assert world.state == "CompleteAbort"
    assert world.init() == (OK, 1000, 2)
    assert world.commit(ids=(1000, 0)).error == FENCED


def test_a_new_producer_waits_for_the_markers(world):
    world.writes_markers = False
    world.add(ORDERS)
    world.commit()
    assert world.init() == InitProducerIdResult(CONCURRENT)
    world.write_markers()
    assert world.init() == (OK, 1000, 1)


def test_a_producer_that_goes_on_after_an_error(world):
    assert world.init(expected=(1000, 0)) == (OK, 1000, 1)
    assert world.init(expected=(1000, 0)) == (OK, 1000, 1)  # again: it has not got the answer
    assert world.init(expected=(1000, 1)) == (OK, 1000, 2)
    assert world.init() == (OK, 1000, 3)  # another producer
    assert world.init(expected=(1000, 2)).error == FENCED
    assert world.init(expected=(7, 3)).error == FENCED


def test_an_unknown_producer_that_goes_on_gets_a_new_id():
    transaction = Transaction.new("t", 0, 5, TIMEOUT_MS, START_MS)
    (append,) = transaction.init_producer_id(TIMEOUT_MS, ProducerIdAndEpoch(4, 9), "a", START_MS)
    stored = stored_metadata(append)
    assert (stored.producer_id, stored.producer_epoch) == (5, 0)


def test_a_new_producer_id_when_the_epochs_are_used_up(world):
    world.with_epoch(32_766)
    assert world.transaction.init_producer_id(TIMEOUT_MS, None, "a", START_MS) == [AllocateProducerId()]
    assert world.init() == (OK, 1001, 0)
    world.with_epoch(32_766)
    assert world.init(expected=(1001, 32_766)) == (OK, 1002, 0)
    assert world.init(expected=(1001, 32_766)) == (OK, 1002, 0)  # again
    assert world.init(expected=(1000, 32_766)).error == FENCED


def test_fencing_at_the_last_epoch(world):
    world.with_epoch(32_766)
    world.add(ORDERS)
    assert world.init().error == CONCURRENT
    assert world.marked == [(ORDERS, 1000, 32_767, False)]
    assert world.abort(ids=(1000, 32_766), version=2).error == FENCED  # there is no epoch to go on with
    assert world.init() == (OK, 1001, 0)


def test_the_first_record_cannot_be_stored(world):
    transaction = world.transaction = Transaction.new("t", 0, 7, TIMEOUT_MS, START_MS)
    world.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.init() == InitProducerIdResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert transaction.producer_epoch == -1
    world.refuses = OK
    assert world.init() == (OK, 7, 0)


# --- partitions


def test_a_transaction_grows_and_stores_nothing_twice(world):
    assert world.add(ORDERS) == OK
    world.now_ms += 10
    assert world.add(CLICKS) == OK
    assert world.transaction.start_ms == START_MS
    stored = len(world.log)
    assert world.add(ORDERS, CLICKS) == OK
    assert len(world.log) == stored
    assert world.log[-1].partitions == {ORDERS, CLICKS}


def test_changes_come_one_after_another(world):
    world.dawdles = True
    assert world.add(ORDERS) is None
    assert world.add(CLICKS) == CONCURRENT
    assert world.commit().error == CONCURRENT
    assert world.init().error == CONCURRENT
    world.passes(MINUTE_MS + 1)  # nor does time end it
    world.log_answers()
    assert world.state == "Ongoing"


def test_partitions_that_cannot_be_stored_are_not_in_the_transaction(world):
    world.refuses = ErrorCode.NOT_COORDINATOR
    assert world.add(ORDERS) == ErrorCode.NOT_COORDINATOR
    assert world.state == "Empty"
    world.refuses = OK
    assert world.add(CLICKS) == OK
    assert set(world.transaction.partitions) == {CLICKS}


def test_verification(world):
    verify = world.transaction.verify_partitions
    assert verify(1000, 0, [ORDERS]) == {ORDERS: ErrorCode.TRANSACTION_ABORTABLE}
    world.add(ORDERS)
    assert verify(1000, 0, [ORDERS, CLICKS]) == {ORDERS: OK, CLICKS: ErrorCode.TRANSACTION_ABORTABLE}
    assert verify(1000, 1, [ORDERS]) == {ORDERS: FENCED}
    assert verify(1001, 0, [ORDERS]) == {ORDERS: UNMAPPED}
    world.writes_markers = False
    world.commit()
    assert verify(1000, 0, [ORDERS]) == {ORDERS: CONCURRENT}
    world.write_markers()
    assert verify(1000, 0, [ORDERS]) == {ORDERS: ErrorCode.TRANSACTION_ABORTABLE}


# --- EndTxn


@pytest.mark.parametrize(
    ("first", "again", "during", "after"),
    [
        ("commit", "commit", CONCURRENT, OK),
        ("abort", "abort", CONCURRENT, OK),
        ("commit", "abort", CONCURRENT, INVALID),
        ("abort", "commit", CONCURRENT, INVALID),
    ],
)
def test_an_end_that_comes_again(world, first, again, during, after):
    world.add(ORDERS)
    world.writes_markers = False
    assert getattr(world, first)() == (OK, 1000, 0)
    assert getattr(world, again)().error == during
    world.write_markers()
    assert getattr(world, again)().error == after
    assert world.add(ORDERS) == OK  # the next transaction


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_without_a_transaction(world, commit):
    assert world.end(commit=commit).error == INVALID
    assert world.end(commit=commit, ids=(1000, 1)).error == FENCED
    assert world.end(commit=commit, ids=(1, 0)).error == UNMAPPED


def test_an_end_that_cannot_be_stored_ends_nothing(world):
    world.add(ORDERS)
    world.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.commit() == EndTransactionResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert world.state == "Ongoing" and not world.marked
    world.refuses = OK
    assert world.abort().error == OK
    assert world.marked == [(ORDERS, 1000, 0, False)]


def test_a_completion_that_cannot_be_stored_is_tried_again(world):
    world.add(ORDERS)
    world.writes_markers = False
    world.commit()
    world.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.write_markers()
    assert world.add(ORDERS) == CONCURRENT
    world.tries_again()
    world.refuses = OK
    world.tries_again()
    assert world.state == "CompleteCommit" and not world.later


# --- transaction.version=2


@pytest.mark.parametrize("commit", [True, False])
def test_a_replaced_producer_does_not_take_the_end_of_its_successor_for_its_own(world, commit):
    """The successor does not bump epochs, so its epoch is the next one of its predecessor."""
    replaced = world.ids_in_use
    world.init()
    world.add(ORDERS)
    world.writes_markers = False
    world.end(commit=commit)
    assert world.end(commit=commit, ids=replaced, version=2) == EndTransactionResult(FENCED)
    world.write_markers()
    assert world.end(commit=commit, ids=replaced, version=2) == EndTransactionResult(FENCED)
    world.restart()
    assert world.end(commit=commit, ids=replaced, version=2) == EndTransactionResult(FENCED)


@pytest.mark.parametrize("commit", [True, False])
def test_every_end_bumps_the_epoch(world, commit):
    world.add(ORDERS)
    assert world.end(commit=commit, version=2) == (OK, 1000, 1)
    assert world.marked == [(ORDERS, 1000, 1, commit)]
    assert world.log[-1].client_version == 2
    assert world.end(commit=commit, ids=(1000, 0), version=2) == (OK, 1000, 1)  # it has not got the answer
    assert world.end(commit=not commit, ids=(1000, 0), version=2).error == INVALID
    assert world.add(ORDERS, ids=(1000, 0)) == FENCED
    assert world.add(ORDERS) == OK
    assert world.end(commit=commit, ids=(1000, 0), version=2).error == FENCED


def test_a_bumping_end_that_comes_again_while_markers_are_written(world):
    world.add(ORDERS)
    world.writes_markers = False
    world.commit(version=2)
    assert world.commit(ids=(1000, 0), version=2).error == CONCURRENT
    assert world.commit(ids=(1000, 1), version=2).error == FENCED
    assert world.add(ORDERS, ids=(1000, 1)) == CONCURRENT


@pytest.mark.parametrize("before", [[], ["commit"], ["abort"]])
def test_an_abort_where_nothing_is_open_bumps_too(world, before):
    for end in before:
        world.add(ORDERS)
        getattr(world, end)(version=2)
    world.marked.clear()
    epoch = len(before)
    assert world.commit(version=2).error == INVALID
    world.now_ms += 5
    assert world.abort(version=2) == (OK, 1000, epoch + 1)
    assert world.state == "CompleteAbort" and not world.marked
    assert world.transaction.start_ms == world.now_ms


def test_the_end_that_uses_up_the_epochs_gives_the_next_producer_id(world):
    world.with_epoch(32_766)
    world.add(ORDERS)
    world.writes_markers = False
    assert world.commit(version=2) == (OK, 1001, 0)
    assert world.log[-1].producer_id == 1000 and world.log[-1].next_producer_id == 1001
    assert world.add(ORDERS, ids=(1001, 0)) == CONCURRENT  # not UNMAPPED: the producer does right
    world.write_markers()
    assert world.marked == [(ORDERS, 1000, 32_767, True)]
    assert world.commit(ids=(1000, 32_766), version=2) == (OK, 1001, 0)
    assert world.add(ORDERS, ids=(1000, 32_766)) == UNMAPPED
    assert world.add(ORDERS, ids=(1001, 0)) == OK
    assert world.commit(ids=(1000, 32_766), version=2).error == FENCED


def test_the_next_producer_id_outlives_the_coordinator(world):
    world.with_epoch(32_766)
    world.add(ORDERS)
    world.writes_markers = False
    world.commit(version=2)
    world.restart()
    assert world.marked == [(ORDERS, 1000, 32_767, True)]
    assert world.ids_in_use == (1001, 0)
    assert world.commit(ids=(1000, 32_766), version=2) == (OK, 1001, 0)


# --- time


def test_a_transaction_that_is_open_for_too_long(world):
    world.add(ORDERS)
    world.passes(TIMEOUT_MS)
    assert world.state == "Ongoing"
    world.passes(1)
    assert world.state == "CompleteAbort"
    assert world.marked == [(ORDERS, 1000, 1, False)]
    assert world.add(ORDERS, ids=(1000, 0)) == FENCED
    assert world.commit(ids=(1000, 0)).error == FENCED
    assert world.commit(ids=(1000, 0), version=2).error == INVALID
    assert world.init(expected=(1000, 0)).error == FENCED
    assert world.init() == (OK, 1000, 2)


def test_with_epochs_bumped_by_every_end_a_late_abort_may_go_on(world):
    world.add(ORDERS)
    world.passes(TIMEOUT_MS + 1)
    assert world.abort(ids=(1000, 0), version=2) == (OK, 1000, 1)


def test_fencing_that_cannot_be_stored_fences_in_memory_and_bumps_once(world):
    world.add(ORDERS)
    world.refuses = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for _ in range(3):
        world.passes(TIMEOUT_MS + 1)
    assert world.ids_in_use == (1000, 1)
    assert world.commit(ids=(1000, 0)).error == FENCED
    world.refuses = OK
    world.passes(1)
    assert world.marked == [(ORDERS, 1000, 1, False)]
    assert world.init() == (OK, 1000, 2)


@pytest.mark.parametrize("used", [False, True])
def test_expiry_of_an_unused_id(world, used):
    week_ms = 7 * 86_400_000
    transaction = world.transaction
    if used:
        world.add(ORDERS)
        assert not transaction.begin_expiry(world.now_ms + 2 * week_ms, week_ms)
        world.commit()
    assert not transaction.begin_expiry(START_MS + week_ms - 1, week_ms)
    assert transaction.begin_expiry(START_MS + week_ms, week_ms)
    assert world.init().error == CONCURRENT
    transaction.end_expiry()
    assert world.init() == (OK, 1000, 1)


# --- restarts


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_an_end_that_is_stored_is_finished_after_a_restart(world, commit, version):
    world.add(ORDERS, CLICKS)
    world.writes_markers = False
    world.end(commit=commit, version=version)
    epoch = 1 if version else 0
    world.restart()
    assert world.marked == [(each, 1000, epoch, commit) for each in (CLICKS, ORDERS)]
    assert world.state == ("CompleteCommit" if commit else "CompleteAbort")
    assert world.end(commit=commit, ids=(1000, 0), version=version) == (OK, 1000, epoch)


def test_an_open_transaction_goes_on_after_a_restart(world):
    world.add(ORDERS)
    world.restart()
    assert world.add(CLICKS) == OK
    world.restart()
    world.passes(TIMEOUT_MS + 1)
    assert world.marked == [(CLICKS, 1000, 1, False), (ORDERS, 1000, 1, False)]


def test_an_end_of_nothing_needs_no_marker_after_a_restart(world):
    world.dawdles = True
    world.abort(version=2)
    world.log_answers()
    world.restart()
    assert world.state == "CompleteAbort" and not world.marked
    assert world.transaction.metadata.state is not EMPTY
