"""ISRs on a real ZooKeeper: who joins and who is refused, lost answers, many at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import random_uuid
from kafkalite.metadata.cluster_metadata import Change, RegistrationState
from kafkalite.metadata.partition_state import IsrState, WriteIsr, WriteOutcome
from kafkalite.zk.client.operations import Create, Delete, Node, Operation, SetData, Unavailable
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.znodes import znode_data, znode_paths
from kafkalite.zk.znodes.znode_data import StateNode, TopicNode
from tests.support.zk.members import Member, apart, contents, endpoints

WRITTEN, BAD_VERSION, REFUSED, UNKNOWN = WriteOutcome
STATE = StateNode(1, 4, (1,), 9)


def write(*isr: int, at: int = 0, elr: Sequence[int] = (), **joining: int) -> WriteIsr:
    """`b2=7`: broker 2 joins with registration 7."""
    return WriteIsr(frozenset(isr), frozenset(elr), at, {int(name[1:]): number for name, number in joining.items()})


def topic(name: str, count: int, state: StateNode = STATE) -> list[Operation]:
    """A topic of brokers 3, 2 and 1 that broker 1 leads."""
    node = TopicNode(dict.fromkeys(range(count), (3, 2, 1)), random_uuid())
    operations: list[Operation] = [
        Create(znode_paths.topic(name), znode_data.topic_json(node)),
        Create(znode_paths.partitions(name)),
    ]
    for number in range(count):
        operations.append(Create(znode_paths.partition(name, number)))
        operations.append(Create(znode_paths.state(name, number), znode_data.state_json(state)))
    return operations


@asynccontextmanager
async def broker(connect: str, directory: Path, broker_id: int) -> AsyncIterator[Member]:
    """Registered, without a controller."""
    async with apart(connect, directory / str(broker_id), broker_id) as one:
        await one.metadata.register(endpoints(broker_id), None)
        yield one


@asynccontextmanager
async def leader_and_follower(
    connect: str, directory: Path, count: int = 1, state: StateNode = STATE
) -> AsyncIterator[tuple[Member, Member]]:
    """Broker 1, which leads `count` partitions of the topic t, and broker 2; both know everything."""
    async with broker(connect, directory, 1) as leader, broker(connect, directory, 2) as follower:
        for first in range(0, count, 200):
            operations = topic("t", count, state)
            made = operations[:2] if first == 0 else []
            await leader.metadata.session.write(made + operations[2 + 2 * first : 2 + 2 * (first + 200)])
        await leader.until(lambda: 2 in leader.metadata.brokers)
        for one in (leader, follower):
            await one.until(lambda one=one: one.metadata.topics and len(one.metadata.view.states.get("t", ())) == count)
        yield leader, follower


def test_a_follower_joins_as_it_fetched(place, tmp_path):
    async def story():
        async with leader_and_follower(place, tmp_path) as (leader, follower):
            number = follower.metadata.registration
            assert leader.metadata.brokers[2].registration == number > 0
            leader.told.clear()
            assert await leader.metadata.isr_writes.write_isr("t", 0, write(1, 2, b2=number)) is WRITTEN
            state = leader.metadata.topics["t"].partitions[0]
            assert (state.isr, state.partition_epoch, state.leader, state.leader_epoch) == ((1, 2), 1, 1, 4)
            assert await contents(leader.metadata.session, znode_paths.state("t", 0)) == [
                {"controller_epoch": 9, "leader": 1, "version": 1, "leader_epoch": 4, "isr": [1, 2]}
            ], "as Kafka's leader writes it"
            await follower.until(lambda: follower.metadata.topics["t"].partitions[0] == state)
            await leader.metadata.catch_up()
            assert leader.told == [(Change.PARTITION_STATE, "t")], "its own write is told once"
            assert await leader.metadata.isr_writes.write_isr("t", 0, write(1, at=1, elr=[2])) is WRITTEN
            assert leader.metadata.topics["t"].partitions[0].elr == (2,)
            assert await leader.metadata.isr_writes.read_isr("t", 0) == IsrState(
                1, 4, frozenset({1}), frozenset({2}), 2
            )
            ((node,),) = ([each] for each in await contents(leader.metadata.session, znode_paths.state("t", 0)))
            assert node["elr"] == [2]

    asyncio.run(story())


def test_who_is_not_registered_as_it_fetched_does_not_join(place, tmp_path):
    async def story():
        async with leader_and_follower(place, tmp_path) as (leader, follower):
            metadata, number = leader.metadata, follower.metadata.registration
            for stale in (number - 1, number + 1, -1, 0):
                assert await metadata.isr_writes.write_isr("t", 0, write(1, 2, b2=stale)) is REFUSED
            assert await metadata.isr_writes.write_isr("t", 0, write(1, 3, b3=1)) is REFUSED, "never registered"
            await follower.metadata.begin_to_stop()
            assert await metadata.isr_writes.write_isr("t", 0, write(1, 2, b2=number)) is REFUSED, "it is about to stop"
            await follower.metadata.unregister()
            assert await metadata.isr_writes.write_isr("t", 0, write(1, 2, b2=number + 1)) is REFUSED, "it is gone"
            await follower.metadata.register(endpoints(2), None)
            assert await metadata.isr_writes.write_isr("t", 0, write(1, 2, b2=number)) is REFUSED, "another life"
            assert (
                await metadata.isr_writes.write_isr("t", 0, write(1, 2, b2=follower.metadata.registration)) is WRITTEN
            )

    asyncio.run(story())


def test_a_state_that_others_have_written_is_not_overwritten(place, tmp_path):
    async def story():
        async with leader_and_follower(place, tmp_path, state=STATE._replace(isr=(2, 1))) as (leader, follower):
            path = znode_paths.state("t", 0)
            await follower.metadata.session.write([SetData(path, znode_data.state_json(StateNode(2, 5, (2,), 10)), 0)])
            assert await leader.metadata.isr_writes.write_isr("t", 0, write(1)) is BAD_VERSION
            assert await leader.metadata.isr_writes.read_isr("t", 0) == IsrState(2, 5, frozenset({2}), frozenset(), 1)
            assert leader.metadata.topics["t"].partitions[0].leader == 2, "the view has it, too"
            assert await leader.metadata.isr_writes.write_isr("t", 0, write(1)) is BAD_VERSION
            tree = [path, znode_paths.partition("t", 0), znode_paths.partitions("t"), znode_paths.topic("t")]
            await follower.metadata.session.write([Delete(each) for each in tree])
            assert await leader.metadata.isr_writes.write_isr("t", 0, write(1, at=1)) is BAD_VERSION
            assert await leader.metadata.isr_writes.read_isr("t", 0) is None
            assert await leader.metadata.isr_writes.write_isr("never", 0, write(1)) is BAD_VERSION

    asyncio.run(story())


async def make_anew(session: ZooKeeperSession, name: str, state: StateNode) -> None:
    """The topic, of one partition, is deleted, and another one of that name created."""
    parents = [znode_paths.partition(name, 0), znode_paths.partitions(name), znode_paths.topic(name)]
    tree = [znode_paths.state(name, 0), *parents]
    counted = SetData(znode_paths.TOPIC_DELETIONS, b"")
    await session.write([*(Delete(each) for each in tree), counted, *topic(name, 1, state)])


def test_the_next_topic_of_that_name_does_not_get_the_isr_of_the_last(place, tmp_path, monkeypatch):
    """Its state has the same version, and the write is sent before the leader hears of it."""

    async def story():
        async with leader_and_follower(place, tmp_path, state=STATE._replace(isr=(1, 2))) as (leader, follower):
            metadata, send = leader.metadata, leader.metadata.session.write
            sent: list[Sequence[Operation]] = []

            async def late(operations: Sequence[Operation]) -> list[str]:
                sent.append(operations)
                await make_anew(follower.metadata.session, "t", StateNode(2, 0, (2,), 9))
                return await send(operations)

            monkeypatch.setattr(metadata.session, "write", late)
            assert await metadata.isr_writes.write_isr("t", 0, write(1)) is UNKNOWN and len(sent) == 1
            monkeypatch.setattr(metadata.session, "write", send)
            assert await metadata.isr_writes.read_isr("t", 0) == IsrState(2, 0, frozenset({2}), frozenset(), 0)
            assert await metadata.isr_writes.write_isr("t", 0, write(1, 2)) is WRITTEN, "for the new one"

    asyncio.run(story())


def test_a_leader_that_was_away_and_has_not_read_everything_yet_writes_no_isr_of_the_last_topic(
    place, chroot, cut, tmp_path, monkeypatch
):
    """It is not notified that its topic was deleted and made anew while it had no connection."""

    async def story():
        async with broker(cut.connect + chroot, tmp_path, 1) as leader, broker(place, tmp_path, 2) as follower:
            metadata, session = leader.metadata, follower.metadata.session
            is_back, goes_on = asyncio.Event(), asyncio.Event()
            hold = metadata.lifecycle.registration.hold

            async def hold_late() -> Node:  # which comes before the reading
                is_back.set()
                await goes_on.wait()
                return await hold()

            monkeypatch.setattr(metadata.lifecycle.registration, "hold", hold_late)
            for name in ("t", "u"):
                await session.write(topic(name, 1, STATE._replace(isr=(1, 2))))
            await leader.until(lambda: {"t", "u"} <= metadata.topics.keys() and len(metadata.view.states) == 2)
            cut.cut()
            await leader.until_state(RegistrationState.DISCONNECTED)
            await make_anew(session, "t", StateNode(2, 0, (2,), 9))
            cut.mend()
            await is_back.wait()
            assert await metadata.isr_writes.write_isr("u", 0, write(1)) is UNKNOWN
            assert await metadata.isr_writes.write_isr("t", 0, write(1)) is UNKNOWN
            (node,) = await session.read([znode_paths.state("t", 0)])
            assert node is not None and node.version == 0
            goes_on.set()
            await leader.until(lambda: metadata.topics["t"].partitions[0].leader == 2)
            assert await metadata.isr_writes.write_isr("u", 0, write(1)) is WRITTEN

    asyncio.run(story())


def test_a_write_that_waits_is_not_for_the_next_topic_of_that_name(place, tmp_path, monkeypatch):
    async def story():
        async with leader_and_follower(place, tmp_path, state=STATE._replace(isr=(1, 2))) as (leader, follower):
            metadata, verify = leader.metadata, leader.metadata.isr_writes._until_verified

            async def wait() -> None:
                await verify()
                await make_anew(follower.metadata.session, "t", STATE)
                await leader.until(lambda: metadata.view.states["t"][0].node.czxid != created)

            created = metadata.view.states["t"][0].node.czxid
            monkeypatch.setattr(metadata.isr_writes, "_until_verified", wait)
            assert await metadata.isr_writes.write_isr("t", 0, write(1)) is BAD_VERSION
            assert metadata.view.states["t"][0].node.version == 0

    asyncio.run(story())


@pytest.mark.parametrize("is_done", [True, False])
def test_an_answer_that_is_lost_is_unknown_and_the_state_tells(place, tmp_path, monkeypatch, is_done):
    async def story():
        async with leader_and_follower(place, tmp_path) as (leader, follower):
            session = leader.metadata.session
            send = session.write

            async def lose(operations: Sequence[Operation]) -> list[str]:
                if is_done:
                    await send(operations)
                raise Unavailable("the connection is lost")

            wanted = write(1, 2, b2=follower.metadata.registration)
            monkeypatch.setattr(session, "write", lose)
            assert await leader.metadata.isr_writes.write_isr("t", 0, wanted) is UNKNOWN
            monkeypatch.setattr(session, "write", send)
            state = await leader.metadata.isr_writes.read_isr("t", 0)
            assert state is not None and state.partition_epoch == int(is_done)
            assert await leader.metadata.isr_writes.write_isr("t", 0, wanted) is (BAD_VERSION if is_done else WRITTEN)
            assert leader.metadata.topics["t"].partitions[0].isr == (1, 2)

    asyncio.run(story())


def test_without_a_connection_everything_is_unknown_and_works_again_afterwards(place, chroot, cut, tmp_path):
    async def story():
        async with leader_and_follower(cut.connect + chroot, tmp_path) as (leader, follower):
            wanted = write(1, 2, b2=follower.metadata.registration)
            cut.silence()
            waiting = asyncio.ensure_future(leader.metadata.isr_writes.write_isr("t", 0, wanted))
            reading = asyncio.ensure_future(leader.metadata.isr_writes.read_isr("t", 0))
            await asyncio.sleep(0)
            cut.cut()
            assert await waiting is UNKNOWN
            with pytest.raises(KafkaError) as caught:
                await reading
            assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
            assert await leader.metadata.isr_writes.write_isr("t", 0, wanted) is UNKNOWN
            cut.mend()
            await leader.until_state(RegistrationState.MEMBER)
            outcome = await leader.metadata.isr_writes.write_isr("t", 0, wanted)
            assert outcome in (WRITTEN, BAD_VERSION) and leader.metadata.topics["t"].partitions[0].isr == (1, 2)
            await leader.stop()
            assert await leader.metadata.isr_writes.write_isr("t", 0, write(1, at=1)) is UNKNOWN
            with pytest.raises(KafkaError):
                await leader.metadata.isr_writes.read_isr("t", 0)

    asyncio.run(story())


def test_many_at_once_are_a_few_transactions_and_each_has_its_own_outcome(place, tmp_path, monkeypatch):
    async def story():
        async with leader_and_follower(place, tmp_path, count=600) as (leader, follower):
            metadata, number = leader.metadata, follower.metadata.registration
            sent: list[int] = []
            send = metadata.session.write

            async def count(operations: Sequence[Operation]) -> list[str]:
                sent.append(len(operations))
                return await send(operations)

            monkeypatch.setattr(metadata.session, "write", count)
            elected = znode_data.state_json(StateNode(2, 5, (2,), 10))
            moved = set(range(0, 600, 7))
            other = follower.metadata.session
            for first in range(0, 600, 350):
                some = [n for n in sorted(moved) if first <= n < first + 350]
                await other.write([SetData(znode_paths.state("t", n), elected, 0) for n in some])
            leader.told.clear()
            outcomes = await asyncio.gather(
                *(
                    metadata.isr_writes.write_isr("t", n, write(1, 2, b2=number if n % 5 else number - 1))
                    for n in range(600)
                )
            )
            for n, outcome in enumerate(outcomes):
                expected = BAD_VERSION if n in moved else WRITTEN if n % 5 else REFUSED
                assert outcome is expected or (n in moved and n % 5 == 0 and outcome is REFUSED), n
                assert outcome is not WRITTEN or metadata.topics["t"].partitions[n].isr == (1, 2)
            assert len(sent) < 20, sent
            states = await asyncio.gather(*(metadata.isr_writes.read_isr("t", n) for n in moved))
            assert all(state is not None and state.leader == 2 for state in states)

    asyncio.run(story())


def test_a_caller_that_gives_up_harms_no_other(place, tmp_path):
    async def story():
        async with leader_and_follower(place, tmp_path, count=2) as (leader, _):
            metadata = leader.metadata
            one = asyncio.ensure_future(metadata.isr_writes.write_isr("t", 0, write(1)))
            two = asyncio.ensure_future(metadata.isr_writes.write_isr("t", 1, write(1)))
            await asyncio.sleep(0)
            one.cancel()
            assert await two is WRITTEN
            assert await metadata.isr_writes.read_isr("t", 1) == IsrState(1, 4, frozenset({1}), frozenset(), 1)

    asyncio.run(story())


def test_a_leader_that_was_elected_uncleanly_has_recovered_when_it_writes(place, tmp_path):
    async def story():
        async with leader_and_follower(place, tmp_path, state=STATE._replace(recovery=1)) as (leader, follower):
            wanted = write(1, 2, b2=follower.metadata.registration)
            assert await leader.metadata.isr_writes.write_isr("t", 0, wanted) is WRITTEN
            (node,) = await contents(leader.metadata.session, znode_paths.state("t", 0))
            assert "leader_recovery_state" not in node

    asyncio.run(story())
