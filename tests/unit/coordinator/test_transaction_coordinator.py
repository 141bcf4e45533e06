"""The transaction coordinator in a world without a loop: time moves when told, log and partitions answer as told."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from itertools import pairwise
from types import SimpleNamespace

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import GROUP_METADATA_TOPIC, partition_for_id
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.coordinator.marker_writer import RETRY_MAX_MS, RETRY_MS, MarkerWriter
from kafkalite.coordinator.transaction.transaction import COMPLETION_RETRY_MS
from kafkalite.coordinator.transaction_coordinator import ProducerIdManager, TransactionCoordinator
from kafkalite.coordinator.transaction_store import TransactionLoader
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock

ME, OTHER = 1, 2
PARTITIONS = 3  # of __transaction_state
GROUP_PARTITIONS = 7
TIMEOUT_MS = 60_000
A, B = ("orders", 0), ("orders", 1)
OK = ErrorCode.NONE
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
CONFIG = BrokerConfig.load({"transaction.state.log.num.partitions": str(PARTITIONS)})


class Call:
    def __init__(self):
        self.result = None

    def answer(self, result):
        assert self.result is None, "answered twice"
        self.result = result


class Partitions:
    """The partitions that are led here: markers in the order in which they were appended."""

    def __init__(self):
        self.markers = []  # (partition, producer id, epoch, coordinator epoch, commit)
        self.errors = {}  # partition -> what it answers
        self.open = set()  # partitions with an open transaction of anybody

    def append(self, partition, marker, done):
        error = self.errors.get(partition, OK)
        if not error:
            self.markers.append((partition, *marker[:4]))
        done(error)

    def has_open_transaction(self, partition, producer_id):
        return partition in self.open


class World:
    def __init__(self):
        self.clock = ManualClock()
        self.log = defaultdict(list)  # partition -> [(key, value)]
        self.refuses = OK
        self.partitions = Partitions()
        self.leaders = defaultdict(lambda: ME)
        self.sent = []  # (broker, marker, partitions, done)
        self.epochs = dict.fromkeys(range(PARTITIONS), 4)
        self.blocks = [range(1000, 1010)]
        self.start()

    def start(self):
        self.writer = MarkerWriter(
            ME, lambda *partition: self.leaders[partition], self.partitions, self._send, self.clock
        )
        self.coordinator = TransactionCoordinator(
            lambda: CONFIG,
            self.clock,
            self._append,
            self.writer,
            ProducerIdManager(self._next_block),
            coordinator_epoch=self.epochs.__getitem__,
            group_partition=lambda group_id: partition_for_id(group_id, GROUP_PARTITIONS),
        )
        for partition in range(PARTITIONS):
            self.load(partition)

    def restart(self):
        self.coordinator.close()
        self.start()

    async def _next_block(self):
        if not self.blocks:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no block")
        return self.blocks.pop(0)

    def _send(self, broker, marker, partitions, done):
        self.sent.append(SimpleNamespace(broker=broker, marker=marker, partitions=list(partitions), done=done))

    def _append(self, partition, records, done, *, producer=None, guard=None):
        if not self.refuses:
            self.log[partition] += records
        done(self.refuses)

    @property
    def store(self):
        return self.coordinator.store

    def load(self, partition):
        self.store.add_loading_partition(partition)
        loader = TransactionLoader()
        loader.read([memoryview(build_batch([NewRecord(*each)])) for each in self.log[partition]])
        assert list(loader.finish()) == []
        self.store.load(partition, loader)

    # --- what clients do

    def init(self, name="t", timeout_ms=TIMEOUT_MS, expected=None):
        call = Call()
        self.coordinator.init_producer_id(name, timeout_ms, expected, call)
        if call.result is None:  # a new block of ids comes in a turn of the loop
            asyncio.run(asyncio.sleep(0))
        return call.result

    def ids(self, name="t"):
        transaction, _ = self.store.find(name)
        return transaction.producer_id, transaction.producer_epoch

    def add(self, *partitions, name="t", ids=None):
        call = Call()
        self.coordinator.add_partitions(name, *(ids or self.ids(name)), partitions, call)
        return call.result

    def end(self, *, commit, name="t", ids=None, version=0):
        call = Call()
        self.coordinator.end_transaction(
            name, *(ids or self.ids(name)), call, commit=commit, transaction_version=version
        )
        return call.result

    def commit(self, **more):
        return self.end(commit=True, **more)

    def state(self, name="t"):
        transaction, error = self.coordinator.describe(name)
        return error or transaction.state.value


@pytest.fixture
def world():
    world = World()

    async def first():
        call = Call()
        world.coordinator.init_producer_id("t", TIMEOUT_MS, None, call)
        await idle()
        assert call.result == (OK, 1000, 0)

    asyncio.run(first())
    return world


def test_a_transaction_from_its_first_partition_to_its_last_marker(world):
    assert world.add(A, B) == OK
    assert world.state() == "Ongoing" and list(world.store.open) == ["t"]
    assert world.commit() == (OK, 1000, 0)
    assert world.partitions.markers == [(A, 1000, 0, 4, True), (B, 1000, 0, 4, True)]
    assert world.state() == "CompleteCommit" and not world.store.open
    assert len(world.log[world.store.partition_for("t")]) == 4


def test_ids_live_in_their_own_partitions(world):
    for number in range(8):
        assert world.init(f"t{number}").producer_id == 1001 + number
    assert sum(map(len, world.log.values())) == 9
    assert {partition for partition, rows in world.log.items() if rows} == set(range(PARTITIONS))


def test_add_offsets_adds_the_partition_of_the_group(world):
    call = Call()
    world.coordinator.add_offsets("t", 1000, 0, "g", call)
    assert call.result == OK
    world.commit()
    assert world.partitions.markers == [((GROUP_METADATA_TOPIC, partition_for_id("g", 7)), 1000, 0, 4, True)]


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [
        ("", TIMEOUT_MS, ErrorCode.INVALID_REQUEST),
        ("t", 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ("t", 900_000, OK),
    ],
)
def test_requests_for_a_producer_id_that_are_refused(world, name, timeout_ms, error):
    assert world.init(name, timeout_ms).error == error


@pytest.mark.parametrize(
    ("arrange", "error"),
    [
        (lambda world: world.store.unload(world.store.partition_for("t")), ErrorCode.NOT_COORDINATOR),
        (
            lambda world: world.store.add_loading_partition(world.store.partition_for("t")),
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ),
        (lambda world: world.coordinator.close(), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_an_id_that_is_not_served_here(world, arrange, error):
    ids = world.ids()
    arrange(world)
    assert world.init().error == error
    assert world.add(A, ids=ids) == error
    assert world.commit(ids=ids).error == error
    assert world.coordinator.verify_partitions("t", *ids, [A]) == {A: error}
    assert world.coordinator.describe("t") == (None, error)


def test_an_id_that_nobody_uses(world):
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add(A, name="u", ids=(1, 0)) == mapping
    assert world.commit(name="u", ids=(1, 0)).error == mapping
    assert world.coordinator.verify_partitions("u", 1, 0, [A]) == {A: mapping}
    assert world.coordinator.describe("u") == (None, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert world.coordinator.describe("") == (None, ErrorCode.INVALID_REQUEST)
    assert world.add(A, name="", ids=(1, 0)) == ErrorCode.INVALID_REQUEST


def test_a_producer_id_from_a_block_that_is_still_to_be_reserved(world):
    async def story():
        world.blocks = [range(2000, 2010)]
        for number in range(9):  # the rest of the first block
            assert world.init_now(f"x{number}") is not None
        calls = [Call(), Call()]
        for call in calls:
            world.coordinator.init_producer_id("new", TIMEOUT_MS, None, call)
        assert [call.result for call in calls] == [None, None]
        await idle()
        assert [call.result for call in calls] == [(OK, 2000, 0), (OK, 2000, 1)]  # the second found what the first made
        world.store.unload(world.store.partition_for("new"))

    def init_now(name):
        call = Call()
        world.coordinator.init_producer_id(name, TIMEOUT_MS, None, call)
        return call.result

    world.init_now = init_now
    asyncio.run(story())


def test_no_block_of_producer_ids(world):
    async def story():
        world.blocks = []
        for number in range(9):
            call = Call()
            world.coordinator.init_producer_id(f"x{number}", TIMEOUT_MS, None, call)
        call = Call()
        world.coordinator.init_producer_id("new", TIMEOUT_MS, None, call)
        await idle()
        assert call.result.error == ErrorCode.COORDINATOR_NOT_AVAILABLE

    asyncio.run(story())


@pytest.mark.parametrize(
    ("of_log", "of_client"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_log_that_refuses(world, of_log, of_client):
    world.refuses = of_log
    assert world.init().error == of_client
    assert world.add(A) == of_client
    assert world.state() == "Empty"


# --- markers


def test_markers_for_partitions_of_other_brokers_are_sent(world):
    world.leaders[B] = OTHER
    world.add(A, B)
    assert world.commit().error == OK
    (request,) = world.sent
    assert (request.broker, request.marker[:4], request.partitions) == (OTHER, (1000, 0, 4, True), [B])
    assert world.partitions.markers == [(A, 1000, 0, 4, True)]
    assert world.state() == "PrepareCommit"
    assert set(world.coordinator.describe("t")[0].partitions) == {B}
    request.done({B: OK})
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize("answer", [{}, {B: NOT_LEADER}, {B: ErrorCode.REQUEST_TIMED_OUT}])
def test_a_marker_that_another_broker_did_not_take_goes_to_the_leader_of_that_moment(world, answer):
    world.leaders[B] = OTHER
    world.add(B)
    world.commit()
    world.sent.pop().done(answer)
    world.leaders[B] = ME
    assert world.state() == "PrepareCommit"
    world.clock.advance(RETRY_MS)
    assert world.partitions.markers == [(B, 1000, 0, 4, True)]
    assert world.state() == "CompleteCommit"


def test_a_partition_without_a_leader_is_tried_less_and_less_often(world):
    world.leaders[A] = -1
    tries = []
    world.writer._leader_of = lambda *partition: tries.append(world.clock.monotonic_ms()) or world.leaders[partition]
    world.add(A)
    world.commit()
    world.clock.advance(10 * RETRY_MAX_MS)
    gaps = [after - before for before, after in pairwise(tries)]
    assert gaps[:6] == [50, 100, 200, 400, 800, 1600] and set(gaps[6:]) == {RETRY_MAX_MS}
    world.leaders[A] = ME
    world.clock.advance(RETRY_MAX_MS)
    assert world.state() == "CompleteCommit"


def test_partitions_that_fail_are_tried_together_and_only_those(world):
    world.partitions.errors = {A: NOT_LEADER, B: NOT_LEADER}
    world.add(A, B, ("orders", 2))
    world.commit()
    world.partitions.errors = {A: ErrorCode.KAFKA_STORAGE_ERROR}
    world.clock.advance(RETRY_MS)
    world.partitions.errors = {}
    world.clock.advance(2 * RETRY_MS)
    assert [each[0] for each in world.partitions.markers] == [("orders", 2), B, A]
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize("error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT])
def test_a_partition_that_will_never_take_the_marker_does_not_hold_up_the_transaction(world, error):
    world.partitions.errors = {A: error}
    world.add(A, B)
    world.commit()
    assert world.state() == "CompleteCommit"
    assert world.partitions.markers == [(B, 1000, 0, 4, True)]


def test_a_deleted_partition_needs_no_marker(world):
    world.leaders[A] = None
    world.add(A)
    world.commit()
    assert world.state() == "CompleteCommit" and not world.partitions.markers


def test_a_marker_that_a_later_coordinator_has_written_already(world):
    world.partitions.errors = {A: ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    world.partitions.open = {A}
    world.add(A)
    world.commit()
    assert world.state() == "PrepareCommit"  # it may be another transaction
    world.partitions.open = set()
    world.clock.advance(RETRY_MS)
    assert world.state() == "CompleteCommit"


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, NOT_LEADER, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_a_completion_that_a_full_disk_refuses_is_stored_when_there_is_space(world, error):
    world.leaders[A] = OTHER
    world.add(A)
    world.commit()
    world.refuses = error
    world.sent.pop().done({A: OK})
    world.clock.advance(10 * COMPLETION_RETRY_MS)
    assert world.state() == "PrepareCommit"
    world.refuses = OK
    world.clock.advance(COMPLETION_RETRY_MS)
    assert world.state() == "CompleteCommit"


def test_a_completion_that_was_under_way_at_the_stop_is_not_tried_again(world):
    dones = []
    world.leaders[A] = OTHER
    world.add(A)
    world.commit()
    world.coordinator._performer._append = lambda partition, records, done: dones.append(done)
    world.sent.pop().done({A: OK})
    world.coordinator.close()
    dones.pop()(NOT_LEADER)
    world.clock.advance(10 * COMPLETION_RETRY_MS)
    assert not dones and not world.coordinator._performer.timers


def test_a_marker_that_fails_during_the_load_costs_no_other_id(world, monkeypatch):
    """An id that is not loaded would begin anew, and its zombies would be taken for its producer."""
    for number in range(9):
        name = f"t{number}"
        world.init(name)
        world.leaders["orders", number] = OTHER
        world.add(("orders", number), name=name)
        world.commit(name=name)

    def fails(*_):
        raise RuntimeError("a fault of ours")

    world.coordinator.close()
    monkeypatch.setattr(world, "_send", fails)
    with pytest.raises(RuntimeError):
        world.start()
    assert {f"t{number}" for number in range(9) if world.store.partition_for(f"t{number}") == 0} <= set(
        world.store.by_id
    )


def test_an_id_that_no_record_can_hold_is_refused_and_not_kept(world):
    name = "x" * 32_768
    assert world.init(name).error == ErrorCode.INVALID_REQUEST
    assert world.add(A, name=name, ids=(1, 0)) == ErrorCode.INVALID_REQUEST
    assert world.state(name) == ErrorCode.INVALID_REQUEST
    assert list(world.store.by_id) == ["t"]
    assert world.init(name[1:]).error == OK


def test_a_coordinator_that_is_replaced_writes_no_more_markers(world):
    world.leaders[B] = OTHER
    world.partitions.errors = {A: NOT_LEADER}
    world.add(A, B)
    world.commit()
    partition = world.store.partition_for("t")
    world.store.unload(partition)
    before = list(world.log[partition])
    world.partitions.errors = {}
    world.sent.pop().done({B: OK})
    world.clock.advance(10 * RETRY_MAX_MS)
    assert not world.partitions.markers and world.log[partition] == before
    world.epochs[partition] = 6
    world.load(partition)  # elected again
    assert world.partitions.markers == [(A, 1000, 0, 6, True)]
    world.sent.pop().done({B: OK})
    assert world.state() == "CompleteCommit"


# --- restarts


def test_everything_is_as_before_after_a_restart(world):
    for name, end in (("a", None), ("b", True), ("c", False)):
        world.init(name)
        world.add(A, name=name)
        if end is not None:
            world.end(commit=end, name=name)
    world.restart()
    assert [world.state(name) for name in "tabc"] == ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"]
    assert list(world.store.open) == ["a"]
    assert world.commit(name="a").error == OK


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_was_stored_is_finished_after_a_restart(world, commit):
    world.partitions.errors = {A: NOT_LEADER}
    world.add(A)
    assert world.end(commit=commit).error == OK
    world.partitions.errors = {}
    world.restart()
    assert world.partitions.markers == [(A, 1000, 0, 4, commit)]
    assert world.state() == ("CompleteCommit" if commit else "CompleteAbort")


# --- time


def test_transactions_that_are_open_for_too_long_are_aborted(world):
    world.init("quick", timeout_ms=5_000)
    world.add(A)
    world.add(B, name="quick")
    world.clock.advance(5_001)
    world.coordinator.abort_timed_out()
    assert (world.state(), world.state("quick")) == ("Ongoing", "CompleteAbort")
    assert world.partitions.markers == [(B, 1001, 1, 4, False)]
    world.clock.advance(TIMEOUT_MS)
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.coordinator.abort_timed_out()
    assert world.state() == "Ongoing"
    world.refuses = OK
    world.coordinator.abort_timed_out()
    assert world.state() == "CompleteAbort"
    assert world.ids() == (1000, 1)


def test_a_transaction_of_a_time_to_come_is_aborted_after_its_timeout(world):
    """Its coordinator had another clock. Kafka waits for that time."""
    world.add(A)
    world.restart()
    world.clock.step_wall(-1_800_000)
    world.coordinator.abort_timed_out()
    world.clock.advance(TIMEOUT_MS)
    world.coordinator.abort_timed_out()
    assert world.state() == "Ongoing"
    world.clock.advance(1)
    world.coordinator.abort_timed_out()
    assert world.state() == "CompleteAbort"


def test_open_and_ending_transactions_are_counted(world):
    assert world.coordinator.oldest_open_ms() == 0
    for name in ("t", "u"):
        world.init(name)
        world.add(A, name=name)
        world.clock.advance(100)
    assert world.coordinator.oldest_open_ms() == 200 and set(world.store.open) == {"t", "u"}
    world.leaders[A] = -1
    world.commit()
    assert set(world.store.open) == {"u"} and set(world.store.ending) == {"t"}
    assert world.coordinator.oldest_open_ms() == 100
    world.leaders[A] = ME
    world.clock.advance(RETRY_MS)
    assert not world.store.ending
    world.store.unload(world.store.partition_for("u"))
    assert not world.store.open


def test_unused_ids_are_forgotten(world):
    world.init("open")
    world.init("young")
    world.add(A, name="open")
    world.clock.advance(CONFIG.transactional_id_expiration_ms - 1)
    world.init("young")
    world.clock.advance(1)
    world.refuses = ErrorCode.NOT_ENOUGH_REPLICAS
    world.coordinator.expire()
    world.clock.advance(1)
    assert world.state() == "Empty"  # it could not be stored
    world.refuses = OK
    world.coordinator.expire()
    world.clock.advance(1)
    assert world.state() == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.log[world.store.partition_for("t")][-1][1] is None
    assert (world.state("open"), world.state("young")) == ("Ongoing", "Empty")
    world.restart()
    assert world.state() == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# --- lists


def listed(world, *filters):
    error, unknown, found = world.coordinator.list_transactions(*filters)
    return error, unknown, sorted(each.transactional_id for each in found)


def test_transactions_are_listed_by_state_producer_and_age(world):
    for name in "abc":
        world.init(name)
    world.add(A, name="a")
    world.clock.advance(100)
    world.add(A, name="b")
    world.commit(name="b")
    assert listed(world, (), ()) == (OK, [], ["a", "b", "c", "t"])
    assert listed(world, ("Ongoing", "Nonsense"), ()) == (OK, ["Nonsense"], ["a"])
    assert listed(world, ("Nonsense",), ()) == (OK, ["Nonsense"], [])
    assert listed(world, (), {1001, 1002, 9}) == (OK, [], ["a", "b"])
    assert listed(world, ("Ongoing", "CompleteCommit"), (), 99) == (OK, [], ["a"])
    assert listed(world, ("Ongoing", "CompleteCommit"), (), 100) == (OK, [], [])
    world.store.add_loading_partition(0)
    assert listed(world, (), ()) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], [])
    world.coordinator.close()
    assert listed(world, (), ()) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, [], [])
