"""A broker leads the partitions that the metadata gives it: gained, lost, deleted, remade, configured; in any order."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.errors import ErrorCode, KafkaError, StorageError
from kafkalite.common.names import NO_LEADER
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.metadata.cluster_metadata import Change, PartitionRecord, RegistrationState, TopicRecord
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.replication.delayed_operations import DelayedOperation
from kafkalite.replication.metadata_applier import MetadataApplier
from kafkalite.replication.replica_manager import EARLY_EPOCHS_MIN, ReplicaManager
from kafkalite.replication.topic_admin import TopicAdmin
from tests.support.in_memory_cluster import CLUSTER_ID, InMemoryCluster, InMemoryMetadata
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock

ME, OTHER = 1, 2


class Life:
    """One broker of a cluster from its start to its stop, as far as topics are concerned."""

    def __init__(
        self,
        cluster: InMemoryCluster,
        metadata: InMemoryMetadata,
        topics: ReplicaManager,
        applier: MetadataApplier,
        clock: ManualClock,
    ) -> None:
        self.clock = clock
        self.cluster = cluster
        self.metadata = metadata
        self.topics = topics
        self.applier = applier
        self.topic_admin = TopicAdmin(metadata, topics, applier)

    @property
    def led(self) -> dict[str, dict[int, int]]:
        """The leader epoch of each partition that is led here."""
        return {
            topic.name: {index: partition.leader_epoch for index, partition in sorted(topic.partitions.items())}
            for topic in self.topics
        }

    async def settled(self) -> None:
        await idle()
        assert not self.applier._due and not self.applier._is_busy

    def write(self, topic: str, index: int, value: bytes = b"value") -> int:
        batch = build_batch([NewRecord(None, value, timestamp=1_000)])
        return self.topics.require(topic, index).append(memoryview(batch), 1_000, 9).base_offset


@asynccontextmanager
async def life(cluster: InMemoryCluster, data_dir: Path, *, joins: bool = True) -> AsyncIterator[Life]:
    clock = ManualClock()
    config = BrokerConfig.load({"broker.id": str(ME)})
    logs = LogManager([data_dir], clock, config)
    metadata = cluster.metadata(ME)
    try:
        topics = ReplicaManager(config, metadata, logs, ME)
        applier = MetadataApplier(metadata, topics, clock)
        await logs.load(CLUSTER_ID, topics.config_for, topics.id_of)
        await applier.load()
        applier.start()
        try:
            one = Life(cluster, metadata, topics, applier, clock)
            if joins:
                await metadata.register((), None)
                await one.settled()
            yield one
        finally:
            await metadata.unregister()
            await applier.stop()
    finally:
        logs.close()


Story = Callable[[Life], Awaitable[object]]


@pytest.fixture
def cluster() -> InMemoryCluster:
    return InMemoryCluster()


@pytest.fixture
def live(tmp_path: Path, cluster: InMemoryCluster) -> Callable[[Story], None]:
    """`live(story)`: one life of the broker on its directory, in one cluster."""

    def live(story: Story) -> None:
        async def one() -> None:
            async with life(cluster, tmp_path / "data") as broker:
                await story(broker)

        asyncio.run(one())

    return live


def record(name: str, *leaders: int, topic_id: uuid.UUID | None = None, epoch: int = 0) -> TopicRecord:
    """A topic whose partitions are led by these."""
    states = {i: PartitionRecord((leader,), leader, epoch, (leader,), 0) for i, leader in enumerate(leaders)}
    return TopicRecord(name, topic_id or uuid.uuid4(), states, {})


def code_of(deed: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        deed()
    return caught.value.code


def test_it_leads_what_it_is_elected_for_and_knows_the_rest(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        broker.cluster.put(record("t", ME, OTHER, ME), Change.TOPIC_CREATED)
        assert "t" not in broker.topics.by_name  # its logs are not open yet
        await broker.settled()
        assert broker.led == {"t": {0: 0, 2: 0}}
        assert sorted(broker.topics.by_name["t"].states) == [0, 1, 2]
        assert code_of(lambda: broker.topics.require("t", 1)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_of(lambda: broker.topics.require("t", 3)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code_of(lambda: broker.topics.require("no", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    live(story)


def new(name: str, *replicas: int) -> TopicRecord:
    """A topic whose partitions were never elected."""
    states = {i: PartitionRecord((one,), NO_LEADER, -1, (), -1) for i, one in enumerate(replicas)}
    return TopicRecord(name, uuid.uuid4(), states, {})


def test_a_topic_is_seen_with_its_first_election(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        broker.cluster.put(new("t", ME, OTHER), Change.TOPIC_CREATED)
        await broker.settled()
        assert "t" not in broker.topics.by_name
        with pytest.raises(KafkaError) as caught:
            await broker.topic_admin.ensure("t", 2, {})
        assert caught.value.code is ErrorCode.LEADER_NOT_AVAILABLE
        assert len(broker.cluster.brokers) == 1  # nobody can be elected for the other one
        broker.cluster.lead("t", 0, ME)
        await broker.settled()
        assert list(broker.led["t"]) == [0]
        broker.cluster.put(new("u", ME, ME), Change.TOPIC_CREATED)
        broker.cluster.lead("u", 1, ME)
        await broker.settled()
        assert "u" not in broker.topics.by_name  # the state of the other one is still to be read
        broker.cluster.lead("u", 0, ME)
        await broker.settled()
        assert list(broker.led["u"]) == [0, 1]

    live(story)


def test_a_state_that_is_missing_keeps_no_topic_from_its_start(cluster: InMemoryCluster, tmp_path: Path) -> None:
    async def story() -> None:
        await cluster.metadata(OTHER).register((), None)
        known = record("t", ME, ME)
        cluster.put(
            known._replace(partitions={**known.partitions, 1: new("t", OTHER).partitions[0]}), Change.TOPIC_CREATED
        )
        async with life(cluster, tmp_path / "data") as broker:
            assert list(broker.led["t"]) == [0]

    asyncio.run(story())


def test_an_added_partition_is_seen_when_its_leader_has_opened_it(
    live: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: Life) -> None:
        def unopened() -> set[int]:
            return broker.topics.by_name["t"].unopened

        topic = record("t", ME)
        broker.cluster.put(topic, Change.TOPIC_CREATED)
        await broker.settled()
        added = record("t", ME, ME, OTHER, topic_id=topic.topic_id).partitions
        awaited = {**added, 3: new("t", ME).partitions[0]}
        broker.cluster.put(topic._replace(partitions=awaited), Change.PARTITIONS_ADDED)
        assert unopened() == {1}
        broker.cluster.lead("t", 3, ME)
        assert unopened() == {1, 3}
        broker.cluster.lead("t", 3, OTHER)
        assert unopened() == {1}
        await broker.settled()
        assert list(broker.led["t"]) == [0, 1] and not unopened()

        def refuse(*_: object) -> object:
            raise StorageError("no room")

        broker.cluster.lead("t", 2, ME)  # clients have seen it led by the other broker
        assert not unopened()
        with monkeypatch.context() as full:
            full.setattr(LogManager, "create", refuse)
            more = {**broker.cluster.topics["t"].partitions, 4: added[0]}
            broker.cluster.put(topic._replace(partitions=more), Change.PARTITIONS_ADDED)
            assert unopened() == {4}
            await broker.settled()
        assert broker.topics.by_name["t"].partitions[4].is_offline and not unopened()

    live(story)


def test_a_topic_that_nobody_can_lead_is_seen_without_a_leader(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        broker.cluster.put(new("t", OTHER), Change.TOPIC_CREATED)
        await broker.settled()
        assert "t" in broker.topics.by_name
        other = broker.cluster.metadata(OTHER)
        await other.register((), None)
        broker.cluster.put(new("u", OTHER), Change.TOPIC_CREATED)
        await broker.settled()
        assert "u" not in broker.topics.by_name
        await other.unregister()
        await broker.settled()
        assert "u" in broker.topics.by_name

    live(story)


def test_what_is_lost_is_let_go_of_at_once_and_whoever_waits_is_told(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        broker.cluster.put(record("t", ME), Change.TOPIC_CREATED)
        await broker.settled()
        broker.write("t", 0)
        partition = broker.topics.require("t", 0)
        woken, told = [], []
        partition.watch(DelayedOperation(1, lambda: woken.append("reader"), lambda wake: wake()))
        partition.when_committed(5, told.append)
        broker.cluster.lead("t", 0, OTHER)
        assert code_of(lambda: broker.topics.require("t", 0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert woken == ["reader"]
        assert [error.code for error in told if error] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await broker.settled()
        broker.cluster.lead("t", 0, ME)
        await broker.settled()
        assert broker.led == {"t": {0: 2}}
        assert broker.write("t", 0) == 1  # the log went on being ours
        assert broker.topics.require("t", 0).log.epochs.latest == 2

    live(story)


def test_elected_anew_it_goes_on_under_the_new_epoch(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        broker.cluster.put(record("t", ME), Change.TOPIC_CREATED)
        await broker.settled()
        partition = broker.topics.require("t", 0)
        broker.cluster.lead("t", 0, ME)
        assert broker.topics.require("t", 0) is partition
        assert partition.leader_epoch == 1
        assert code_of(lambda: partition.check_epoch(0)) is ErrorCode.FENCED_LEADER_EPOCH

    live(story)


@pytest.mark.parametrize("standing", [RegistrationState.FENCED, RegistrationState.UNREGISTERED])
def test_one_that_is_no_member_leads_nothing(live: Callable[[Story], None], standing: RegistrationState) -> None:
    async def story(broker: Life) -> None:
        broker.cluster.put(record("t", ME, ME), Change.TOPIC_CREATED)
        await broker.settled()
        broker.metadata.set_registration_state(standing)
        assert broker.led == {"t": {}}
        await broker.settled()
        assert broker.led == {"t": {}}
        broker.metadata.set_registration_state(RegistrationState.MEMBER)
        await broker.settled()
        assert broker.led == {"t": {0: 0, 1: 0}}

    live(story)


def test_one_that_is_cut_off_goes_on_and_changes_nothing(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        broker.cluster.put(record("t", ME), Change.TOPIC_CREATED)
        await broker.settled()
        broker.metadata.set_registration_state(RegistrationState.DISCONNECTED)
        await broker.settled()
        assert broker.write("t", 0) == 0
        for change in (
            broker.topic_admin.create("new", 1, {}),
            broker.topic_admin.delete("t"),
            broker.topic_admin.add_partitions("t", 2),
            broker.topic_admin.change_overrides("t", lambda old: {"retention.ms": "5"}),
        ):
            with pytest.raises(KafkaError) as caught:
                await change
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert broker.led == {"t": {0: 0}}
        assert list(broker.topics.by_name) == ["t"]

    live(story)


def test_a_topic_that_is_deleted_goes_with_its_logs_also_with_those_led_elsewhere(
    live: Callable[[Story], None], tmp_path: Path
) -> None:
    async def story(broker: Life) -> None:
        gone: list[str] = []
        broker.topics.when_deleted.subscribe(gone.append)
        broker.cluster.put(record("t", ME, ME), Change.TOPIC_CREATED)
        await broker.settled()
        broker.cluster.lead("t", 1, OTHER)
        broker.cluster.remove("t")
        assert not broker.topics.by_name and not broker.topics.by_id
        assert gone == ["t"]
        names = [path.name for path in (tmp_path / "data").iterdir() if path.name.startswith("t-")]
        assert len(names) == 2 and all(name.endswith("-delete") for name in names)

    live(story)


def test_a_topic_made_again_elsewhere_does_not_get_the_old_log(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        broker.cluster.put(record("t", ME), Change.TOPIC_CREATED)
        await broker.settled()
        broker.write("t", 0)
        broker.metadata.fall_behind()  # so both changes are notified at once
        broker.cluster.remove("t")
        broker.cluster.put(record("t", ME), Change.TOPIC_CREATED)
        broker.metadata.catch_up()
        await broker.settled()
        assert broker.write("t", 0) == 0

    live(story)


def test_what_was_deleted_while_it_was_away_is_set_aside(
    live: Callable[[Story], None], cluster: InMemoryCluster, tmp_path: Path
) -> None:
    async def before(broker: Life) -> None:
        cluster.put(record("gone", ME), Change.TOPIC_CREATED)
        cluster.put(record("anew", ME), Change.TOPIC_CREATED)
        cluster.put(record("kept", ME), Change.TOPIC_CREATED)
        await broker.settled()
        for name in ("gone", "anew", "kept"):
            broker.write(name, 0)

    live(before)
    cluster.remove("gone")
    cluster.remove("anew")
    cluster.put(record("anew", ME), Change.TOPIC_CREATED)

    async def after(broker: Life) -> None:
        assert broker.led == {"anew": {0: 0}, "kept": {0: 2}}
        assert (broker.write("anew", 0), broker.write("kept", 0)) == (0, 1)

    live(after)
    strays = sorted(path.name.split(".")[0] for path in (tmp_path / "data").iterdir() if path.name.endswith("-stray"))
    assert strays == ["anew-0", "gone-0"]


def test_settings_and_partitions_that_others_change_hold_here(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        topic = record("t", ME)
        broker.cluster.put(topic, Change.TOPIC_CREATED)
        await broker.settled()
        broker.cluster.put(topic._replace(config={"retention.ms": "5"}), Change.TOPIC_CONFIG)
        assert broker.topics.require("t", 0).log.config.retention_ms == 5
        broker.cluster.put(
            topic._replace(config={"retention.ms": "7", "made.up": "x"}, partitions=record("t", ME, ME).partitions),
            Change.PARTITIONS_ADDED,
        )
        await broker.settled()
        assert broker.led == {"t": {0: 0, 1: 0}}
        assert broker.topics.require("t", 1).log.config.retention_ms == 7

    live(story)


class ElectedLog:
    """A log whose election is recorded, or is not yet."""

    end_offset = 0

    def __init__(self) -> None:
        self.recorded = False
        self.epochs = self

    def is_recorded(self, epoch: int, start_offset: int) -> bool:
        return self.recorded


@pytest.mark.parametrize("late_count", [1, 7])
def test_elections_that_come_while_others_are_written_wait_for_the_next_write(
    live: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch, late_count: int
) -> None:
    async def story(broker: Life) -> None:
        applier: Any = broker.applier
        elected: dict[str, list[ElectedLog]] = {"a": [ElectedLog() for _ in range(EARLY_EPOCHS_MIN)]}
        told: list[object] = []
        reconcile = applier._reconcile

        async def write_early(logs: Sequence[tuple[ElectedLog, int]]) -> bool:
            if logs:
                told.append(len(logs))
            if len(logs) >= EARLY_EPOCHS_MIN:
                for log, _ in logs:
                    log.recorded = True
            elected.setdefault("b", [ElectedLog() for _ in range(late_count)])  # comes meanwhile
            return True

        async def note(name: str) -> None:
            unwritten = sum(not log.recorded for log in elected.get(name, ()))
            told.append((name, unwritten))
            elected[name] = []
            await reconcile(name)

        monkeypatch.setattr(applier, "_elected", lambda name: iter([(log, 1) for log in elected.get(name, ())]))
        monkeypatch.setattr(broker.topics, "write_early", write_early)
        monkeypatch.setattr(applier, "_reconcile", note)
        for name in ("a", "b", "c"):
            broker.cluster.put(record(name, OTHER), Change.TOPIC_CREATED)
        await broker.settled()
        late = (late_count, ("b", 0 if late_count >= EARLY_EPOCHS_MIN else late_count))
        assert told == [EARLY_EPOCHS_MIN, ("a", 0), ("c", 0), *late]

    live(story)


def test_an_epoch_that_only_the_log_knows_is_written_down(live: Callable[[Story], None], tmp_path: Path) -> None:
    topic = record("t", ME, epoch=7)

    async def before(broker: Life) -> None:
        broker.cluster.put(topic, Change.TOPIC_CREATED)
        await broker.settled()
        broker.write("t", 0)
        broker.cluster.topics["t"] = topic._replace(partitions=record("t", NO_LEADER).partitions)  # it lost its memory

    live(before)

    async def after(broker: Life) -> None:
        broker.cluster.put(topic._replace(partitions=record("t", ME, epoch=1).partitions), Change.PARTITION_STATE)
        await broker.settled()
        assert broker.led == {"t": {0: 7}}
        assert broker.cluster.topics["t"].partitions[0].leader_epoch == 7

    live(after)


def test_a_log_that_was_cut_is_led_under_a_new_epoch(
    live: Callable[[Story], None], tmp_path: Path, cluster: InMemoryCluster
) -> None:
    async def before(broker: Life) -> None:
        cluster.put(record("t", ME, OTHER), Change.TOPIC_CREATED)
        await broker.settled()
        broker.write("t", 0, b"whole")
        broker.write("t", 0, b"torn")

    live(before)
    log = tmp_path / "data" / "t-0" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[:-3])
    (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    epoch = cluster.topics["t"].partitions[0].leader_epoch

    async def after(broker: Life) -> None:
        assert broker.topics.require("t", 0).log.end_offset == 1
        assert broker.led == {"t": {0: epoch + 2}}  # one for being elected, one for what is lost
        await broker.settled()
        assert cluster.topics["t"].partitions[0].leader_epoch == epoch + 2

    live(after)


def test_a_log_that_cannot_be_made_is_offline_and_the_others_are_led(
    live: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: Life) -> None:
        create = LogManager.create

        def refuse(logs: LogManager, topic: str, index: int, *rest: object) -> object:
            if index == 1:
                raise StorageError("no room")
            return create(logs, topic, index, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(LogManager, "create", refuse)
        broker.cluster.put(record("t", ME, ME, ME), Change.TOPIC_CREATED)
        await broker.settled()
        assert [partition.is_offline for partition in broker.topics.by_name["t"].partitions.values()] == [
            False,
            True,
            False,
        ]
        with pytest.raises(StorageError):
            await broker.topic_admin.create("new", 2, {})
        assert "new" not in broker.cluster.topics
        await broker.settled()
        assert list(broker.topics.by_name) == ["t"]

    live(story)


def test_a_log_that_could_not_be_made_is_made_when_the_disk_has_room_again(
    live: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(broker: Life) -> None:
        def is_offline() -> bool:
            return broker.topics.by_name["t"].partitions[0].is_offline

        def refuse(*_: object) -> object:
            raise StorageError("no room")

        with monkeypatch.context() as full:
            full.setattr(LogManager, "create", refuse)
            broker.cluster.put(record("t", ME), Change.TOPIC_CREATED)
            for _ in range(2):
                await broker.settled()
                assert is_offline()
                broker.clock.advance(60_000)
            await broker.settled()
        assert is_offline()
        broker.clock.advance(60_000)
        await broker.settled()
        assert not is_offline()
        broker.write("t", 0)

    live(story)


def test_what_is_asked_for_here_is_ready_when_it_returns(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        topics, topic_admin = broker.topics, broker.topic_admin
        one, two = await asyncio.gather(topic_admin.ensure("t", 40, {}), topic_admin.ensure("t", 40, {}))
        assert one is two
        assert len(one.partitions) == 40
        await topic_admin.add_partitions("t", 41)
        assert topics.require("t", 40)
        await topic_admin.change_overrides("t", lambda old: {"retention.ms": "5"})
        assert topics.require("t", 40).log.config.retention_ms == 5
        await topic_admin.delete("t")
        assert not topics.by_name and not broker.cluster.topics

    live(story)


def test_two_brokers_that_make_one_topic_make_one(live: Callable[[Story], None]) -> None:
    async def story(broker: Life) -> None:
        async def faster(topic: TopicRecord) -> None:
            broker.cluster.put(record("t", OTHER, ME), Change.TOPIC_CREATED)
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS)

        broker.metadata.writes.create_topic = faster  # type: ignore[method-assign]
        topic = await broker.topic_admin.ensure("t", 1, {})
        assert sorted(topic.states) == [0, 1]
        assert list(topic.partitions) == [1]

    live(story)


# random histories, in any order of notification

NAMES = ("a", "b")
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"), st.sampled_from(NAMES), st.lists(st.sampled_from([ME, OTHER]), min_size=1, max_size=3)
        ),
        st.tuples(st.just("remove"), st.sampled_from(NAMES), st.just([])),
        st.tuples(st.just("lead"), st.sampled_from(NAMES), st.lists(st.sampled_from([ME, OTHER, -1]), min_size=1)),
        st.tuples(st.just("write"), st.sampled_from(NAMES), st.just([])),
        st.tuples(st.just("state"), st.sampled_from(["MEMBER", "DISCONNECTED", "FENCED"]), st.just([])),
        st.tuples(st.just("fall behind"), st.just(""), st.just([])),
        st.tuples(st.just("catch up"), st.just(""), st.just([])),
        st.tuples(st.just("turns"), st.just(""), st.lists(st.just(0), max_size=9)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps)
def test_in_the_end_it_leads_what_the_registry_says(history: list[tuple[str, str, list[int]]]) -> None:
    async def story(broker: Life) -> None:
        cluster, metadata = broker.cluster, broker.metadata
        epochs: dict[tuple[uuid.UUID, int], int] = {}
        for verb, name, numbers in history:
            known = cluster.topics.get(name)
            if verb == "put" and known is None:
                cluster.put(record(name, *numbers), Change.TOPIC_CREATED)
            elif verb == "remove" and known is not None:
                cluster.remove(name)
            elif verb == "lead" and known is not None:
                for index, leader in enumerate(numbers[: len(known.partitions)]):
                    cluster.lead(name, index, leader)
            elif verb == "write":
                topic = broker.topics.by_name.get(name)
                for index in topic.partitions if topic is not None else ():
                    broker.write(name, index)
            elif verb == "state":
                metadata.set_registration_state(RegistrationState[name])
            elif verb == "fall behind" and metadata._missed is None:
                metadata.fall_behind()
            elif verb == "catch up":
                metadata.catch_up()
            elif verb == "turns":
                for _ in numbers:
                    await asyncio.sleep(0)
            for topic in broker.topics:
                for index, partition in topic.partitions.items():
                    assert metadata.registration_state is not RegistrationState.FENCED
                    key = topic.topic_id, index
                    assert partition.leader_epoch >= epochs.get(key, 0)
                    epochs[key] = partition.leader_epoch
        metadata.catch_up()
        metadata.set_registration_state(RegistrationState.MEMBER)
        await broker.settled()
        wanted = {
            name: {i: state.leader_epoch for i, state in topic.partitions.items() if state.leader == ME}
            for name, topic in cluster.topics.items()
        }
        assert broker.led == wanted
        for topic in broker.topics:
            assert topic.topic_id == cluster.topics[topic.name].topic_id
            for partition in topic.partitions.values():
                assert partition.log.metadata.topic_id == topic.topic_id
                assert partition.high_watermark == partition.log.end_offset

    async def one(directory: str) -> None:
        async with life(InMemoryCluster(elects=False), Path(directory) / "data") as broker:
            await story(broker)

    with TemporaryDirectory() as directory:
        asyncio.run(one(directory))
