"""This broker's own node, and how it stands: the first of a cluster, taken numbers, old sessions, outages, fencing."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError, ErrorCode, KafkaError
from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import Change, RegistrationState
from kafkalite.zk.client.operations import Delete, SetData
from kafkalite.zk.cluster import broker_registration
from kafkalite.zk.cluster.session_file import FILE_NAME
from tests.support.zk.members import Member, apart, endpoints, leads, member, said, topic
from tests.support.zk.visits import visit
from tests.support.zookeeper import Cut, ZooKeeper, without_zookeeper

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
SHORT_MS = 600  # of a session that is to end soon


# -- ids


def test_the_first_founds_the_cluster_and_who_is_of_another_one_is_told_both(place, tmp_path):
    async def story():
        with pytest.raises(ConfigError, match=rf"{CLUSTER} \(meta.properties\), and .* knows no cluster.*--adopt"):
            await Member(place, tmp_path, cluster_id=CLUSTER).metadata.start()
        async with apart(place, tmp_path, cluster_id=CLUSTER, adopts=True) as one:
            assert one.metadata.cluster_id == CLUSTER
        async with apart(place, tmp_path) as one:
            assert one.metadata.cluster_id == CLUSTER
            await one.metadata.session.write([SetData("/cluster/id", b'{"version":"1","id":"other"}')])
        with pytest.raises(ConfigError, match=rf"belongs to the cluster {CLUSTER} .* leads to the cluster other"):
            await Member(place, tmp_path, cluster_id=CLUSTER).metadata.start()
        async with visit(place) as vandal:
            await vandal.session.write([SetData("/cluster/id", b"rotten")])
        with pytest.raises(ConfigError, match="/cluster/id is not understood"):
            await Member(place, tmp_path).metadata.start()

    asyncio.run(story())


def test_many_first_brokers_found_one_cluster(place, tmp_path):
    async def story():
        many = [Member(place, tmp_path / str(i), -1) for i in range(5)]
        await asyncio.gather(*(one.metadata.start() for one in many))
        assert len({one.metadata.cluster_id for one in many}) == 1
        assert sorted(one.metadata.broker_id for one in many) == [1001, 1002, 1003, 1004, 1005]
        await asyncio.gather(*(one.metadata.stop() for one in many))

    asyncio.run(story())


def test_a_number_that_is_taken_is_an_error_that_names_the_other(place, tmp_path):
    async def story():
        async with member(place, tmp_path / "one"), apart(place, tmp_path / "two") as two:
            since = r"since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ"
            with pytest.raises(ConfigError, match=rf"broker.id=1 is taken: .* at PLAINTEXT://here:9093 .*{since}"):
                await two.metadata.register(endpoints(1, "there"), None)
            assert two.metadata.registration_state is RegistrationState.UNREGISTERED
            await two.metadata.session.write([SetData("/brokers/ids/1", b"rotten")])
            with pytest.raises(
                ConfigError, match=r"broker.id=1 is taken: /brokers/ids/1 exists in ZooKeeper \(session 0x"
            ):
                await two.metadata.register(endpoints(1, "there"), None)

    asyncio.run(story())


@asynccontextmanager
async def dying(cut: Cut, chroot: str, directory: Path, **options):
    """A broker that has lost its last connection and does not know what became of it: as dead as one can be here."""
    one = Member(cut.connect + chroot, directory, **options)
    await one.metadata.start()
    await one.join()
    await one.until(lambda: one.metadata.controller_id == 1)
    cut.cut()
    await one.until_state(RegistrationState.DISCONNECTED)
    try:
        yield one
    finally:
        cut.mend()
        await one.stop()


def test_what_a_killed_broker_left_is_taken_away_at_once(place, chroot, cut, tmp_path):
    async def story():
        async with dying(cut, chroot, tmp_path, session={"session_timeout_ms": 30_000}), visit(place) as witness:
            before = await witness.session.read(["/brokers/ids/1", "/controller"])
            assert all(before), "its session lives"
            begin = time.monotonic()
            async with apart(place, tmp_path, session={"session_timeout_ms": 30_000}) as again:
                assert await witness.session.read(["/brokers/ids/1", "/controller"]) == [None, None]
                await again.join()
                assert time.monotonic() - begin < 15, "half of a session's time"
                (after,) = await witness.session.read(["/brokers/ids/1"])
                assert after.czxid > before[0].czxid and after.ephemeral_owner == again.metadata.session.session_id

    asyncio.run(story())


@pytest.mark.parametrize("trace", ["lost", "torn", "copied"])
def test_a_session_that_is_not_known_is_waited_out(place, chroot, cut, tmp_path, trace):
    async def story():
        mine, other = tmp_path / "one", tmp_path / "two"
        async with dying(cut, chroot, mine, session={"session_timeout_ms": 1_500}):
            if trace == "copied":
                shutil.copytree(mine, other)
            else:
                (mine / FILE_NAME).write_bytes(b"" if trace == "lost" else (mine / FILE_NAME).read_bytes()[:-20])
            async with apart(place, other if trace == "copied" else mine) as again:
                assert (await again.metadata.session.read(["/brokers/ids/1"])) != [None]
                with pytest.raises(ConfigError, match="is taken"):
                    await again.metadata.register(endpoints(1, "there"), None)
                await again.join()
                assert again.metadata.registration_state is RegistrationState.MEMBER

    asyncio.run(story())


def test_two_that_have_everything_in_common_do_not_push_each_other_out(place, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(broker_registration, "_MARGIN_MS", 300)

    async def story():
        short = {"session_timeout_ms": 200}
        async with member(place, tmp_path / "one"), apart(place, tmp_path / "two", session=short) as two:
            with pytest.raises(ConfigError, match="is taken"):
                await two.metadata.register(endpoints(1), None)
            assert "waiting for its end" in caplog.text

    asyncio.run(story())


# -- the registration state


def test_a_lost_connection_changes_nothing_but_that_nothing_can_be_changed(place, chroot, cut, tmp_path):
    async def story():
        patient = {"session_timeout_ms": 30_000}
        async with (
            member(place, tmp_path / "2", 2) as two,  # the first, and so the controller
            member(cut.connect + chroot, tmp_path / "1", session=patient) as one,
        ):
            await two.until(lambda: two.metadata.controller_id == 2)
            await one.metadata.writes.create_topic(topic("t"))
            await one.metadata.writes.create_topic(topic("short-lived", broker=2))
            before = dict(one.metadata.topics)
            cut.cut()
            await one.until_state(RegistrationState.DISCONNECTED)
            assert one.metadata.topics == before
            for write in (
                one.metadata.writes.create_topic(topic("u")),
                one.metadata.writes.set_topic_config("t", {}),
                one.metadata.writes.delete_topic("t"),
                one.metadata.writes.next_producer_id_block(),
                one.metadata.writes.set_broker_config("1", {}),
                one.metadata.writes.set_leader_epoch("t", 0, 9),
            ):
                with pytest.raises(KafkaError, match=f"ZooKeeper, and {cut.connect}.* cannot be reached") as caught:
                    await write
                assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
            await two.metadata.writes.delete_topic("short-lived")
            await two.metadata.writes.set_topic_config("t", {"a": "b"})
            await two.metadata.writes.create_topic(topic("meanwhile", broker=2))
            epoch = one.metadata.brokers[1].epoch
            one.told.clear()
            cut.mend()
            await one.until_state(RegistrationState.MEMBER)
            assert one.metadata.topics == two.metadata.topics and set(one.metadata.topics) == {"t", "meanwhile"}
            assert one.metadata.brokers[1].epoch == epoch, "the same session, the same registration"
            assert one.told[-1] == (Change.REGISTRATION, ""), "it is a member when it knows everything"
            assert {(Change.TOPIC_DELETED, "short-lived"), (Change.TOPIC_CONFIG, "t")} <= set(one.told)

    asyncio.run(story())


def test_an_expired_session_is_followed_by_another_registration(place, chroot, cut, tmp_path):
    async def story():
        short = {"session_timeout_ms": SHORT_MS}
        async with (
            member(cut.connect + chroot, tmp_path / "1", session=short) as one,
            member(place, tmp_path / "2", 2) as two,
        ):
            await two.metadata.writes.create_topic(topic("t"))
            await one.until(lambda: leads(one, "t", 1))
            epoch = two.metadata.brokers[1].epoch
            cut.cut()
            await two.until(lambda: 1 not in two.metadata.brokers)
            await two.until(lambda: two.metadata.topics["t"].partitions[0].leader == NO_LEADER)
            assert (
                one.metadata.registration_state is RegistrationState.DISCONNECTED
                and one.metadata.topics["t"].partitions[0].leader == 1
            )
            cut.mend()
            await one.until_state(RegistrationState.FENCED)
            await one.until_state(RegistrationState.MEMBER)
            await two.until(lambda: two.metadata.topics["t"].partitions[0].leader == 1)
            assert two.metadata.brokers[1].epoch > epoch
            assert two.metadata.topics["t"].partitions[0].leader_epoch == 2

    asyncio.run(story())


def test_who_is_fenced_by_a_peer_leads_again_when_zookeeper_still_knows_it(chroot, cut, tmp_path):
    async def story():
        async with member(cut.connect + chroot, tmp_path) as one:
            one.metadata.lifecycle.fence("this is not believed while ZooKeeper says otherwise")
            assert one.metadata.registration_state is RegistrationState.MEMBER
            cut.cut()
            await one.until_state(RegistrationState.DISCONNECTED)
            one.metadata.lifecycle.fence("broker 2 says so")
            assert one.metadata.registration_state is RegistrationState.FENCED
            cut.mend()
            await one.until_state(RegistrationState.MEMBER)

    asyncio.run(story())


def test_a_registration_that_somebody_took_away_comes_back(place, tmp_path):
    async def story():
        async with member(place, tmp_path) as one, visit(place) as vandal:
            epoch = one.metadata.brokers[1].epoch
            one.told.clear()
            await vandal.session.write([Delete("/brokers/ids/1")])
            await one.until(lambda: one.told.count((Change.REGISTRATION, "")) == 2)
            assert one.metadata.registration_state is RegistrationState.MEMBER and one.metadata.brokers[1].epoch > epoch

    asyncio.run(story())


def test_a_number_that_another_took_meanwhile_is_had_again_when_it_goes(place, chroot, cut, tmp_path, caplog):
    async def story():
        short = {"session_timeout_ms": SHORT_MS}
        async with member(cut.connect + chroot, tmp_path / "1", session=short) as one, visit(place) as witness:
            cut.cut()
            await witness.session.watch_tree("/brokers/ids")
            while (await witness.session.read(["/brokers/ids/1"]))[0] is not None:
                await witness.until(lambda: witness.paths)
                witness.forget()
            async with apart(place, tmp_path / "2") as thief:
                await thief.metadata.register(endpoints(1, "there"), None)
                cut.mend()
                await one.until(lambda: one.metadata.brokers.get(1) == thief.metadata.brokers[1])
                assert one.metadata.registration_state is RegistrationState.FENCED
                await said(caplog, "broker.id=1 is taken: the broker at PLAINTEXT://there:9093")
            await one.until_state(RegistrationState.MEMBER)
            assert one.metadata.brokers[1].endpoints == endpoints(1)

    asyncio.run(story())


def test_a_zookeeper_that_lost_everything_is_not_believed(place, chroot, cut, tmp_path, caplog):
    async def story():
        async with member(cut.connect + chroot, tmp_path) as one:
            await one.metadata.writes.create_topic(topic("precious", 3))
            cut.cut()
            await one.until_state(RegistrationState.DISCONNECTED)
            async with visit(place) as vandal:
                level = ["/cluster", "/brokers"]
                everything = []
                while level:
                    everything += level
                    below = await vandal.session.children(level)
                    level = [f"{path}/{name}" for path, names in zip(level, below, strict=True) for name in names]
                await vandal.session.write([Delete(path) for path in reversed(everything)])
                one.told.clear()
                cut.mend()
                await said(caplog, "leads to the cluster (none) now")
                assert one.told == [] and one.metadata.topics["precious"].partitions[2].leader == 1
                assert one.metadata.registration_state is RegistrationState.DISCONNECTED
                with pytest.raises(KafkaError, match="still belongs to cluster") as caught:
                    await one.metadata.writes.create_topic(topic("t"))
                assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
                assert await vandal.session.children(["/config/topics"]) == [["precious"]]

    asyncio.run(story())


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "paused"])
def test_a_zookeeper_that_comes_back_finds_everything_as_it_was(tmp_path, how):
    """Its clock does not run while it is down, so no session ends; while it is paused, all of them do."""

    async def story():
        missing = without_zookeeper()
        if missing:
            pytest.skip(missing)
        with ZooKeeper(tmp_path / "zookeeper") as server:
            session = {"session_timeout_ms": 1_000}
            async with (
                member(server.connect, tmp_path / "1", session=session) as one,
                member(server.connect, tmp_path / "2", 2, session=session) as two,
            ):
                await one.metadata.writes.create_topic(topic("t"))
                await two.until(lambda: leads(two, "t", 1))
                before = one.metadata.brokers[1].epoch
                server.kill() if how == "killed" else server.pause()
                for each in (one, two):
                    await each.until_state(RegistrationState.DISCONNECTED)
                    assert each.metadata.topics["t"].partitions[0].leader == 1
                await asyncio.sleep(3)
                server.start() if how == "killed" else server.resume()
                for each in (one, two):
                    await each.until_state(RegistrationState.MEMBER)
                    await each.until(lambda each=each: set(each.metadata.brokers) == {1, 2})
                    await each.until(lambda each=each: leads(each, "t", 1))
                await two.metadata.writes.create_topic(topic("u"))
                assert (one.metadata.brokers[1].epoch == before) is (how == "killed")

    asyncio.run(story())
