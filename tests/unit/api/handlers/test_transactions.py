"""The handlers of transactions: one value per partition for the coordinator, and codes that each version knows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from kafkalite.api.handlers.group_offsets import GroupOffsetApi
from kafkalite.api.handlers.transactions import TransactionApi
from kafkalite.api.request.request_context import RequestContext
from kafkalite.common.errors import ErrorCode, StorageError
from kafkalite.protocol.messages.group_offsets import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
from kafkalite.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkalite.server.broker import Broker
from tests.support.manual_clock import ManualClock
from tests.unit.api.conftest import Asker

FENCED, EPOCH = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
UNKNOWN, NOT_TRIED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED


class Identity(NamedTuple):
    error: ErrorCode
    producer_id: int = -1
    producer_epoch: int = -1


class Coordinator:
    """Remembers its calls. Waiters get `outcome` when `answer_all` is called, or at once."""

    def __init__(self, outcome: Any = ErrorCode.NONE, *, late: bool = False) -> None:
        self.calls: list[Any] = []
        self.outcome = outcome
        self.late = late
        self.waiters: list[Any] = []

    def _wait(self, waiter: Any) -> None:
        if self.late:
            self.waiters.append(waiter)
        else:
            waiter.answer(self.outcome)

    def answer_all(self) -> None:
        for waiter in reversed(self.waiters):
            waiter.answer(self.outcome)

    def add_partitions(self, name: str, pid: int, epoch: int, partitions: Collection[Any], waiter: Any) -> None:
        self.calls.append(("add", name, pid, epoch, list(partitions)))
        self._wait(waiter)

    def verify_partitions(self, name: str, pid: int, epoch: int, partitions: Collection[Any]) -> dict[Any, ErrorCode]:
        self.calls.append(("verify", name, pid, epoch, list(partitions)))
        return {each: ErrorCode.TRANSACTION_ABORTABLE if each[1] else ErrorCode.NONE for each in partitions}

    def add_offsets(self, name: str, pid: int, epoch: int, group_id: str, waiter: Any) -> None:
        self.calls.append(("offsets", name, pid, epoch, group_id))
        self._wait(waiter)

    def end_transaction(
        self, name: str, pid: int, epoch: int, waiter: Any, *, commit: bool, transaction_version: int
    ) -> None:
        self.calls.append(("end", name, pid, epoch, commit, transaction_version))
        self._wait(waiter)


def exists(topic: str, index: int) -> bool:
    return topic in ("t", "u", "__consumer_offsets") and index < 3


def api(coordinator: Coordinator | None = None, markers: Any = None) -> TransactionApi:
    runtime: Any = SimpleNamespace(loop=SimpleNamespace(create_future=Future))
    replicas: Any = SimpleNamespace(exists=exists)
    return TransactionApi(runtime, replicas, coordinator, None, markers, None)  # type: ignore[arg-type]


def offsets_api() -> Any:
    runtime: Any = SimpleNamespace(loop=SimpleNamespace(create_future=Future))
    replicas: Any = SimpleNamespace(exists=exists)
    return GroupOffsetApi(runtime, None, replicas, None, None, None)  # type: ignore[arg-type]


def ask(handler: Callable[..., Any], request: Any, version: int, coordinator: Coordinator) -> Any:
    return handler(api(coordinator), request, RequestContext(None, version, "c"))  # type: ignore[arg-type]


def topics(**partitions: list[int]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in partitions.items()]


def of_client(**partitions: list[int]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=3,
        v3_and_below_topics=topics(**partitions),
    )


def codes(topic_results: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, one.partition_index): one.partition_error_code
        for topic in topic_results
        for one in topic.results_by_partition
    }


def test_a_client_adds_the_partitions_of_one_transaction() -> None:
    coordinator = Coordinator()
    response = ask(TransactionApi.add_partitions_to_txn, of_client(t=[1, 0, 1], u=[2]), 3, coordinator)
    assert coordinator.calls == [("add", "x", 7, 3, [("t", 1), ("t", 0), ("u", 2)])]
    assert codes(response.results_by_topic_v3_and_below) == {("t", 1): 0, ("t", 0): 0, ("u", 2): 0}
    assert not response.results_by_transaction


def test_the_results_are_listed_as_the_partitions_of_the_request() -> None:
    """Also a partition that is named twice, and a topic without partitions."""
    response = ask(TransactionApi.add_partitions_to_txn, of_client(t=[1, 0, 1], u=[]), 3, Coordinator())
    listed = [
        (each.name, [one.partition_index for one in each.results_by_partition])
        for each in response.results_by_topic_v3_and_below
    ]
    assert listed == [("t", [1, 0, 1]), ("u", [])]


def test_offsets_of_a_topic_without_partitions_are_not_answered() -> None:
    request = TxnOffsetCommitRequest(group_id="g", topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[])])
    assert offsets_api().txn_offset_commit(request, RequestContext(None, 4, "c")).topics == []  # type: ignore[arg-type]


def test_nothing_is_added_if_a_partition_does_not_exist_or_is_internal() -> None:
    coordinator = Coordinator()
    response = ask(TransactionApi.add_partitions_to_txn, of_client(t=[0, 3], __consumer_offsets=[0]), 3, coordinator)
    assert coordinator.calls == []
    assert codes(response.results_by_topic_v3_and_below) == {
        ("t", 0): NOT_TRIED,
        ("t", 3): UNKNOWN,
        ("__consumer_offsets", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def test_brokers_add_and_verify_for_several_transactions() -> None:
    """Also partitions of internal topics, of transactional offset commits."""

    def transaction(name: str, *, verify: bool = False, **partitions: list[int]) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=7, producer_epoch=3, verify_only=verify, topics=topics(**partitions)
        )

    coordinator = Coordinator(late=True)
    transactions = [
        transaction("a", t=[0, 1], verify=True),
        transaction("b", __consumer_offsets=[1]),
        transaction("c", t=[9, 0]),
        transaction("d", u=[0]),
    ]
    waiting = ask(
        TransactionApi.add_partitions_to_txn, AddPartitionsToTxnRequest(transactions=transactions), 4, coordinator
    )
    assert not waiting.done()
    coordinator.answer_all()
    response = waiting.result()
    assert [(each.transactional_id, codes(each.topic_results)) for each in response.results_by_transaction] == [
        ("a", {("t", 0): 0, ("t", 1): ErrorCode.TRANSACTION_ABORTABLE}),
        ("b", {("__consumer_offsets", 1): 0}),
        ("c", {("t", 9): UNKNOWN, ("t", 0): NOT_TRIED}),
        ("d", {("u", 0): 0}),
    ]
    assert [call[:2] for call in coordinator.calls] == [("verify", "a"), ("add", "b"), ("add", "d")]
    assert not response.error_code
    assert (
        ask(TransactionApi.add_partitions_to_txn, AddPartitionsToTxnRequest(), 5, coordinator).results_by_transaction
        == []
    )


@pytest.mark.parametrize(("version", "expected"), [(0, EPOCH), (1, EPOCH), (2, FENCED), (3, FENCED)])
def test_old_versions_do_not_know_the_code_of_a_fenced_producer(version: int, expected: ErrorCode) -> None:
    added = ask(TransactionApi.add_partitions_to_txn, of_client(t=[0]), version, Coordinator(FENCED))
    assert codes(added.results_by_topic_v3_and_below) == {("t", 0): expected}
    offsets = AddOffsetsToTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, group_id="g")
    coordinator = Coordinator(FENCED)
    assert ask(TransactionApi.add_offsets_to_txn, offsets, version, coordinator).error_code == expected
    assert coordinator.calls == [("offsets", "x", 7, 3, "g")]
    end = EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3)
    assert ask(TransactionApi.end_txn, end, version, Coordinator(Identity(FENCED))).error_code == expected


def test_the_version_of_end_txn_says_whether_the_epoch_is_bumped() -> None:
    request = EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, committed=True)
    coordinator = Coordinator(Identity(ErrorCode.NONE, 7, 4))
    assert ask(TransactionApi.end_txn, request, 4, coordinator).error_code == 0
    request.committed = False
    response = ask(TransactionApi.end_txn, request, 5, coordinator)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, 7, 4)
    assert coordinator.calls == [("end", "x", 7, 3, True, 0), ("end", "x", 7, 3, False, 2)]


def test_markers_are_answered_when_all_of_them_are_committed() -> None:
    waiting: list[Callable[[ErrorCode], None]] = []
    appended: list[Any] = []

    def append_marker(*call: Any) -> None:
        appended.append(call[:-1])
        if call[0] == ("u", 5):
            call[-1](UNKNOWN)
        else:
            waiting.append(call[-1])

    def marker(pid: int, commit: bool, **partitions: list[int]) -> WritableTxnMarker:
        return WritableTxnMarker(
            producer_id=pid,
            producer_epoch=3,
            transaction_result=commit,
            coordinator_epoch=9,
            topics=[WritableTxnMarkerTopic(name=n, partition_indexes=indexes) for n, indexes in partitions.items()],
            transaction_version=2 * (pid == 2),
        )

    markers = [marker(1, True, t=[0, 1], u=[5]), marker(2, False, t=[0]), marker(3, True), marker(1, True, u=[0])]
    response: Any = api(markers=SimpleNamespace(append=append_marker)).write_txn_markers(
        WriteTxnMarkersRequest(markers=markers),
        RequestContext(None, 1, None),  # type: ignore[arg-type]
    )
    assert appended == [
        (("t", 0), (1, 3, 9, True, 0)),
        (("t", 1), (1, 3, 9, True, 0)),
        (("u", 5), (1, 3, 9, True, 0)),
        (("t", 0), (2, 3, 9, False, 2)),
        (("u", 0), (1, 3, 9, True, 0)),
    ]
    for done in waiting:
        assert not response.done()
        done(ErrorCode.NONE)
    results = {
        each.producer_id: {
            (topic.name, one.partition_index): one.error_code for topic in each.topics for one in topic.partitions
        }
        for each in response.result().markers
    }
    assert results == {1: {("t", 0): 0, ("t", 1): 0, ("u", 5): UNKNOWN, ("u", 0): 0}, 2: {("t", 0): 0}}


def test_a_full_disk_is_complained_of_once_in_a_while(
    tell: Callable[..., None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    clock.advance(1000)

    async def story(asker: Asker, broker: Broker) -> None:
        running: Any = broker._running
        why = "cannot write registry: No space left on device"

        async def full() -> range:
            raise StorageError(why)

        async def asked(count: int) -> list[str]:
            caplog.clear()
            for _ in range(count):
                answer = await asker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
                assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]

        monkeypatch.setattr(running.coordinators.producer_ids, "_reserve", full, raising=True)
        assert await asked(20) == [f"producer ids: none can be given: {why}"]
        assert await asked(5) == []
        clock.advance(60_000)
        assert await asked(5) == [f"producer ids: none can be given: {why} (24 more times before)"]
        why = "cannot write registry: Input/output error"
        assert await asked(2) == [f"producer ids: none can be given: {why}"], "another cause"

    tell(story, clock=clock)
