"""What every registry promises, asked of each: the file of a single node, and ZooKeeper with a controller."""

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
from kafkalite.metadata.cluster_metadata import CLUSTER_DEFAULT, Change, ClusterMetadata, PartitionRecord, TopicRecord
from kafkalite.metadata.registration_state import RegistrationState
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
    """A registry that can be opened again and again on what it kept. Registered while it is entered."""

    def __init__(self, make: Callable[[], tuple[ClusterMetadata, Member | None]]) -> None:
        self._make = make

    @asynccontextmanager
    async def open(self):
        registry, member = self._make()
        await registry.start()
        try:
            await registry.register(ENDPOINTS, "rack-1")
            if member is not None:
                member.controller.start()
            yield registry
        finally:
            if member is not None:
                await member.controller.stop()
            await registry.unregister()
            await registry.stop()


@pytest.fixture(params=["embedded", "zookeeper"])
def kept(request: pytest.FixtureRequest, tmp_path, chroot) -> Kept:
    if request.param == "embedded":
        return Kept(lambda: (StandaloneMetadata(tmp_path, broker_id=ME), None))
    server = request.getfixturevalue("zookeeper")

    def make() -> tuple[ClusterMetadata, Member]:
        member = Member(server.connect + chroot, tmp_path, ME)
        return member.registry, member

    return Kept(make)


def memory_of(registry: ClusterMetadata) -> tuple[object, ...]:
    """All but the epochs that count elections."""
    topics = {
        name: one._replace(partitions={n: (p.replicas, p.leader, p.isr) for n, p in one.partitions.items()})
        for name, one in registry.topics.items()
    }
    return topics, {broker: dict(config) for broker, config in registry.broker_configs.items()}


def test_everything_is_there_after_a_restart(kept):
    async def story():
        async with kept.open() as registry:
            cluster_id = registry.cluster_id
            assert len(cluster_id) == 22
            orders = topic("orders", 2, **{"cleanup.policy": "compact"})
            await registry.create_topic(orders)
            await registry.create_topic(topic("short-lived"))
            await registry.add_partitions("orders", {2: state(), 3: state()})
            await registry.set_topic_config("orders", {"retention.ms": "5", "ünï": "cöde\n"})
            await registry.set_leader_epoch("orders", 1, 4)
            await registry.set_broker_config("0", {"compression.type": "zstd"})
            await registry.set_broker_config(CLUSTER_DEFAULT, {"a": "b"})
            await registry.set_broker_config(CLUSTER_DEFAULT, {})
            await registry.delete_topic("short-lived")
            assert await registry.next_producer_id_block() == range(1000)
            before = memory_of(registry)
            assert registry.topics["orders"].partitions[1].leader_epoch == 4
        async with kept.open() as registry:
            assert registry.cluster_id == cluster_id
            await asyncio.wait_for(leads(registry, "orders"), DEADLINE_S)
            assert memory_of(registry) == before
            found = registry.topics["orders"]
            assert found.topic_id == orders.topic_id and list(registry.topics) == ["orders"]
            assert list(found.partitions) == [0, 1, 2, 3] and found.config == {"retention.ms": "5", "ünï": "cöde\n"}
            assert found.partitions[1].leader_epoch >= 4, "they never go back"
            assert registry.broker_configs == {"0": {"compression.type": "zstd"}}
            assert await registry.next_producer_id_block() == range(1000, 2000), "no id is given twice"

    asyncio.run(story())


async def leads(registry: ClusterMetadata, name: str) -> None:
    news = asyncio.Event()
    stop_listening = registry.listen(lambda change, name: news.set())
    while any(partition.leader != ME for partition in registry.topics[name].partitions.values()):
        news.clear()
        await news.wait()
    stop_listening()


