"""A batch that was refused before its producer had a state comes before later ones."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.log.state import awaited_batches
from kafkalite.log.state.awaited_batches import AwaitedBatches
from kafkalite.log.state.producer_state import ProducerState


def refused(awaited: AwaitedBatches, *batch: int) -> bool:
    try:
        awaited.check(*batch)
    except KafkaError as error:
        assert error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        return True
    return False


def test_later_ones_wait_for_the_lowest_of_their_epoch() -> None:
    awaited = AwaitedBatches()
    awaited.add(1, 0, 4)
    awaited.add(1, 0, 2)
    awaited.add(1, 0, 6)
    assert [refused(awaited, 1, 0, sequence) for sequence in (2, 3, 7)] == [False, True, True]
    assert not refused(awaited, 1, 1, 7) and not refused(awaited, 2, 0, 7)
    awaited.add(1, 1, 5)
    assert refused(awaited, 1, 1, 6) and not refused(awaited, 1, 0, 6)
    awaited.add(1, 0, 1)  # of an epoch that is over
    assert refused(awaited, 1, 1, 6)
    awaited.forget(1)
    assert not refused(awaited, 1, 1, 6)


def test_the_oldest_of_too_many_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awaited_batches, "_PRODUCERS_MAX", 2)
    awaited = AwaitedBatches()
    for producer_id in range(3):
        awaited.add(producer_id, 0, 0)
    assert [refused(awaited, producer_id, 0, 1) for producer_id in range(3)] == [False, True, True]


def test_a_producer_with_a_state_needs_none() -> None:
    files: Any = None
    state = ProducerState("", [], files)
    state.await_batch(1, 0, 3)
    with pytest.raises(KafkaError, match=r"4 \(incoming\), 3 \(refused"):
        state.check(1, 0, 4, 0)
    assert state.check(1, 0, 3, 0) is None
    state.update(1, 0, 3, 0, 0, 0)
    assert state.check(1, 0, 4, 0) is None
    state.await_batch(1, 0, 4)
    state.expire(1 << 60, 1)
    assert state.check(1, 0, 9, 0) is None, "it was forgotten, and any sequence may follow"
