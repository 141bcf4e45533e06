"""Random histories of a broker's registration and of ISR writes, on a ZooKeeper in memory that is disturbed: sessions
end, lines are cut, answers and requests are lost, processes are killed, machines boot."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from kafkalite.common.errors import ConfigError, KafkaError
from kafkalite.common.names import random_uuid
from kafkalite.metadata.cluster_metadata import RegistrationState
from kafkalite.metadata.partition_state import IsrState, WriteIsr
from kafkalite.replication.replica.effects import ReadIsr
from kafkalite.replication.replica.in_sync_replicas import COMMITTED, InSyncReplicas
from kafkalite.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper, ZooKeeperLine
from kafkalite.zk.client.operations import BadVersion, Create, SetData, Unavailable
from kafkalite.zk.cluster import registration_files
from kafkalite.zk.znodes import znode_data, znode_paths
from kafkalite.zk.znodes.znode_data import StateNode, TopicNode
from tests.support.zk.members import Member, endpoints

HISTORIES = 25
STEPS = 12
STATE = znode_paths.state("t", 0)


class Process:
    """Broker `broker_id`, life after life, on a line of its own."""

    def __init__(self, zookeeper: InMemoryZooKeeper, home: Path, broker_id: int) -> None:
        self.line: ZooKeeperLine = zookeeper.line()
        self.broker_id = broker_id
        self._home = home / str(broker_id)
        self.member: Member

    async def start(self) -> None:
        self.member = Member("in-memory", self._home, self.broker_id, session={"dial": self.line.dial})
        await self.member.metadata.start()
        await self.member.metadata.register(endpoints(self.broker_id), None)

    async def restart(self) -> None:
        """However often its start fails because answers are lost."""
        await self.stop()
        while True:
            try:
                await self.start()
                return
            except ConfigError:
                await self.stop()

    async def stop(self) -> None:
        await self.member.metadata.unregister()
        await self.member.metadata.stop()

    async def settle(self) -> None:
        """Until it is a member of whose registration its view has the latest."""
        self.line.mend()
        metadata = self.member.metadata
        async with asyncio.timeout(30):
            while True:
                await self.member.until_state(RegistrationState.MEMBER)
                with suppress(Unavailable):  # it has yet to hear of the end of the connection
                    await metadata.session.sync()
                    await metadata.catch_up()
                    record = metadata.brokers.get(self.broker_id)
                    if record is not None and record.registration - record.stopping == metadata.registration:
                        return
                await asyncio.sleep(0)


@asynccontextmanager
async def world(home: Path, *broker_ids: int) -> AsyncIterator[tuple[InMemoryZooKeeper, list[Process]]]:
    zookeeper = InMemoryZooKeeper()
    processes = [Process(zookeeper, home, broker_id) for broker_id in broker_ids]
    for process in processes:
        await process.start()
    try:
        yield zookeeper, processes
    finally:
        for process in processes:
            process.line.mend()
            await process.stop()
        zookeeper.close()
        shutil.rmtree(home, ignore_errors=True)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_number_means_one_life_and_only_grows(tmp_path, seed, monkeypatch):
    boots = 0
    monkeypatch.setattr(registration_files, "boot_id", lambda: f"boot-{boots}")

    async def history():
        nonlocal boots
        random = Random(seed)
        async with world(tmp_path / "home", 1, 2) as (_, (one, witness)):
            seen: dict[int, int] = {}  # the number of each registration, by its epoch
            highest = is_lost = 0
            for _ in range(STEPS):
                step = random.choice(
                    ["expire", "cut", "answer", "request", "restart", "boot", "stop", "vandal", "kill"]
                )
                if step == "expire":
                    one.line.expire()
                elif step == "cut":
                    one.line.cut()
                    await asyncio.sleep(0)
                    one.line.mend()
                elif step == "answer":
                    one.line.lose_answers(random.randint(1, 3))
                elif step == "request":
                    one.line.lose_requests(random.randint(1, 3))
                elif step == "restart":
                    await one.restart()
                elif step == "boot":  # without a clean stop
                    boots += 1
                    is_lost = 1
                    await one.restart()
                elif step == "stop":
                    await one.member.metadata.begin_to_stop()
                elif step == "vandal":
                    data = znode_data.registration_json(znode_data.RegistrationNode())
                    await witness.member.metadata.session.write([SetData(znode_paths.registration(1), data)])
                else:
                    one.line.expire()
                    await one.restart()
                await one.settle()
                record = one.member.metadata.brokers[1]
                number = one.member.metadata.registration
                assert number >= highest
                assert seen.setdefault(record.epoch, number) <= number
                assert all(epoch == record.epoch or other < number for epoch, other in seen.items())
                highest = max(highest, number)
                assert is_lost or record.intact or highest < 2 or step != "restart"

    asyncio.run(history())


class Leader:
    """The leader's side of one partition: a change is sent, and what follows from its outcome."""

    def __init__(self, process: Process, state: IsrState) -> None:
        self.process = process
        self.in_sync = InSyncReplicas(state)

    async def carry_out(self, effects: list[WriteIsr | ReadIsr]) -> None:
        metadata = self.process.member.metadata
        while effects:
            effect = effects.pop(0)
            if isinstance(effect, WriteIsr):
                effects += self.in_sync.on_write(effect, await metadata.isr_writes.write_isr("t", 0, effect))
                continue
            try:
                state = await metadata.isr_writes.read_isr("t", 0)
            except KafkaError:
                await self.process.settle()
                effects.append(effect)
                continue
            assert state is not None
            effects += self.in_sync.on_read(effect, state)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_leader_and_its_node_agree_whatever_gets_lost(tmp_path, seed):
    async def history():
        random = Random(seed)
        async with world(tmp_path / "home", 1, 2, 3) as (_, (leader, *others)):
            node = znode_data.topic_json(TopicNode({0: (1, 2, 3)}, random_uuid()))
            data = znode_data.state_json(StateNode(1, 4, (1,), 7))
            paths = [znode_paths.partitions("t"), znode_paths.partition("t", 0)]
            made = [Create(znode_paths.topic("t"), node), *map(Create, paths), Create(STATE, data)]
            await others[0].member.metadata.session.write(made)
            await leader.member.until(lambda: "t" in leader.member.metadata.view.states)
            replica = Leader(leader, await _read(leader))
            for _ in range(STEPS):
                disturbance: Callable[[], None] = random.choice(
                    [
                        lambda: leader.line.lose_answers(1),
                        lambda: leader.line.lose_requests(1),
                        leader.line.break_connection,
                        lambda: None,
                        lambda: None,
                    ]
                )
                in_sync, other = replica.in_sync, random.choice(others)
                if random.random() < 0.3:
                    await other.restart()
                number = other.member.metadata.registration - (random.random() < 0.2)
                if random.random() < 0.2:
                    await _elect_again(others[1])
                disturbance()
                if other.broker_id in in_sync.isr:
                    change = in_sync.shrink(frozenset({other.broker_id}), 2)
                else:
                    change = in_sync.expand(other.broker_id, number, 2)
                await replica.carry_out([change])
                await leader.settle()
                state = await _read(leader)
                if state.leader_epoch != in_sync.committed.leader_epoch:
                    replica.in_sync = InSyncReplicas(state)
                    continue
                assert in_sync.phase is COMMITTED and in_sync.committed == state
                if other.broker_id in state.isr and change.registrations:
                    assert number == other.member.metadata.registration, "it joined as it is registered"

    asyncio.run(history())


async def _read(process: Process) -> IsrState:
    state = await process.member.metadata.isr_writes.read_isr("t", 0)
    assert state is not None
    return state


async def _elect_again(process: Process) -> None:
    """As a controller does: the same leader, under another epoch."""
    session = process.member.metadata.session
    while True:
        (node,) = await session.read([STATE])
        assert node is not None
        state = znode_data.parse_state(node.data)
        data = znode_data.state_json(state._replace(leader_epoch=state.leader_epoch + 1))
        try:
            await session.write([SetData(STATE, data, node.version)])
            return
        except BadVersion:
            continue
