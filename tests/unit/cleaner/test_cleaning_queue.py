"""The order in which logs are taken from the queue, and the requests that their entries carry."""

from __future__ import annotations

import pytest

from kafkalite.cleaner.schedule import CleaningQueue, RunOutcome, RunRequest
from kafkalite.common.names import TopicPartition

A, B, C = ("a", 0), ("b", 0), ("c", 0)


@pytest.fixture
def queue() -> CleaningQueue:
    return CleaningQueue()


def request(queue: CleaningQueue, key: TopicPartition) -> list[RunOutcome]:
    """The outcomes appear in the list that comes back."""
    outcomes: list[RunOutcome] = []
    queue.request(key, RunRequest([key], outcomes.extend))
    return outcomes


def take_all(queue: CleaningQueue) -> list[TopicPartition]:
    found = []
    while (entry := queue.take()) is not None:
        found.append(entry.key)
    return found


def test_requested_logs_come_first_and_then_the_filthiest(queue: CleaningQueue) -> None:
    assert set(queue.replace_due([(0.6, A), (0.9, B)])) == {A, B}
    request(queue, C)
    assert take_all(queue) == [C, B, A] and queue.is_empty


def test_a_scan_replaces_the_findings_of_the_one_before(queue: CleaningQueue) -> None:
    queue.replace_due([(0.6, A), (0.9, B)])
    request(queue, C)
    assert queue.replace_due([(0.7, A)]) == [A]
    assert take_all(queue) == [C, A]


def test_a_log_is_not_taken_twice(queue: CleaningQueue) -> None:
    queue.replace_due([(0.6, A)])
    entry = queue.take()
    assert entry is not None and queue.replace_due([(0.6, A)]) == []
    request(queue, A)
    assert queue.take() is None and not queue.is_empty
    queue.finish(entry)
    assert take_all(queue) == [A]


def test_an_entry_that_was_flushed_is_durable_until_it_is_no_longer_due(queue: CleaningQueue) -> None:
    queue.replace_due([(0.6, A), (0.9, B)])
    flushed = queue.take()
    assert flushed is not None and not flushed.is_durable
    queue.put_back(flushed, is_durable=True)
    queue.replace_due([(0.9, B), (0.6, A)])
    again = queue.take()
    assert again is not None and again.key == B and again.is_durable
    queue.finish(again)
    queue.replace_due([])
    queue.replace_due([(0.9, B)])
    assert not queue.take().is_durable  # type: ignore[union-attr]


def test_a_requested_log_that_needs_another_turn_is_first_and_a_flushed_one_last(queue: CleaningQueue) -> None:
    for key in (A, B):
        request(queue, key)
    entry = queue.take()
    assert entry is not None
    queue.put_back(entry)
    entry = queue.take()
    assert entry is not None and entry.key == A
    queue.put_back(entry, is_durable=True)
    assert take_all(queue) == [B, A]


def test_a_cleaning_answers_the_requests_that_were_there_when_it_began(queue: CleaningQueue) -> None:
    before = request(queue, A)
    entry = queue.take()
    assert entry is not None
    later = request(queue, A)
    queue.finish(entry)
    entry.answer(RunOutcome(*A, why_not="the log is empty"))
    assert [one.why_not for one in before] == ["the log is empty"] and later == []
    queue.clear("the broker stops")
    assert [one.error for one in later] == ["the broker stops"] and queue.is_empty


def test_requests_of_an_entry_that_is_put_back_are_joined_by_later_ones(queue: CleaningQueue) -> None:
    outcomes = [request(queue, A)]
    entry = queue.take()
    assert entry is not None
    outcomes.append(request(queue, A))
    queue.put_back(entry, is_durable=True)
    entry = queue.take()
    assert entry is not None and entry.is_durable
    entry.answer(RunOutcome(*A))
    assert [len(one) for one in outcomes] == [1, 1]
