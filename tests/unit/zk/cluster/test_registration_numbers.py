"""The number of a registration: it grows with each life and each session, and fences what an earlier one has sent."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import random_uuid
from kafkalite.metadata.cluster_metadata import NO_REGISTRATION, BrokerRecord, Change, RegistrationState
from kafkalite.zk.client.operations import BadVersion, Check, Create, Delete, Operation, SetData, Unavailable
from kafkalite.zk.cluster import registration_files
from kafkalite.zk.znodes import znode_data, znode_paths
from tests.support.zk.members import Member, apart, contents, endpoints, leads, member, topic
from tests.support.zk.visits import Visit, visit

NUMBER = "/kafkalite/registrations/1"
SHORT_MS = 600


@asynccontextmanager
async def registered(
    connect: str, directory: Path, broker_id: int = 1, *, tail_is_lost: bool = False, **options: object
) -> AsyncIterator[Member]:
    """Without a controller."""
    async with apart(connect, directory / str(broker_id), broker_id, **options) as one:
        if tail_is_lost:
            one.metadata.admit_lost_tail()
        await one.metadata.register(endpoints(broker_id), None)
        yield one


def record(one: Member) -> BrokerRecord:
    return one.metadata.brokers[1]


def test_each_life_has_another_number_and_the_node_stays(place, tmp_path):
    async def story():
        async with registered(place, tmp_path, 2) as other:
            assert other.metadata.registration == 1
            for number in (1, 2, 3):
                async with registered(place, tmp_path) as one:
                    assert one.metadata.registration == record(one).registration == number
                    assert not record(one).stopping and record(one).intact is (number > 1)
                    await other.until(lambda: 1 in other.metadata.brokers)
                    assert other.metadata.brokers[1] == record(one), "a broker that lives has its number everywhere"
                await other.until(lambda: 1 not in other.metadata.brokers)
                (node,) = await other.metadata.session.read([NUMBER])
                assert (node.version, node.ephemeral_owner) == (number, 0)

    asyncio.run(story())


def test_nobody_has_a_number_before_it_registers(place, tmp_path):
    async def story():
        async with apart(place, tmp_path) as one:
            assert one.metadata.registration == NO_REGISTRATION

    asyncio.run(story())


def test_another_session_has_another_number(place, chroot, cut, tmp_path):
    async def story():
        short = {"session_timeout_ms": SHORT_MS}
        async with (
            registered(cut.connect + chroot, tmp_path, session=short) as one,
            registered(place, tmp_path, 2) as two,
        ):
            cut.cut()
            await two.until(lambda: 1 not in two.metadata.brokers)
            cut.mend()
            await two.until(lambda: 1 in two.metadata.brokers)
            assert record(two).registration == 2 and record(two).intact, "the process has lost nothing"
            await one.until_state(RegistrationState.MEMBER)
            assert one.metadata.registration == 2

    asyncio.run(story())


def test_the_same_session_keeps_its_number(place, chroot, cut, tmp_path):
    async def story():
        async with registered(cut.connect + chroot, tmp_path) as one:
            cut.cut()
            await one.until_state(RegistrationState.DISCONNECTED)
            cut.mend()
            await one.until_state(RegistrationState.MEMBER)
            await one.metadata.register(endpoints(1, "elsewhere"), None)
            assert one.metadata.registration == record(one).registration == 1

    asyncio.run(story())


def test_a_number_that_somebody_raised_is_raised_again(place, tmp_path):
    async def story():
        async with registered(place, tmp_path) as one, visit(place) as vandal:
            epoch = record(one).epoch
            await vandal.session.write([SetData(NUMBER, b'{"version":1,"stopping":true,"intact":false}')])
            await one.until(lambda: record(one).registration == 3)
            await one.until(lambda: one.metadata.registration == 3)
            assert not record(one).stopping and record(one).epoch == epoch
            assert one.metadata.registration_state is RegistrationState.MEMBER

    asyncio.run(story())


def test_a_broker_with_a_taken_id_raises_no_number(place, tmp_path):
    async def story():
        async with registered(place, tmp_path) as one, apart(place, tmp_path / "thief") as thief:
            with pytest.raises(ConfigError, match="is taken"):
                await thief.metadata.register(endpoints(1, "there"), None)
            (node,) = await thief.metadata.session.read([NUMBER])
            assert node.version == one.metadata.registration

    asyncio.run(story())


def test_a_broker_that_begins_to_stop_says_so_and_stays_registered(place, tmp_path):
    async def story():
        async with registered(place, tmp_path) as one, registered(place, tmp_path, 2) as two:
            for each in (one, two):
                await each.until(lambda each=each: set(each.metadata.brokers) == {1, 2})
            before = record(two)
            one.told.clear()
            two.told.clear()
            await one.metadata.begin_to_stop()
            assert record(one) == before._replace(stopping=True, registration=2)
            assert one.told == [(Change.BROKERS, "")]
            assert one.metadata.registration == 1, "its fetches go on under the number that they had"
            assert one.metadata.registration_state is RegistrationState.MEMBER
            await two.until(lambda: record(two).stopping)
            assert two.told == [(Change.BROKERS, "")]
            await one.metadata.begin_to_stop()
            assert record(one).registration == 2
            assert await contents(two.metadata.session, NUMBER) == [{"version": 1, "stopping": True, "intact": False}]
            await one.metadata.unregister()
            await one.metadata.register(endpoints(1), None)
            assert one.metadata.registration == 3 and not record(one).stopping

    asyncio.run(story())


def test_a_stop_that_cannot_be_announced_is_logged_and_an_unregistered_broker_has_none(
    place, chroot, cut, tmp_path, caplog
):
    async def story():
        async with apart(cut.connect + chroot, tmp_path) as one:
            await one.metadata.begin_to_stop()
            assert await one.metadata.session.read([NUMBER]) == [None]
            await one.metadata.register(endpoints(1), None)
            cut.cut()
            await one.until_state(RegistrationState.DISCONNECTED)
            await one.metadata.begin_to_stop()
            assert "broker 1 cannot announce that it is about to stop" in caplog.text and not record(one).stopping
            cut.mend()
            await one.until_state(RegistrationState.MEMBER)

    asyncio.run(story())


def test_a_session_that_ends_during_the_stop_is_followed_by_one_that_stops(place, chroot, cut, tmp_path):
    async def story():
        short = {"session_timeout_ms": SHORT_MS}
        async with (
            registered(cut.connect + chroot, tmp_path, session=short) as one,
            registered(place, tmp_path, 2) as two,
        ):
            await one.metadata.begin_to_stop()
            cut.cut()
            await two.until(lambda: 1 not in two.metadata.brokers)
            cut.mend()
            await two.until(lambda: 1 in two.metadata.brokers)
            assert record(two).stopping and record(two).registration == 3
            assert one.metadata.registration == 2, "a number under which nobody is added"

    asyncio.run(story())


class Post:
    """The requests of a session that were sent and have yet to arrive; its owner hears that the connection is lost."""

    def __init__(self, one: Member, monkeypatch: pytest.MonkeyPatch) -> None:
        self.late: list[list[Operation]] = []
        self._send = one.metadata.session.write
        monkeypatch.setattr(one.metadata.session, "write", self._hold)

    async def _hold(self, operations: Sequence[Operation]) -> list[str]:
        if not any(each.path in ("/brokers/ids/1", NUMBER) and not isinstance(each, Check) for each in operations):
            return await self._send(operations)
        self.late.append(list(operations))
        raise Unavailable("the connection is lost")

    async def arrive(self, carrier: Visit) -> None:
        for operations in self.late:
            with pytest.raises(BadVersion):
                await carrier.session.write(operations)


@pytest.mark.parametrize("request_of", ["a new life", "a registration", "a stop"])
def test_requests_of_an_earlier_life_that_arrive_late_change_nothing(place, tmp_path, monkeypatch, request_of):
    async def story():
        async with visit(place) as carrier:
            async with registered(place, tmp_path) as first:
                if request_of == "a stop":
                    post = Post(first, monkeypatch)
                    await first.metadata.begin_to_stop()
                monkeypatch.undo()
            if request_of != "a stop":
                async with apart(place, tmp_path / "1") as first:
                    session = first.metadata.session
                    session.settings = session.settings._replace(connection_timeout_ms=1)  # it tries twice
                    post = Post(first, monkeypatch)
                    if request_of == "a registration":
                        await _raise_only(first, post, monkeypatch)
                    with pytest.raises(ConfigError, match="cannot register"):
                        await first.metadata.register(endpoints(1), None)
                    monkeypatch.undo()
            assert len(post.late) == (1 if request_of == "a stop" else 2)
            async with registered(place, tmp_path) as second:
                before = await carrier.session.read([NUMBER, "/brokers/ids/1"])
                await post.arrive(carrier)
                assert await carrier.session.read([NUMBER, "/brokers/ids/1"]) == before
                assert second.metadata.registration == before[0].version
            if request_of == "a registration":  # nor when the second life has gone
                await post.arrive(carrier)
                assert await carrier.session.read(["/brokers/ids/1"]) == [None]

    asyncio.run(story())


async def _raise_only(one: Member, post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the number be raised, and holds only the registration itself."""

    async def hold(operations: Sequence[Operation]) -> list[str]:
        if any(isinstance(each, Create) and each.ephemeral for each in operations):
            return await post._hold(operations)
        return await post._send(operations)

    monkeypatch.setattr(one.metadata.session, "write", hold)


