"""Metadata on a real ZooKeeper: Kafka's nodes, writes by others, waiting, taking over, size and random histories."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from random import Random

import pytest

from kafkalite.common.errors import ConfigError, ErrorCode, KafkaError
from kafkalite.common.names import NO_LEADER, format_uuid
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import RegistrationState
from kafkalite.metadata.metadata_journal import JOURNAL_NAME
from kafkalite.metadata.standalone_metadata import StandaloneMetadata
from kafkalite.zk.client.operations import Create, SetData
from kafkalite.zk.znodes import znode_paths
from tests.support.wait import DEADLINE_S
from tests.support.zk.members import Member, apart, contents, endpoints, member, state, topic
from tests.support.zk.visits import visit
from tests.support.zookeeper import Cut

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
SHORT_MS = 600  # of a session that is to end soon


# -- nodes


def test_a_start_makes_kafkas_nodes(place, tmp_path):
    async def story():
        async with apart(place, tmp_path) as one:
            found = await one.metadata.session.read(znode_paths.PERSISTENT)
            assert all(node is not None and node.ephemeral_owner == 0 for node in found)
            assert await contents(one.metadata.session, "/cluster/id") == [
                {"version": "1", "id": one.metadata.cluster_id}
            ]
            assert one.metadata.registration_state is RegistrationState.UNREGISTERED and not one.metadata.brokers
            named = ListenerConfig("OUTSIDE", "there", 1, "SSL"), ListenerConfig("INSIDE", "::1", 2)
            await one.metadata.register(named, "r1")
            ((node,), (value,)) = (
                await one.metadata.session.read(["/brokers/ids/1"]),
                await contents(one.metadata.session, "/brokers/ids/1"),
            )
            stamp = int(value.pop("timestamp"))
            assert abs(stamp - time.time() * 1000) < 60_000
            assert value == {
                "version": 5,
                "host": "::1",
                "port": 2,
                "jmx_port": -1,
                "rack": "r1",
                "endpoints": ["OUTSIDE://there:1", "INSIDE://[::1]:2"],
                "listener_security_protocol_map": {"OUTSIDE": "SSL", "INSIDE": "PLAINTEXT"},
                "features": {},
            }
            assert node.ephemeral_owner == one.metadata.session.session_id
            assert one.metadata.brokers[1].epoch == node.czxid
            await one.metadata.unregister()
            assert await one.metadata.session.read(["/brokers/ids/1"]) == [None]

    asyncio.run(story())


class CutOnce:
    """A step of a start in whose midst the connection is lost, and comes back a little later."""

    def __init__(self, door: Cut, step: Callable[..., Awaitable[object]]) -> None:
        self._door, self._step, self.calls = door, step, 0

    async def __call__(self, *arguments: object) -> None:
        self.calls += 1
        if self.calls == 1:
            self._door.cut()
            asyncio.get_running_loop().call_later(0.05, self._door.mend)
        await self._step(*arguments)


def test_a_start_goes_on_when_its_connection_is_lost_in_its_midst(zookeeper, chroot, tmp_path):
    async def story():
        with closing(Cut(zookeeper.connect)) as door:
            one = Member(door.connect + chroot, tmp_path)
            reader = one.metadata.lifecycle.reader
            reading = reader.watch = CutOnce(door, reader.watch)
            await one.metadata.start()
            assert reading.calls == 2 and one.metadata.cluster_id
            registration = one.metadata.lifecycle.registration
            checking = registration.check_is_free = CutOnce(door, registration.check_is_free)
            await one.metadata.check_is_free(endpoints(1))
            assert checking.calls > 1
            lifecycle = one.metadata.lifecycle
            giving = lifecycle.give_back_ids = CutOnce(door, lambda ids: one.metadata.session.read(["/"]))
            await one.metadata.return_ids({})
            assert giving.calls > 1
            holding = registration.remember_session = CutOnce(door, registration.remember_session)
            try:
                await one.join()
                await one.until_state(RegistrationState.MEMBER)
                assert holding.calls > 1
            finally:
                await one.stop()

    asyncio.run(story())


def test_a_start_whose_connection_does_not_come_back_says_so(zookeeper, chroot, tmp_path):
    async def story():
        with closing(Cut(zookeeper.connect)) as door:
            one = Member(door.connect + chroot, tmp_path, session={"connection_timeout_ms": SHORT_MS})
            reader = one.metadata.lifecycle.reader
            watch = reader.watch

            async def cut() -> None:
                door.cut()
                await watch()

            reader.watch = cut
            with pytest.raises(ConfigError, match="no connection to ZooKeeper"):
                await one.metadata.start()

    asyncio.run(story())


def test_quotas_are_kafkas_nodes_and_leave_none_behind(place, tmp_path):
    async def story():
        async with member(place, tmp_path) as one:
            metadata, session = one.metadata, one.metadata.session
            quota = {"producer_byte_rate": "1024"}
            below = "users/a%2Ab/clients/<default>"
            for path in ("users/<default>", below, "clients/app", "ips/10.0.0.1"):
                await metadata.writes.change_entity_config(path, lambda there: {**there, **quota})
                assert metadata.entity_configs[path] == quota
                assert await contents(session, f"/config/{path}") == [{"version": 1, "config": quota}]
            (parent,) = await session.read(["/config/users/a%2Ab/clients"])
            assert parent is not None and not parent.data
            await metadata.writes.change_entity_config("users/a%2Ab", lambda there: {"SCRAM-SHA-256": "x"})
            await metadata.writes.change_entity_config(below, lambda there: {})
            assert await session.read(["/config/users/a%2Ab/clients"]) == [None]
            assert metadata.entity_configs["users/a%2Ab"] == {"SCRAM-SHA-256": "x"}
            await metadata.writes.change_entity_config(below, lambda there: quota)
            await metadata.writes.change_entity_config("users/a%2Ab", lambda there: {})  # its client keeps the node
            assert metadata.entity_configs[below] == quota
            for path in (below, "users/<default>", "clients/app", "ips/10.0.0.1", "users/nobody"):
                await metadata.writes.change_entity_config(path, lambda there: {})
            assert not metadata.entity_configs
            assert await session.read(["/config/users/a%2Ab", "/config/clients/app"]) == [None, None]

    asyncio.run(story())


def test_settings_that_kafka_has_without_zookeeper_are_shared_and_not_notified(place, tmp_path):
    async def story():
        async with member(place, tmp_path / "one") as one, member(place, tmp_path / "two", broker_id=2) as two:
            session, heard = one.metadata.session, asyncio.Event()
            assert await session.read(["/config/groups", "/config/client-metrics"]) == [None, None]
            before = await session.children(["/config/changes"])
            paths = ("groups/a%2Fb", "client-metrics/m", "features/finalized")
            two.metadata.listen(lambda change, path: heard.set() if path == paths[-1] else None)
            for path in paths:
                await one.metadata.writes.change_entity_config(path, lambda there: {**there, "a": "1"})
                assert await contents(session, f"/config/{path}") == [{"version": 1, "config": {"a": "1"}}]
            await asyncio.wait_for(heard.wait(), DEADLINE_S)
            assert [two.metadata.entity_configs[path] for path in paths] == [{"a": "1"}] * 3
            for path in (*paths, "groups/none"):
                await two.metadata.writes.change_entity_config(path, lambda there: {})
            assert not two.metadata.entity_configs
            assert await session.read([f"/config/{path}" for path in paths]) == [None] * 3
            assert await session.children(["/config/changes"]) == before

    asyncio.run(story())


def test_epochs_that_somebody_else_raises_meanwhile_keep_back_no_other(place, tmp_path):
    async def story():
        async with member(place, tmp_path) as one:
            metadata, session = one.metadata, one.metadata.session
            await metadata.writes.create_topic(topic("t", 30))
            sent = []
            write = session.write

            async def count(operations):
                if operations[0] not in metadata.view.deletion_fence:
                    return await write(operations)  # the controller's own
                sent.append(len(operations) - 1)
                if len(sent) == 1:  # the controller is faster: one is higher than asked for, one lower
                    for index, epoch in ((4, 9), (8, 3)):
                        path = f"/brokers/topics/t/partitions/{index}/state"
                        (node,) = await session.read([path])
                        content = {**json.loads(node.data), "leader_epoch": epoch}
                        await write([SetData(path, json.dumps(content).encode(), node.version)])
                return await write(operations)

            session.write = count
            await metadata.writes.set_leader_epochs({("t", index): 5 for index in range(30)})
            found = [metadata.topics["t"].partitions[index].leader_epoch for index in range(30)]
            assert found == [9 if index == 4 else 5 for index in range(30)]
            assert sent == [30, 28, 1]

    asyncio.run(story())


def test_the_next_topic_of_a_name_gets_nothing_of_the_last(place, tmp_path):
    """Its nodes have the same versions, and the change is sent before this broker hears of it."""

    async def story():
        async with member(place, tmp_path / "1") as one, apart(place, tmp_path / "2", 2) as two:
            metadata = one.metadata
            write = metadata.session.write

            async def make_anew():
                await two.metadata.writes.delete_topic("t")
                await two.metadata.writes.create_topic(made[-1])
                await two.metadata.writes.set_leader_epoch("t", 0, 2)

            async def late(operations):
                if any(isinstance(each, SetData) and each.path == path for each in operations):
                    metadata.session.write = write
                    await make_anew()
                return await write(operations)

            made = [topic("t", 2), topic("t", 2)]
            await metadata.writes.create_topic(made[0])
            await metadata.writes.set_leader_epoch("t", 0, 3)  # one more version, as the next one gets
            await two.until(lambda: "t" in two.metadata.view.states and len(two.metadata.view.states["t"]) == 2)

            path, metadata.session.write = znode_paths.topic("t"), late
            await metadata.writes.add_partitions("t", {2: state()})
            for each in (one, two):
                await each.until(lambda each=each: len(each.metadata.topics["t"].partitions) == 3)
                assert each.metadata.topics["t"].topic_id == made[-1].topic_id

            made.append(topic("t", 2))
            path, metadata.session.write = znode_paths.state("t", 0), late
            await metadata.writes.set_leader_epochs({("t", 0): 5})
            (node,) = await contents(metadata.session, path)
            assert node["leader_epoch"] == 2

            made.append(topic("t", 2))
            metadata.session.write = late
            with pytest.raises(KafkaError) as caught:
                await metadata.writes.set_leader_epoch("t", 0, 7)
            assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            (node,) = await contents(metadata.session, path)
            assert node["leader_epoch"] == 2

    asyncio.run(story())


def test_changes_are_kafkas_nodes(place, tmp_path):
    async def story():
        async with member(place, tmp_path) as one:
            metadata, session = one.metadata, one.metadata.session
            made = topic("t", 2, **{"retention.ms": "5"})
            await metadata.writes.create_topic(made)
            await metadata.writes.create_topic(topic("plain"))
            await metadata.writes.add_partitions("t", {2: state()})
            await metadata.writes.set_topic_config("t", {"retention.ms": "6"})
            await metadata.writes.set_broker_config("", {"a": "b"})
            await metadata.writes.set_broker_config("1", {})
            await metadata.writes.set_leader_epoch("t", 0, 7)
            await metadata.writes.next_producer_id_block()
            assert await contents(session, *["/brokers/topics/t", "/config/topics/t", "/config/topics/plain"]) == [
                {
                    "version": 3,
                    "topic_id": format_uuid(made.topic_id),
                    "partitions": {"0": [1], "1": [1], "2": [1]},
                    "adding_replicas": {},
                    "removing_replicas": {},
                },
                {"version": 1, "config": {"retention.ms": "6"}},
                {"version": 1, "config": {}},
            ]
            assert await contents(session, "/config/brokers/<default>", "/config/brokers/1") == [
                {"version": 1, "config": {"a": "b"}},
                {"version": 1, "config": {}},
            ]
            (epoch,) = await session.read(["/controller_epoch"])
            assert await contents(session, "/brokers/topics/t/partitions/0/state", "/latest_producer_id_block") == [
                {"version": 1, "leader": 1, "leader_epoch": 7, "isr": [1], "controller_epoch": int(epoch.data)},
                {"version": 1, "broker": 1, "block_start": "0", "block_end": "999"},
            ]
            (names,) = await session.children(["/config/changes"])
            changes = [f"/config/changes/{name}" for name in sorted(names)]
            assert changes[0] == "/config/changes/config_change_0000000000"
            assert await contents(session, *changes) == [
                {"version": 2, "entity_path": entity} for entity in ("topics/t", "brokers/<default>", "brokers/1")
            ]
            await metadata.writes.delete_topic("t")
            gone = ["/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t"]
            assert await session.read(gone) == [None] * 3

    asyncio.run(story())


def test_what_old_tools_write_is_obeyed(place, tmp_path):
    """As kafka-topics and kafka-configs with --zookeeper write it: no id, and settings apart from their notice."""

    async def story():
        async with member(place, tmp_path) as one, visit(place) as tool:
            metadata, write = one.metadata, tool.session.write
            await write([Create("/config/topics/old", b'{"version":1,"config":{"a":"b"}}')])
            await write([Create("/brokers/topics/old", b'{"version":2,"partitions":{"0":[1]},"adding_replicas":{}}')])
            await one.until(lambda: "old" in metadata.topics and metadata.topics["old"].partitions[0].leader == 1)
            assert metadata.topics["old"].config == {"a": "b"}
            (node,) = await contents(tool.session, "/brokers/topics/old")
            assert node["topic_id"] == format_uuid(metadata.topics["old"].topic_id)
            await write([SetData("/config/topics/old", b'{"version":1,"config":{}}')])
            await one.until(lambda: not metadata.topics["old"].config)
            await write([Create("/config/brokers/<default>", b'{"version":1,"config":{"x":"y"}}')])
            await one.until(lambda: metadata.broker_configs == {"": {"x": "y"}})
            node["partitions"]["1"] = [1]
            await write([SetData("/brokers/topics/old", json.dumps(node).encode())])
            await one.until(lambda: [p.leader for p in metadata.topics["old"].partitions.values()] == [1, 1])
            await write([Create("/admin/delete_topics/old")])
            await one.until(lambda: "old" not in metadata.topics)

    asyncio.run(story())


def test_nonsense_is_named_once_and_the_rest_goes_on(place, tmp_path, caplog):
    async def story():
        async with visit(place) as vandal:
            await vandal.session.make_paths(znode_paths.PERSISTENT)
            rotten = ["/brokers/topics/empty", "/brokers/topics/torn", "/brokers/topics/minus", "/brokers/ids/9"]
            for path, data in zip(
                rotten, [b'{"partitions":{}}', b"{", b'{"partitions":{"0":[-3]}}', b"x"], strict=True
            ):
                await vandal.session.write([Create(path, data)])
            await vandal.session.write([Create("/config/brokers/7", b"[]")])
            async with member(place, tmp_path) as one:
                await one.metadata.writes.create_topic(topic("sound"))
                await vandal.session.write([SetData("/brokers/topics/sound", b"\xff")])
                await vandal.session.write([Create("/controller_epoch/child"), SetData("/config/topics/sound", b"{}")])
                await one.metadata.writes.create_topic(topic("another"))
                assert one.metadata.topics.keys() == {"sound", "another"}
                await one.metadata.writes.set_broker_config("7", {"a": "b"})
                assert one.metadata.broker_configs == {"7": {"a": "b"}}
                named = [record.args[0] for record in caplog.records if "not understood" in record.msg]
                assert sorted(named) == sorted([*rotten, "/config/brokers/7", "/brokers/topics/sound"])

    asyncio.run(story())


def test_what_may_not_be_read_is_named_once_and_the_rest_goes_on(place, tmp_path, caplog):
    async def story():
        async with apart(place, tmp_path / "2", 2) as one, visit(place, set_acl=True, digest="me:secret") as other:
            await other.session.write([Create("/config/brokers/5", b'{"version":1,"config":{"password":"x"}}')])
            await one.metadata.writes.set_broker_config("6", {"a": "b"})
            assert one.metadata.broker_configs == {"6": {"a": "b"}}
            await other.session.write([SetData("/config/brokers/5", b'{"version":1,"config":{}}')])
            async with apart(place, tmp_path / "3", 3) as two:
                assert two.metadata.broker_configs == {"6": {"a": "b"}}
                await two.metadata.writes.set_broker_config("6", {})
            said_by_two = "/config/brokers/5 in ZooKeeper may not be read"  # the other one was not even told of it
            assert caplog.text.count(said_by_two) == 1

    asyncio.run(story())


# -- waiting for the controller


def test_without_a_controller_what_was_written_is_said_not_to_be_seen_to(place, tmp_path):
    async def story():
        async with apart(place, tmp_path, change_timeout_ms=100) as one:
            await one.metadata.register(endpoints(1), None)
            for write in (one.metadata.writes.create_topic(topic("t")), one.metadata.writes.delete_topic("t")):
                with pytest.raises(KafkaError, match="There is no controller; it will be seen to") as caught:
                    await write
                assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
            with pytest.raises(KafkaError, match="marked for deletion"):
                await one.metadata.writes.create_topic(topic("t"))
            one.controller.start()
            await one.until(lambda: "t" not in one.metadata.topics)

    asyncio.run(story())


def test_nobody_waits_for_a_leader_that_cannot_be(place, tmp_path):
    async def story():
        async with member(place, tmp_path, change_timeout_ms=500) as one:
            await one.metadata.writes.create_topic(topic("t", broker=5))
            assert one.metadata.topics["t"].partitions[0].leader == NO_LEADER
            with pytest.raises(KafkaError, match=r"marked for deletion, which waits for the brokers \[5\] to return"):
                await one.metadata.writes.delete_topic("t")

    asyncio.run(story())


def test_a_controller_that_does_not_delete_says_so(place, tmp_path):
    async def story():
        async with member(place, tmp_path) as one:
            await one.metadata.writes.create_topic(topic("t"))
            one.controller.reconfigure(BrokerConfig(delete_topic_enable=False))
            with pytest.raises(KafkaError) as caught:
                await one.metadata.writes.delete_topic("t")
            assert caught.value.code is ErrorCode.TOPIC_DELETION_DISABLED and "t" in one.metadata.topics

    asyncio.run(story())


def test_an_order_that_was_taken_down_without_its_topic_is_given_again(place, tmp_path):
    """As one of an earlier topic of that name, whose end came when this topic had just been created."""

    async def story():
        async with member(place, tmp_path) as one:
            await one.metadata.writes.create_topic(topic("t"))
            one.controller.reconfigure(BrokerConfig(delete_topic_enable=False))
            ordered = znode_paths.delete_topic("t")
            taken_down = []

            def on_paths(changed):
                if ordered in changed and "t" not in one.metadata.view.deletions:
                    taken_down.append("t" in one.metadata.topics)
                    one.controller.reconfigure(BrokerConfig())

            one.metadata.listen_paths(on_paths)
            await one.metadata.writes.delete_topic("t")
            assert "t" not in one.metadata.topics and taken_down[0]
            assert await one.metadata.session.read([znode_paths.topic("t")]) == [None]

    asyncio.run(story())


def test_a_deletion_is_not_ordered_again_because_the_view_is_late(place, tmp_path):
    """A second order would be one of the next topic of that name."""

    async def story():
        async with member(place, tmp_path) as one:
            await one.metadata.writes.create_topic(topic("t"))
            view, writes = one.metadata.view, one.metadata.writes
            node, wait, waits = view.node(znode_paths.topic("t")), writes._wait, []

            async def wait_and_be_late(condition):
                waits.append(await wait(condition))
                view.apply([(znode_paths.topic("t"), node)])
                assert "t" in view.assignments
                return waits[-1]

            writes._wait = wait_and_be_late
            await one.metadata.writes.delete_topic("t")
            assert waits == [True] and "t" not in view.assignments

    asyncio.run(story())


def test_who_waits_is_let_go_at_a_stop(place, tmp_path):
    async def story():
        async with apart(place, tmp_path) as one:
            await one.metadata.register(endpoints(1), None)
            waiting = asyncio.ensure_future(one.metadata.writes.create_topic(topic("t")))
            await one.until(lambda: "t" in one.metadata.topics)
            await one.metadata.stop()
            with pytest.raises(KafkaError):
                await waiting

    asyncio.run(story())


# -- from a broker by itself to one of a cluster


def test_topics_of_a_journal_are_not_lost_and_are_adopted_once(place, tmp_path):
    async def story():
        old = StandaloneMetadata(tmp_path, cluster_id=CLUSTER)
        await old.start()
        kept = topic("kept", 2, 0, **{"retention.ms": "-1"})
        await old.create_topic(kept)
        await old.set_leader_epoch("kept", 1, 6)
        await old.set_broker_config("0", {"a": "b"})
        await old.next_producer_id_block()
        await old.stop()
        with pytest.raises(ConfigError, match=r"has topics that ZooKeeper does not know \(kept\): start with --adopt"):
            await Member(place, tmp_path, cluster_id=CLUSTER).metadata.start()
        async with member(place, tmp_path, cluster_id=CLUSTER, adopts=True) as one:
            await one.until(lambda: all(p.leader == 1 for p in one.metadata.topics["kept"].partitions.values()))
            found = one.metadata.topics["kept"]
            assert found.topic_id == kept.topic_id and found.config == kept.config
            assert [p.leader_epoch for p in found.partitions.values()] == [1, 7], "they go on from where they were"
            assert one.metadata.broker_configs == {"0": {"a": "b"}}
            assert (await one.metadata.writes.next_producer_id_block()).start >= 1000
            assert not (tmp_path / JOURNAL_NAME).exists()
            await one.metadata.writes.delete_topic("kept")
        async with member(place, tmp_path, cluster_id=CLUSTER) as one:
            assert not one.metadata.topics, "and nobody asks for it again"

    asyncio.run(story())


def test_a_journal_with_another_topic_of_that_name_is_not_mixed_up(place, tmp_path):
    async def story():
        async with member(place, tmp_path / "2", 2, cluster_id=None) as two:
            await two.metadata.writes.create_topic(topic("t", broker=2))
            old = StandaloneMetadata(tmp_path, cluster_id=two.metadata.cluster_id)
            await old.start()
            await old.create_topic(topic("t", broker=0))
            await old.stop()
            for adopts in (False, True):
                with pytest.raises(ConfigError, match=r"the topic t in .* and the one in ZooKeeper are two"):
                    await Member(place, tmp_path, adopts=adopts).metadata.start()

    asyncio.run(story())


# -- size


@pytest.mark.long
def test_two_thousand_topics_are_known_after_a_start(place, tmp_path):
    async def story():
        async with member(place, tmp_path / "1") as one:
            await one.metadata.adopt([topic(f"topic-{i}", 5, k="v") for i in range(2000)])
            async with apart(place, tmp_path / "2", 2) as two:
                assert len(two.metadata.topics) == 2000
                assert all(len(each.partitions) == 5 for each in two.metadata.topics.values())

    asyncio.run(story())


# -- chance


def picture_of(one: Member) -> tuple[object, ...]:
    view = one.metadata.view
    return view.topics, view.brokers, view.broker_configs, view.controller_id, view.deletions, view.states


async def misfortunes(random: Random, cuts: list[Cut], count: int) -> None:
    """Connections break and come back, some after their session's end."""
    for _ in range(count):
        cut = random.choice(cuts)
        cut.cut()
        await asyncio.sleep(random.choice([0.01, 0.1, 2 * SHORT_MS / 1000]))
        cut.mend()
        await asyncio.sleep(random.choice([0.01, 0.1, 0.5]))


