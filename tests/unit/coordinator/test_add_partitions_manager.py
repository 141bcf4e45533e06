"""Partitions are verified with, or added at, the coordinator of their transaction, here or on another broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TopicPartition
from kafkalite.coordinator.add_partitions_manager import (
    ADD_RETRIES_MS,
    ADD_RETRY_MS,
    AddPartitionsRequest,
    AddPartitionsResponse,
    AddPartitionsToTxnManager,
)
from tests.support.manual_clock import ManualClock

HERE = 1
A, B = ("t", 0), ("t", 1)
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS


class World:
    """A manager on broker 1. Transactional ids name their coordinator: "x@2" is on broker 2, "x@-1" nowhere."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.calls: list[Any] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}  # of the coordinator here
        self.sent: list[tuple[int, Sequence[AddPartitionsRequest], Callable[[AddPartitionsResponse], None]]] = []
        self.results: dict[str, Mapping[TopicPartition, ErrorCode]] = {}
        self.manager = AddPartitionsToTxnManager(
            cast(Any, self),
            HERE,
            lambda name: int(name.partition("@")[2]),
            self.clock,
            lambda *call: self.sent.append(call),
            cast(Any, None),
            lambda: True,
        )

    def add_partitions(self, name: str, pid: int, epoch: int, partitions: Sequence[Any], waiter: Any, /) -> None:
        self.calls.append(("add", name, pid, epoch, list(partitions)))
        waiter.answer(next(iter(self.errors.values()), ErrorCode.NONE))

    def verify_partitions(
        self, name: str, pid: int, epoch: int, partitions: Sequence[TopicPartition], /
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.calls.append(("verify", name, pid, epoch, list(partitions)))
        return {each: self.errors.get(each, ErrorCode.NONE) for each in partitions}

    def ask(self, name: str, *, epoch: int = 3, adds: bool = False, as_: str = "") -> None:
        def on_result(errors: Mapping[TopicPartition, ErrorCode]) -> None:
            assert (as_ or name) not in self.results, "called back twice"
            self.results[as_ or name] = errors

        self.manager.verify_or_add(name, 7, epoch, [A, B], adds, on_result)

    def respond(self, response: AddPartitionsResponse) -> None:
        self.sent.pop(0)[2](response)


@pytest.fixture
def world() -> World:
    return World()


def test_a_coordinator_here_answers_at_once(world: World) -> None:
    world.errors = {B: ErrorCode.TRANSACTION_ABORTABLE}
    world.ask("x@1")
    assert world.results == {"x@1": {B: ErrorCode.TRANSACTION_ABORTABLE}}
    world.errors = {}
    world.ask("y@1", adds=True)
    assert world.results["y@1"] == {}
    assert world.calls == [("verify", "x@1", 7, 3, [A, B]), ("add", "y@1", 7, 3, [A, B])]
    assert not world.sent


def test_a_producer_does_not_know_the_code_of_fencing(world: World) -> None:
    world.errors = {A: ErrorCode.PRODUCER_FENCED}
    world.ask("x@1", adds=True)
    assert world.results == {"x@1": dict.fromkeys((A, B), ErrorCode.INVALID_PRODUCER_EPOCH)}


def test_without_a_coordinator_the_producer_comes_again(world: World) -> None:
    world.ask("x@-1")
    assert world.results == {"x@-1": dict.fromkeys((A, B), ErrorCode.COORDINATOR_NOT_AVAILABLE)}


def test_adding_waits_for_the_markers_of_the_last_transaction(world: World) -> None:
    world.errors = {A: BUSY}
    world.ask("verified@1")
    assert world.results == {"verified@1": {A: BUSY}}, "only additions are tried again"
    world.ask("added@1", adds=True)
    world.ask("stuck@1", adds=True)
    assert "added@1" not in world.results
    world.calls.clear()
    world.clock.advance(ADD_RETRY_MS)
    assert len(world.calls) == 2
    world.clock.advance(ADD_RETRIES_MS)
    assert world.results["added@1"] == world.results["stuck@1"] == dict.fromkeys((A, B), BUSY)
    del world.results["added@1"]
    world.ask("added@1", adds=True)
    world.errors = {}
    world.clock.advance(ADD_RETRY_MS)
    assert world.results["added@1"] == {}


def test_verifications_are_renewed_before_the_coordinator_is_asked_again(world: World) -> None:
    world.errors = {A: BUSY}
    told: list[Any] = []
    world.manager.verify_or_add("added@1", 7, 3, [A], True, told.append, lambda: told.append(len(world.calls)))
    world.clock.advance(2 * ADD_RETRY_MS)
    assert told == [1, 2] and len(world.calls) == 3
    world.errors = {}
    world.clock.advance(ADD_RETRY_MS)
    assert told == [1, 2, 3, 4, {}], "and once more when they are added"


def test_partitions_are_added_again_if_a_marker_came_after_the_request_and_before_its_answer(world: World) -> None:
    told: list[Any] = []
    has_ended = [True, False]
    world.manager.verify_or_add("added@2", 7, 3, [A], True, told.append, lambda: has_ended.pop(0))
    world.respond({"added@2": {A: ErrorCode.NONE}})
    assert not told and len(world.sent) == 1
    world.respond({"added@2": {A: ErrorCode.NONE}})
    assert told == [{}] and not world.sent
    world.manager.verify_or_add("verified@2", 7, 3, [A], False, told.append, lambda: has_ended.pop(0))
    world.respond({"verified@2": {A: ErrorCode.NONE}})
    assert told == [{}, {}], "the transaction that it was verified for is over"


def test_requests_for_another_broker_are_sent_one_batch_at_a_time(world: World) -> None:
    for name in ("a@2", "b@2", "c@2", "d@3"):
        world.ask(name, adds=name == "c@2")
    assert [(broker, [each.transactional_id for each in batch]) for broker, batch, _ in world.sent] == [
        (2, ["a@2"]),
        (3, ["d@3"]),
    ]
    assert world.sent[0][1] == [AddPartitionsRequest("a@2", 7, 3, (A, B), False)]
    world.respond({"a@2": {A: ErrorCode.NONE, B: ErrorCode.NONE}})
    assert world.results == {"a@2": {}}
    world.respond({"d@3": {A: ErrorCode.NONE, B: ErrorCode.TRANSACTION_ABORTABLE}})
    assert world.results["d@3"] == {B: ErrorCode.TRANSACTION_ABORTABLE}
    ((broker, batch, _),) = world.sent
    assert (broker, [(each.transactional_id, each.adds) for each in batch]) == (2, [("b@2", False), ("c@2", True)])
    world.respond({"b@2": {A: ErrorCode.PRODUCER_FENCED}})
    assert world.results["b@2"] == {A: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert world.results["c@2"] == dict.fromkeys((A, B), ErrorCode.NETWORK_EXCEPTION), "no answer for it"
    assert not world.sent


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NETWORK_EXCEPTION),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.UNSUPPORTED_VERSION, None),
    ],
)
def test_an_error_for_the_request_is_one_for_all_partitions(
    world: World, error: ErrorCode, expected: ErrorCode | None
) -> None:
    world.ask("a@2")
    world.ask("b@2")
    world.respond(error)
    world.respond(error)
    errors = {} if expected is None else dict.fromkeys((A, B), expected)
    assert world.results == {"a@2": errors, "b@2": errors}


def test_a_producer_waits_once_for_each_batch(world: World) -> None:
    world.ask("in-flight@2")
    world.ask("x@2", epoch=3, as_="first")
    world.ask("x@2", epoch=3, as_="again")
    assert world.results == {"first": dict.fromkeys((A, B), ErrorCode.NETWORK_EXCEPTION)}
    world.ask("x@2", epoch=4, as_="newer")
    assert world.results["again"] == dict.fromkeys((A, B), ErrorCode.INVALID_PRODUCER_EPOCH)
    world.ask("x@2", epoch=2, as_="zombie")
    assert world.results["zombie"] == dict.fromkeys((A, B), ErrorCode.INVALID_PRODUCER_EPOCH)
    world.respond(ErrorCode.NETWORK_EXCEPTION)
    assert [each.producer_epoch for each in world.sent[0][1]] == [4]
    world.respond({"x@2": {}})
    assert world.results["newer"] == {}