@pytest.mark.parametrize("lost_at", range(4))
def test_a_registration_whose_answers_are_lost_is_carried_on(place, tmp_path, monkeypatch, lost_at):
    """ZooKeeper has done it, and the connection breaks before the answer: of the first number, of the next one, of the
    registration, of the stop."""

    async def story():
        async with apart(place, tmp_path) as one:
            session = one.metadata.session
            send, sent = session.write, 0

            async def lose(operations: Sequence[Operation]) -> list[str]:
                nonlocal sent
                done = await send(operations)
                sent += 1
                if sent == lost_at + 1:
                    raise Unavailable("the connection is lost")
                return done

            monkeypatch.setattr(session, "write", lose)
            await one.metadata.register(endpoints(1), None)
            assert one.metadata.registration == record(one).registration
            if lost_at == 3:
                await one.metadata.begin_to_stop()
            await one.metadata.begin_to_stop()
            await one.until(lambda: record(one).stopping)
            assert record(one).registration == one.metadata.registration + 1
            assert one.metadata.registration_state is RegistrationState.MEMBER

    asyncio.run(story())


def test_somebody_took_all_numbers_away(place, tmp_path):
    async def story():
        async with registered(place, tmp_path) as one, visit(place) as vandal:
            await vandal.session.write([Delete(NUMBER), Delete("/kafkalite/registrations"), Delete("/brokers/ids/1")])
            await one.until(lambda: one.told.count((Change.REGISTRATION, "")) >= 3)
            assert record(one).registration == one.metadata.registration == 1

    asyncio.run(story())