async def errands(one: Member, random: Random, done: asyncio.Event) -> int:
    """Ask for one thing after another; what is refused is refused."""
    count = 0
    while not done.is_set():
        metadata, name = one.metadata, random.choice("abc")
        chance = random.random()
        try:
            async with asyncio.timeout(2):
                if chance < 0.4:
                    await metadata.writes.create_topic(topic(name, 3, metadata.broker_id))
                elif chance < 0.6:
                    await metadata.writes.delete_topic(name)
                elif chance < 0.8:
                    await metadata.writes.set_topic_config(name, {"k": str(chance)})
                else:
                    await metadata.writes.set_broker_config("1", {"k": str(chance)})
            count += 1
        except (KafkaError, TimeoutError):
            await asyncio.sleep(0.02)
    return count


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_whatever_happened_all_see_what_is_there(zookeeper, chroot, tmp_path, seed):
    async def story():
        random = Random(seed)
        cuts = [Cut(zookeeper.connect) for _ in range(3)]
        many = [
            Member(
                cut.connect + chroot,
                tmp_path / str(i),
                i,
                session={"session_timeout_ms": SHORT_MS},
                change_timeout_ms=1000,
            )
            for i, cut in enumerate(cuts)
        ]
        for one in many:
            await one.metadata.start()
            await one.join()
        done = asyncio.Event()
        working = [asyncio.ensure_future(errands(one, Random(seed + i), done)) for i, one in enumerate(many)]
        await misfortunes(random, cuts, 30)
        done.set()
        counts = await asyncio.gather(*working)
        assert all(counts), counts
        for one in many:
            await one.until_state(RegistrationState.MEMBER)
            await one.metadata.writes.set_broker_config("", {"k": str(one.metadata.broker_id)})

        def is_settled(one: Member) -> bool:
            topics = one.metadata.topics.values()
            led = all(p.leader == p.replicas[0] for each in topics for p in each.partitions.values())
            return led and set(one.metadata.brokers) == {0, 1, 2} and not one.metadata.view.deletions

        for one in many:
            await one.until(lambda one=one: is_settled(one))
        async with apart(zookeeper.connect + chroot, tmp_path / "witness", 9) as witness:
            for one in many:
                await one.metadata.session.read(["/"])  # what is heard comes before the next answer
                await one.metadata.catch_up()
                assert picture_of(one) == picture_of(witness)
        for one in many:
            await one.stop()
        for cut in cuts:
            cut.close()

    asyncio.run(story())
