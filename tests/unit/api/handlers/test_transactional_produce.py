"""Which batches of a Produce request wait for the coordinator of their transaction, and what its answer means."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalite.api.handlers.produce import ProduceApi
from kafkalite.api.request.admission import (
    ProduceAdmission,
    ProducersBatch,
    VerifiedAdmission,
    transactional_batch,
)
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.log.state.transaction_verification import VerificationGuard
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch

NEWEST = 12


class Partition:
    """A partition in which the producers in `open_for` have an open transaction. Remembers the guards of appends."""

    def __init__(self, index: int, open_for: tuple[int, ...] = ()) -> None:
        self.index = index
        self.appended: list[VerificationGuard | None] = []
        self.guard = VerificationGuard()
        self.open_for = open_for

    @property
    def producers(self) -> Partition:
        return self

    def begin_verification(
        self, producer_id: int, epoch: int, first_sequence: int, *, own_epochs: bool
    ) -> VerificationGuard | None:
        return None if producer_id in self.open_for else self.guard

    def append(self, records: Any, now_ms: int, version: int, *, transactional: bool = False, guard: Any = None) -> str:
        assert transactional
        self.appended.append(guard)
        return "appended"


class World:
    """Topic t with partitions 0 to 2; the coordinator's answers are called back, at once unless `late`."""

    def __init__(self, *, enabled: bool = True) -> None:
        self.partitions = {index: Partition(index) for index in range(3)}
        config = SimpleNamespace(min_insync_replicas=1)
        topic = SimpleNamespace(
            name="t", partitions=self.partitions, internal=False, config=config, states={}, admission=None
        )
        self.asked: list[Any] = []
        self.answer: dict[Any, ErrorCode] | None = {}
        self.call_back: Callable[[Any], None] = lambda _: None
        self.renew: Callable[[], bool] = lambda: False
        self.is_enabled = lambda: enabled
        parts: dict[str, Any] = {
            "runtime": SimpleNamespace(loop=SimpleNamespace(create_future=Future)),
            "replica_manager": SimpleNamespace(require=self.require),
            "admission": ProduceAdmission(SimpleNamespace(by_name={"t": topic})),  # type: ignore[arg-type]
            "add_partitions": self,
        }
        self.api = ProduceApi(metadata=None, brokers=None, elections=None, **parts)  # type: ignore[arg-type]

    def require(self, topic: str, index: int) -> Partition:
        if index not in self.partitions:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.partitions[index]

    def verify_or_add(
        self, name: str, pid: int, epoch: int, partitions: Any, adds: bool, on_result: Any, renew: Any
    ) -> None:
        self.asked.append((name, pid, epoch, partitions, adds))
        self.call_back, self.renew = on_result, renew
        if self.answer is not None:
            on_result(self.answer)

    def verify(self, *batches: Any, version: int = NEWEST) -> Any:
        """The outcome of a request with these batches, for the partitions from 0 on."""
        data = [
            PartitionProduceData(index=i, records=None if one is None else memoryview(one))
            for i, one in enumerate(batches)
        ]
        request = ProduceRequest(transactional_id="x", topic_data=[TopicProduceData(name="t", partition_data=data)])
        return self.api.verify(request, "x", version)

    def append(self, verified: VerifiedAdmission, index: int, version: int = NEWEST) -> Any:
        """The outcome of a batch: "appended", or the error's code and message."""
        admitted = verified.topic("t", -1, "c", version)
        assert admitted is not None
        try:
            return admitted.append(self.partitions[index], memoryview(batch()), 0, version)  # type: ignore[arg-type]
        except KafkaError as error:
            return error.code, error.message


