"""The contract of ClusterMetadata, for both: the journal of a single broker, and ZooKeeper with a controller."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import random_uuid
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import (
    CLUSTER_DEFAULT,
    NO_REGISTRATION,
    Change,
    ClusterMetadata,
    PartitionRecord,
    RegistrationState,
    TopicRecord,
)
from kafkalite.metadata.partition_state import WriteIsr, WriteOutcome
from kafkalite.metadata.standalone_metadata import StandaloneMetadata
from tests.support.wait import DEADLINE_S
from tests.support.zk.members import Member

ME = 0
ENDPOINTS = (ListenerConfig("PLAINTEXT", "here", 9092), ListenerConfig("INSIDE", "10.0.0.1", 9093))


def state(epoch: int = 0) -> PartitionRecord:
    return PartitionRecord(replicas=(ME,), leader=ME, leader_epoch=epoch, isr=(ME,), partition_epoch=0)


def topic(name: str, count: int = 1, **config: str) -> TopicRecord:
    return TopicRecord(name, random_uuid(), {i: state() for i in range(count)}, config)


class Kept:
    """Cluster metadata that can be reopened on its stored data; registered while entered."""

    def __init__(self, make: Callable[[], tuple[ClusterMetadata, Member | None]]) -> None:
        self._make = make

    @asynccontextmanager
    async def open(self):
        metadata, member = self._make()
        await metadata.start()
        try:
            await metadata.register(ENDPOINTS, "rack-1")
            if member is not None:
                member.controller.start()
            yield metadata
        finally:
            if member is not None:
                await member.controller.stop()
            await metadata.unregister()
            await metadata.stop()


@pytest.fixture(params=["embedded", "zookeeper"])
def kept(request: pytest.FixtureRequest, tmp_path, chroot) -> Kept:
    if request.param == "embedded":
        return Kept(lambda: (StandaloneMetadata(tmp_path, broker_id=ME), None))
    server = request.getfixturevalue("zookeeper")

    def make() -> tuple[ClusterMetadata, Member]:
        member = Member(server.connect + chroot, tmp_path, ME)
        return member.metadata, member

    return Kept(make)


def memory_of(metadata: ClusterMetadata) -> tuple[object, ...]:
    """All but the epochs that count elections."""
    topics = {
        name: one._replace(partitions={n: (p.replicas, p.leader, p.isr) for n, p in one.partitions.items()})
        for name, one in metadata.topics.items()
    }
    return topics, {broker: dict(config) for broker, config in metadata.broker_configs.items()}


def test_everything_is_there_after_a_restart(kept):
    async def story():
        async with kept.open() as metadata:
            cluster_id = metadata.cluster_id
            assert len(cluster_id) == 22
            orders = topic("orders", 2, **{"cleanup.policy": "compact"})
            await metadata.writes.create_topic(orders)
            await metadata.writes.create_topic(topic("short-lived"))
            await metadata.writes.add_partitions("orders", {2: state(), 3: state()})
            await metadata.writes.set_topic_config("orders", {"retention.ms": "5", "ünï": "cöde\n"})
            await metadata.writes.set_leader_epoch("orders", 1, 4)
            await metadata.writes.set_broker_config("0", {"compression.type": "zstd"})
            await metadata.writes.set_broker_config(CLUSTER_DEFAULT, {"a": "b"})
            await metadata.writes.set_broker_config(CLUSTER_DEFAULT, {})
            await metadata.writes.delete_topic("short-lived")
            assert await metadata.writes.next_producer_id_block() == range(1000)
            before = memory_of(metadata)
            assert metadata.topics["orders"].partitions[1].leader_epoch == 4
        async with kept.open() as metadata:
            assert metadata.cluster_id == cluster_id
            await asyncio.wait_for(leads(metadata, "orders"), DEADLINE_S)
            assert memory_of(metadata) == before
            found = metadata.topics["orders"]
            assert found.topic_id == orders.topic_id and list(metadata.topics) == ["orders"]
            assert list(found.partitions) == [0, 1, 2, 3] and found.config == {"retention.ms": "5", "ünï": "cöde\n"}
            assert found.partitions[1].leader_epoch >= 4, "they never go back"
            assert metadata.broker_configs == {"0": {"compression.type": "zstd"}}
            assert await metadata.writes.next_producer_id_block() == range(1000, 2000), "no id is given twice"

    asyncio.run(story())


async def leads(metadata: ClusterMetadata, name: str) -> None:
    news = asyncio.Event()
    stop_listening = metadata.listen(lambda change, name: news.set())
    while any(partition.leader != ME for partition in metadata.topics[name].partitions.values()):
        news.clear()
        await news.wait()
    stop_listening()


def test_what_cannot_be_is_refused_with_kafkas_code_and_leaves_no_trace(kept):
    async def story():
        async with kept.open() as metadata:
            await metadata.writes.create_topic(topic("t", 2))
            before = memory_of(metadata)
            refused = [
                (metadata.writes.create_topic(topic("t")), ErrorCode.TOPIC_ALREADY_EXISTS),
                (metadata.writes.delete_topic("u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (metadata.writes.set_topic_config("u", {}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (metadata.writes.add_partitions("u", {0: state()}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (metadata.writes.add_partitions("t", {3: state()}), ErrorCode.INVALID_PARTITIONS),
                (metadata.writes.add_partitions("t", {1: state(), 2: state()}), ErrorCode.INVALID_PARTITIONS),
                (metadata.writes.add_partitions("t", {}), ErrorCode.INVALID_PARTITIONS),
                (metadata.writes.set_leader_epoch("t", 2, 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (metadata.writes.set_leader_epoch("t", 0, 0), ErrorCode.FENCED_LEADER_EPOCH),
                (metadata.writes.set_leader_epoch("u", 0, 9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            for write, code in refused:
                with pytest.raises(KafkaError) as caught:
                    await write
                assert caught.value.code is code
            assert memory_of(metadata) == before
        with pytest.raises(KafkaError):
            await metadata.writes.create_topic(topic("late"))
        assert "t" in metadata.topics, "reads go on"

    asyncio.run(story())


def test_epochs_of_many_partitions_are_raised_together(kept):
    async def story():
        async with kept.open() as metadata:
            await metadata.writes.create_topic(topic("t", 4))
            await metadata.writes.create_topic(topic("u"))
            first = metadata.topics["t"].partitions[0].leader_epoch
            await metadata.writes.set_leader_epoch("t", 3, first + 9)
            wanted = {("t", 0): first + 2, ("t", 2): first + 3, ("t", 3): first + 4, ("u", 0): first + 5}
            await metadata.writes.set_leader_epochs({**wanted, ("t", 7): 1, ("gone", 0): 1})
            found = [metadata.topics["t"].partitions[index].leader_epoch - first for index in range(4)]
            assert found == [2, 0, 3, 9], "an epoch never goes back"
            assert metadata.topics["u"].partitions[0].leader_epoch == first + 5

    asyncio.run(story())


def test_when_a_write_returns_it_is_in_memory_and_was_told(kept):
    async def story():
        async with kept.open() as metadata:
            told: list[tuple[Change, str, bool]] = []
            stop_listening = metadata.listen(lambda change, name: told.append((change, name, name in metadata.topics)))

            def told_of(change: Change, name: str, is_there: bool = True) -> bool:
                found = (change, name, is_there) in told
                told.clear()
                return found

            await metadata.writes.create_topic(topic("t", 2))
            assert metadata.topics["t"].partitions[1].leader == ME and told_of(Change.TOPIC_CREATED, "t")
            await metadata.writes.add_partitions("t", {2: state()})
            assert metadata.topics["t"].partitions[2].leader == ME and told_of(Change.PARTITIONS_ADDED, "t")
            await metadata.writes.set_topic_config("t", {"a": "b"})
            assert metadata.topics["t"].config == {"a": "b"} and told_of(Change.TOPIC_CONFIG, "t")
            epoch = metadata.topics["t"].partitions[2].leader_epoch + 3
            before = metadata.topics["t"].partitions[2].partition_epoch
            await metadata.writes.set_leader_epoch("t", 2, epoch)
            assert metadata.topics["t"].partitions[2].leader_epoch == epoch and told_of(Change.PARTITION_STATE, "t")
            assert metadata.topics["t"].partitions[2].partition_epoch > before
            await metadata.writes.set_broker_config("7", {"a": "b"})
            assert metadata.broker_configs["7"] == {"a": "b"} and told_of(Change.BROKER_CONFIG, "7", False)
            await metadata.writes.delete_topic("t")
            assert "t" not in metadata.topics and told_of(Change.TOPIC_DELETED, "t", False)
            stop_listening()
            await metadata.writes.create_topic(topic("t"))
            assert not told, "one of that name may be made again, and nobody listens any more"

    asyncio.run(story())


def test_writers_at_once_take_turns(kept):
    async def story():
        async with kept.open() as metadata:
            results = await asyncio.gather(
                *(metadata.writes.create_topic(topic("same")) for _ in range(5)),
                *(metadata.writes.next_producer_id_block() for _ in range(5)),
                return_exceptions=True,
            )
            refusals = [result.code for result in results if isinstance(result, KafkaError)]
            assert refusals == [ErrorCode.TOPIC_ALREADY_EXISTS] * 4
            assert sorted(r.start for r in results if isinstance(r, range)) == [0, 1000, 2000, 3000, 4000]
            await asyncio.gather(*(metadata.writes.set_topic_config("same", {"k": str(i)}) for i in range(10)))
            added = await asyncio.gather(
                *(metadata.writes.add_partitions("same", {1: state()}) for _ in range(3)), return_exceptions=True
            )
            assert sorted(map(type, added), key=str) == sorted([type(None), KafkaError, KafkaError], key=str)
            assert len(metadata.topics["same"].partitions) == 2

    asyncio.run(story())


def test_producer_ids_are_skipped_and_never_go_back(kept):
    async def story():
        async with kept.open() as metadata:
            assert await metadata.writes.next_producer_id_block() == range(1000)
            await metadata.writes.skip_producer_ids(12_345)
            assert (await metadata.writes.next_producer_id_block()).start == 12_346
            await metadata.writes.skip_producer_ids(5)
            await metadata.writes.skip_producer_ids(1 << 63)  # nobody has counted that far
            assert await metadata.writes.next_producer_id_block() == range(13_346, 14_346)

    asyncio.run(story())


def test_the_in_sync_replicas_of_a_partition_are_those_of_its_leader_only(kept):
    """A broker by itself has no others, and is never asked."""

    async def story():
        async with kept.open() as metadata:
            await metadata.writes.create_topic(topic("t"))
            state = metadata.topics["t"].partitions[0]
            assert (state.isr, state.elr, state.adding, state.removing) == ((ME,), (), (), ())
            same = WriteIsr(frozenset(state.isr), frozenset(), state.partition_epoch, {})
            if metadata.is_shared:
                assert await metadata.isr_writes.read_isr("t", 0) == state.isr_state
                assert await metadata.isr_writes.write_isr("t", 0, same) is WriteOutcome.WRITTEN
                assert await metadata.isr_writes.write_isr("t", 0, same) is WriteOutcome.BAD_VERSION
                assert metadata.topics["t"].partitions[0].partition_epoch == state.partition_epoch + 1
                assert metadata.registration == metadata.brokers[ME].registration > 0
            else:
                assert metadata.registration == metadata.brokers[ME].registration == NO_REGISTRATION
            await metadata.begin_to_stop()
            assert metadata.brokers[ME].stopping is metadata.is_shared
            assert metadata.registration_state is RegistrationState.MEMBER

    asyncio.run(story())


def test_a_broker_is_a_member_from_register_to_unregister(kept):
    async def story():
        async with kept.open() as metadata:
            assert metadata.registration_state is RegistrationState.MEMBER
            (broker,) = metadata.brokers.values()
            assert (broker.broker_id, broker.endpoints, broker.rack) == (ME, ENDPOINTS, "rack-1")
            await metadata.writes.create_topic(topic("t"))  # so there is one who sees to it
            assert metadata.controller_id == ME
            await metadata.register(ENDPOINTS[:1], "rack-1")
            assert (
                metadata.brokers[ME].endpoints == ENDPOINTS[:1]
                and metadata.registration_state is RegistrationState.MEMBER
            )
            told = []
            metadata.listen(lambda change, name: told.append(change))
            await metadata.unregister()
            assert metadata.registration_state is RegistrationState.UNREGISTERED and not metadata.brokers
            assert Change.REGISTRATION in told and Change.BROKERS in told
            await metadata.unregister()

    asyncio.run(story())


NAMES = st.sampled_from(["a", "b"])
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.integers(1, 3)),
        st.tuples(st.just("delete"), NAMES, st.none()),
        st.tuples(st.just("grow"), NAMES, st.integers(1, 2)),
        st.tuples(st.just("configure"), NAMES, st.text(max_size=5)),
        st.tuples(st.just("elect"), NAMES, st.integers(0, 3)),
        st.tuples(st.just("broker"), NAMES, st.text(max_size=5)),
    ),
    max_size=12,
)


async def perform(metadata: ClusterMetadata, operation: tuple[str, str, object]) -> ErrorCode | None:
    kind, name, value = operation
    try:
        if kind == "create":
            identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}{value}")
            await metadata.writes.create_topic(topic(name, value, k=name)._replace(topic_id=identity))
        elif kind == "delete":
            await metadata.writes.delete_topic(name)
        elif kind == "grow":
            first = len(metadata.topics[name].partitions) if name in metadata.topics else 0
            await metadata.writes.add_partitions(name, {first + i: state() for i in range(value)})
        elif kind == "configure":
            await metadata.writes.set_topic_config(name, {"k": value})
        elif kind == "elect":
            await metadata.writes.set_leader_epoch(name, 0, value)
        else:
            await metadata.writes.set_broker_config(name, {"k": value} if value else {})
    except KafkaError as refusal:
        return refusal.code
    return None


def test_both_answer_the_same_and_remember_the_same(zookeeper, tmp_path):
    @settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(operations=OPERATIONS)
    def histories(operations):
        async def history():
            place = tmp_path / str(uuid.uuid4())
            member = Member(f"{zookeeper.connect}/history-{place.name}", place / "zookeeper", ME)
            one, other = StandaloneMetadata(place, broker_id=ME), member.metadata
            for metadata in (one, other):
                await metadata.start()
                await metadata.register(ENDPOINTS, None)
            member.controller.start()
            try:
                for operation in operations:
                    assert await perform(one, operation) == await perform(other, operation)
                assert one.topics.keys() == other.topics.keys()
                for name, record in one.topics.items():
                    assert other.topics[name].config == record.config and other.topics[name].topic_id == record.topic_id
                    for number, partition in record.partitions.items():
                        assert other.topics[name].partitions[number][:4] == partition[:4]
                assert one.broker_configs == other.broker_configs
            finally:
                await member.stop()
                await one.stop()

        asyncio.run(history())

    histories()