def test_what_cannot_be_is_refused_with_kafkas_code_and_leaves_no_trace(kept):
    async def story():
        async with kept.open() as registry:
            await registry.create_topic(topic("t", 2))
            before = memory_of(registry)
            refused = [
                (registry.create_topic(topic("t")), ErrorCode.TOPIC_ALREADY_EXISTS),
                (registry.delete_topic("u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (registry.set_topic_config("u", {}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (registry.add_partitions("u", {0: state()}), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (registry.add_partitions("t", {3: state()}), ErrorCode.INVALID_PARTITIONS),
                (registry.add_partitions("t", {1: state(), 2: state()}), ErrorCode.INVALID_PARTITIONS),
                (registry.add_partitions("t", {}), ErrorCode.INVALID_PARTITIONS),
                (registry.set_leader_epoch("t", 2, 1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
                (registry.set_leader_epoch("t", 0, 0), ErrorCode.FENCED_LEADER_EPOCH),
                (registry.set_leader_epoch("u", 0, 9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ]
            for write, code in refused:
                with pytest.raises(KafkaError) as caught:
                    await write
                assert caught.value.code is code
            assert memory_of(registry) == before
        with pytest.raises(KafkaError):
            await registry.create_topic(topic("late"))
        assert "t" in registry.topics, "reads go on"

    asyncio.run(story())


def test_when_a_write_returns_it_is_in_memory_and_was_told(kept):
    async def story():
        async with kept.open() as registry:
            told: list[tuple[Change, str, bool]] = []
            stop_listening = registry.listen(lambda change, name: told.append((change, name, name in registry.topics)))

            def told_of(change: Change, name: str, is_there: bool = True) -> bool:
                found = (change, name, is_there) in told
                told.clear()
                return found

            await registry.create_topic(topic("t", 2))
            assert registry.topics["t"].partitions[1].leader == ME and told_of(Change.TOPIC_CREATED, "t")
            await registry.add_partitions("t", {2: state()})
            assert registry.topics["t"].partitions[2].leader == ME and told_of(Change.PARTITIONS_ADDED, "t")
            await registry.set_topic_config("t", {"a": "b"})
            assert registry.topics["t"].config == {"a": "b"} and told_of(Change.TOPIC_CONFIG, "t")
            epoch = registry.topics["t"].partitions[2].leader_epoch + 3
            before = registry.topics["t"].partitions[2].partition_epoch
            await registry.set_leader_epoch("t", 2, epoch)
            assert registry.topics["t"].partitions[2].leader_epoch == epoch and told_of(Change.PARTITION_STATE, "t")
            assert registry.topics["t"].partitions[2].partition_epoch > before
            await registry.set_broker_config("7", {"a": "b"})
            assert registry.broker_configs["7"] == {"a": "b"} and told_of(Change.BROKER_CONFIG, "7", False)
            await registry.delete_topic("t")
            assert "t" not in registry.topics and told_of(Change.TOPIC_DELETED, "t", False)
            stop_listening()
            await registry.create_topic(topic("t"))
            assert not told, "one of that name may be made again, and nobody listens any more"

    asyncio.run(story())


def test_writers_at_once_take_turns(kept):
    async def story():
        async with kept.open() as registry:
            results = await asyncio.gather(
                *(registry.create_topic(topic("same")) for _ in range(5)),
                *(registry.next_producer_id_block() for _ in range(5)),
                return_exceptions=True,
            )
            refusals = [result.code for result in results if isinstance(result, KafkaError)]
            assert refusals == [ErrorCode.TOPIC_ALREADY_EXISTS] * 4
            assert sorted(r.start for r in results if isinstance(r, range)) == [0, 1000, 2000, 3000, 4000]
            await asyncio.gather(*(registry.set_topic_config("same", {"k": str(i)}) for i in range(10)))
            added = await asyncio.gather(
                *(registry.add_partitions("same", {1: state()}) for _ in range(3)), return_exceptions=True
            )
            assert sorted(map(type, added), key=str) == sorted([type(None), KafkaError, KafkaError], key=str)
            assert len(registry.topics["same"].partitions) == 2

    asyncio.run(story())


def test_producer_ids_are_skipped_and_never_go_back(kept):
    async def story():
        async with kept.open() as registry:
            assert await registry.next_producer_id_block() == range(1000)
            await registry.skip_producer_ids(12_345)
            assert (await registry.next_producer_id_block()).start == 12_346
            await registry.skip_producer_ids(5)
            await registry.skip_producer_ids(1 << 63)  # nobody has counted that far
            assert await registry.next_producer_id_block() == range(13_346, 14_346)

    asyncio.run(story())


def test_a_broker_is_a_member_from_register_to_unregister(kept):
    async def story():
        async with kept.open() as registry:
            assert registry.registration_state is RegistrationState.MEMBER
            (broker,) = registry.brokers.values()
            assert (broker.broker_id, broker.endpoints, broker.rack) == (ME, ENDPOINTS, "rack-1")
            await registry.create_topic(topic("t"))  # so there is one who sees to it
            assert registry.controller_id == ME
            await registry.register(ENDPOINTS[:1], "rack-1")
            assert (
                registry.brokers[ME].endpoints == ENDPOINTS[:1]
                and registry.registration_state is RegistrationState.MEMBER
            )
            told = []
            registry.listen(lambda change, name: told.append(change))
            await registry.unregister()
            assert registry.registration_state is RegistrationState.UNREGISTERED and not registry.brokers
            assert Change.REGISTRATION in told and Change.BROKERS in told
            await registry.unregister()

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


async def perform(registry: ClusterMetadata, operation: tuple[str, str, object]) -> ErrorCode | None:
    kind, name, value = operation
    try:
        if kind == "create":
            identity = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}{value}")
            await registry.create_topic(topic(name, value, k=name)._replace(topic_id=identity))
        elif kind == "delete":
            await registry.delete_topic(name)
        elif kind == "grow":
            first = len(registry.topics[name].partitions) if name in registry.topics else 0
            await registry.add_partitions(name, {first + i: state() for i in range(value)})
        elif kind == "configure":
            await registry.set_topic_config(name, {"k": value})
        elif kind == "elect":
            await registry.set_leader_epoch(name, 0, value)
        else:
            await registry.set_broker_config(name, {"k": value} if value else {})
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
            one, other = StandaloneMetadata(place, broker_id=ME), member.registry
            for registry in (one, other):
                await registry.start()
                await registry.register(ENDPOINTS, None)
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