@pytest.mark.parametrize("boots", [False, True])
def test_a_killed_broker_vouches_for_its_log_unless_the_machine_has_booted(place, tmp_path, monkeypatch, boots):
    async def story():
        async with registered(place, tmp_path):
            pass
        if boots:
            monkeypatch.setattr(registration_files, "boot_id", lambda: "another boot")
        async with registered(place, tmp_path) as one:
            assert record(one).intact is not boots
        async with registered(place, tmp_path) as one:
            assert record(one).intact
        clean = [tmp_path / "1"]
        monkeypatch.setattr(registration_files, "boot_id", lambda: "a third boot")
        async with registered(place, tmp_path, clean=clean) as one:
            assert record(one).intact, "it was shut down cleanly"

    asyncio.run(story())


def test_a_broker_whose_disk_has_failed_vouches_for_nothing_any_more(place, chroot, cut, tmp_path):
    async def story():
        short = {"session_timeout_ms": SHORT_MS}
        async with (
            registered(cut.connect + chroot, tmp_path, session=short) as one,
            registered(place, tmp_path, 2) as two,
        ):
            one.metadata.distrust_logs()
            cut.cut()
            await two.until(lambda: 1 not in two.metadata.brokers)
            cut.mend()
            await two.until(lambda: 1 in two.metadata.brokers)
            assert not record(two).intact
        async with registered(place, tmp_path, clean=[tmp_path / "1"]) as one:
            assert not record(one).intact

    asyncio.run(story())