def batch(producer_id: int = 7, epoch: int = 3, sequence: int = 0, *, transactional: bool = True) -> bytearray:
    return build_batch(
        [NewRecord(None, b"v", timestamp=1)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def test_a_batch_within_an_open_transaction_asks_nobody() -> None:
    world = World()
    world.partitions[0].open_for = (7,)
    assert world.append(world.verify(batch(sequence=5)), 0) == "appended"
    assert world.asked == [] and world.partitions[0].appended == [None]


@pytest.mark.parametrize(("version", "adds"), [(3, False), (11, False), (12, True)])
def test_the_first_batch_of_a_transaction_is_verified_or_its_partition_added(version: int, adds: bool) -> None:
    world = World()
    world.partitions[1].open_for = (7,)
    verified = world.verify(batch(), batch(), batch(), version=version)
    assert world.asked == [("x", 7, 3, [("t", 0), ("t", 2)], adds)]
    for index in range(3):
        assert world.append(verified, index, version) == "appended"
    assert [world.partitions[i].appended for i in range(3)] == [
        [world.partitions[0].guard],
        [None],
        [world.partitions[2].guard],
    ]


def test_records_without_a_transaction_are_not_verified() -> None:
    world = World()
    no_batch, two_batches = b"nonsense", batch() + batch()
    world.verify(batch(transactional=False), None, no_batch, two_batches, batch(producer_id=-1))
    assert world.asked == []
    assert transactional_batch(memoryview(batch(9, 2, 5))) == ProducersBatch(9, 2, 5, True)
    assert transactional_batch(memoryview(two_batches)) is None


def test_verification_can_be_switched_off_and_adding_cannot() -> None:
    world = World(enabled=False)
    assert world.append(world.verify(batch(), version=11), 0, 11) == "appended"
    assert world.asked == []
    world.verify(batch(), version=12)
    assert len(world.asked) == 1


def test_batches_of_several_producers_are_refused_together() -> None:
    for other in (batch(8), batch(7, 4)):
        with pytest.raises(KafkaError, match="more than one producer ID") as refused:
            World().verify(batch(), other)
        assert refused.value.code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_refused_partition_does_not_keep_the_others_from_being_appended() -> None:
    world = World()
    world.answer = {("t", 1): ErrorCode.INVALID_PRODUCER_EPOCH}
    verified = world.verify(batch(), batch(), batch(), batch())
    assert world.asked[0][3] == [("t", 0), ("t", 1), ("t", 2)], "t-3 is not led here"
    assert [world.append(verified, index) for index in range(3)] == [
        "appended",
        (ErrorCode.INVALID_PRODUCER_EPOCH, None),
        "appended",
    ]


def test_a_late_answer_is_awaited() -> None:
    world = World()
    world.answer = None
    waiting = world.verify(batch())
    assert not waiting.done()
    world.call_back({("t", 0): ErrorCode.TRANSACTION_ABORTABLE})
    assert world.append(waiting.result(), 0) == (ErrorCode.TRANSACTION_ABORTABLE, None)


def test_a_marker_while_the_coordinator_is_busy_does_not_cost_the_batch_its_verification() -> None:
    """The marker of the last transaction ends the verification that was begun before it."""
    world = World()
    world.answer = None
    waiting = world.verify(batch())
    partition = world.partitions[0]
    assert not world.renew()
    partition.guard = begun_anew = VerificationGuard()
    assert world.renew()
    assert not world.renew()
    world.call_back({})
    assert world.append(waiting.result(), 0) == "appended"
    assert partition.appended == [begun_anew]


NOT_ADDED = "Partition was not added to the transaction"
UNVERIFIED = "Unable to verify the partition has been added to the transaction. Underlying error: "


@pytest.mark.parametrize(
    ("error", "old", "abortable", "newest"),
    [
        ("TRANSACTION_ABORTABLE", ("INVALID_TXN_STATE", NOT_ADDED), ("TRANSACTION_ABORTABLE", None), None),
        ("INVALID_TXN_STATE", ("INVALID_TXN_STATE", NOT_ADDED), None, None),
        ("CONCURRENT_TRANSACTIONS", ("NOT_ENOUGH_REPLICAS", UNVERIFIED), None, ("CONCURRENT_TRANSACTIONS", None)),
        ("NETWORK_EXCEPTION", ("NOT_ENOUGH_REPLICAS", UNVERIFIED), None, None),
        ("COORDINATOR_LOAD_IN_PROGRESS", ("NOT_ENOUGH_REPLICAS", UNVERIFIED), None, None),
        ("COORDINATOR_NOT_AVAILABLE", ("NOT_ENOUGH_REPLICAS", UNVERIFIED), None, None),
        ("NOT_COORDINATOR", ("NOT_ENOUGH_REPLICAS", UNVERIFIED), None, None),
        ("INVALID_PRODUCER_ID_MAPPING", ("INVALID_PRODUCER_ID_MAPPING", None), None, None),
    ],
)
def test_each_version_gets_an_error_that_it_understands(error: str, old: Any, abortable: Any, newest: Any) -> None:
    """Versions 10, 11 and 12; None: as the version before."""
    abortable = abortable or old
    for version, (name, message) in ((10, old), (11, abortable), (12, newest or abortable)):
        world = World()
        world.answer = {("t", 0): ErrorCode[error]}
        code, told = world.append(world.verify(batch(), version=version), 0, version)
        assert (code.name, told) == (name, message + error if message == UNVERIFIED else message)