def test_a_broker_that_has_lost_a_tail_vouches_again_once_it_has_left_the_lists(place, tmp_path):
    """Were it to leave them again after an orderly restart, the one member left might be a broker that has really lost
    its tail."""

    async def story():
        async with registered(place, tmp_path):
            pass
        async with registered(place, tmp_path, tail_is_lost=True, clean=[tmp_path / "1"]) as one:
            assert not record(one).intact
        async with registered(place, tmp_path, clean=[tmp_path / "1"]) as one:
            assert record(one).intact

    asyncio.run(story())


def test_a_list_that_it_came_into_while_cut_off_is_left(place, chroot, cut, tmp_path):
    """Its leader wrote that before the session was over, and no watch tells of it."""

    async def story():
        short = {"session_timeout_ms": SHORT_MS}
        async with (
            registered(place, tmp_path, 2) as two,
            registered(cut.connect + chroot, tmp_path, session=short) as one,
        ):
            node = znode_data.topic_json(znode_data.TopicNode({0: (2, 1)}, random_uuid()))
            data = znode_data.state_json(znode_data.StateNode(2, 4, (2,), 7))
            path = znode_paths.state("t", 0)
            parents = [Create(znode_paths.partitions("t")), Create(znode_paths.partition("t", 0))]
            await two.metadata.session.write([Create(znode_paths.topic("t"), node), *parents, Create(path, data)])
            await one.until(lambda: "t" in one.metadata.topics and one.metadata.topics["t"].partitions[0].isr == (2,))
            one.metadata.distrust_logs()
            cut.cut()
            joined = znode_data.state_json(znode_data.StateNode(2, 4, (2, 1), 7))
            await two.metadata.session.write([SetData(path, joined)])
            await two.until(lambda: 1 not in two.metadata.brokers)
            cut.mend()
            await two.until(lambda: 1 in two.metadata.brokers)
            (state,) = await two.metadata.session.read([path])
            assert state is not None and znode_data.parse_state(state.data).isr == (2,)

    asyncio.run(story())


@pytest.mark.parametrize("announced", [True, False])
def test_also_if_the_disk_refuses_to_take_that_down(place, tmp_path, monkeypatch, announced):
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    async def story():
        with monkeypatch.context() as patch:
            async with registered(place, tmp_path) as one:
                patch.setattr(Path, "write_text", refuse)
                one.metadata.distrust_logs()
                if announced:
                    await one.metadata.begin_to_stop()
                await one.metadata.unregister()
        async with registered(place, tmp_path) as one:
            assert not record(one).intact
        async with registered(place, tmp_path) as one:
            assert record(one).intact

    asyncio.run(story())


def test_a_leader_by_itself_is_elected_anew_by_the_controller_alone(place, tmp_path, monkeypatch):
    async def story():
        async with member(place, tmp_path) as one:
            await one.metadata.writes.create_topic(topic("t"))
        monkeypatch.setattr(registration_files, "boot_id", lambda: "another boot")
        async with member(place, tmp_path) as one:
            await one.until(lambda: leads(one, "t", 1) and one.metadata.topics["t"].partitions[0].leader_epoch > 0)
            assert not record(one).intact and one.metadata.topics["t"].partitions[0].leader_epoch == 1

    asyncio.run(story())
