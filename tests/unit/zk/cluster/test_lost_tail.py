"""A broker that may have lost the ends of its logs is in no list any more when it registers, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.common.names import random_uuid
from kafkalite.zk.client.operations import Create, NotAllowed, Operation, SetData, Unavailable
from kafkalite.zk.cluster import registration_files
from kafkalite.zk.cluster.registration_files import RegistrationFiles
from kafkalite.zk.znodes import znode_data, znode_paths
from kafkalite.zk.znodes.znode_data import StateNode, TopicNode
from tests.support.zk.members import Member, apart, contents, endpoints
from tests.support.zk.visits import Visit, visit

ME = 1


async def create(by: Visit, name: str, state: StateNode, replicas: tuple[int, ...] = (1, 2, 3), **config: str) -> None:
    """A topic of one partition in this state."""
    node = znode_data.topic_json(TopicNode({0: replicas}, random_uuid()))
    operations: list[Operation] = [
        Create(znode_paths.config(znode_paths.CONFIG_TOPICS, name), znode_data.config_json(config)),
        Create(znode_paths.topic(name), node),
        Create(znode_paths.partitions(name)),
        Create(znode_paths.partition(name, 0)),
        Create(znode_paths.state(name, 0), znode_data.state_json(state)),
    ]
    await by.session.write(operations)


async def state_of(by: Visit, name: str) -> StateNode:
    (node,) = await by.session.read([znode_paths.state(name, 0)])
    assert node is not None
    return znode_data.parse_state(node.data)


@asynccontextmanager
async def cluster(place: str, directory: Path, states: Mapping[str, StateNode]) -> AsyncIterator[Visit]:
    """A place with a topic in each of these states."""
    async with apart(place, directory / "nobody", 9), visit(place) as tool:
        for name, state in states.items():
            await create(tool, name, state)
        yield tool


@asynccontextmanager
async def broker(place: str, directory: Path, **options: object) -> AsyncIterator[Member]:
    """Broker ME on a new disk: it may have lost everything."""
    async with apart(place, directory, ME, **options) as one:
        yield one


async def register(one: Member) -> None:
    await one.metadata.register(endpoints(ME), None)


def test_it_leaves_the_lists_before_it_registers(place, tmp_path, monkeypatch):
    states = {
        "leads": StateNode(1, 4, (1, 2, 3), 7),
        "follows": StateNode(2, 4, (2, 1, 3), 7),
        "eligible": StateNode(2, 4, (2,), 7, elr=(3, 1)),
        "only-one-in-sync": StateNode(1, 4, (1,), 7, elr=(3, 2)),
        "last": StateNode(1, 4, (1,), 7),
        "last-and-offline": StateNode(-1, 4, (1,), 7),
        "none-of-its-business": StateNode(2, 4, (2, 3), 7),
    }

    async def story():
        async with cluster(place, tmp_path, states) as tool, broker(place, tmp_path) as one:
            await create(tool, "alone", StateNode(1, 4, (1,), 7), (1,))
            send = one.metadata.session.write
            seen: dict[str, StateNode] = {}

            async def look_first(operations: Sequence[Operation]) -> list[str]:
                if any(isinstance(each, Create) and each.ephemeral for each in operations):
                    seen.update({name: await state_of(tool, name) for name in (*states, "alone")})
                return await send(operations)

            monkeypatch.setattr(one.metadata.session, "write", look_first)
            await register(one)
            assert seen == {
                "leads": StateNode(-1, 5, (2, 3), 7),
                "follows": StateNode(2, 4, (2, 3), 7),
                "eligible": StateNode(2, 4, (2,), 7),  # min.insync.replicas is 1 here: nobody need be eligible
                "only-one-in-sync": StateNode(-1, 5, (3, 2), 7),
                "last": StateNode(-1, 5, (1,), 7),
                "last-and-offline": states["last-and-offline"],
                "none-of-its-business": states["none-of-its-business"],
                "alone": StateNode(1, 4, (1,), 7),
            }
            assert not one.metadata.brokers[ME].intact

    asyncio.run(story())


@pytest.mark.parametrize("setting", ["topic", "cluster", "broker"])
def test_others_stay_eligible_as_long_as_the_isr_is_too_small(place, tmp_path, setting):
    async def story():
        state = StateNode(2, 4, (2, 1), 7, elr=(3,))
        async with cluster(place, tmp_path, {}) as tool:
            if setting == "topic":
                await create(tool, "t", state, **{"min.insync.replicas": "2"})
            else:
                await create(tool, "t", state)
            if setting == "cluster":
                data = znode_data.config_json({"min.insync.replicas": "2"})
                await tool.session.write([Create("/config/brokers/<default>", data)])
            async with broker(place, tmp_path, min_insync_replicas=2 if setting == "broker" else 1) as one:
                await register(one)
            assert await state_of(tool, "t") == StateNode(2, 4, (2,), 7, elr=(3,))

    asyncio.run(story())


def test_a_broker_that_lost_nothing_stays(place, tmp_path):
    async def story():
        state = StateNode(2, 4, (2, 1, 3), 7)
        async with cluster(place, tmp_path, {}) as tool:
            async with broker(place, tmp_path) as one:
                await register(one)
            await create(tool, "t", state)
            async with broker(place, tmp_path) as one:
                await register(one)
                assert one.metadata.brokers[ME].intact
            assert await state_of(tool, "t") == state

    asyncio.run(story())


def test_a_leader_that_writes_at_the_same_time_is_waited_for(place, tmp_path, monkeypatch):
    async def story():
        async with (
            cluster(place, tmp_path, {"t": StateNode(2, 4, (2, 1, 3), 7)}) as tool,
            broker(place, tmp_path) as one,
        ):
            send = one.metadata.session.write
            shrinks = [StateNode(2, 4, (2, 1), 7), StateNode(2, 4, (2, 1), 8)]

            async def be_late(operations: Sequence[Operation]) -> list[str]:
                if shrinks and any(each.path == znode_paths.state("t", 0) for each in operations):
                    data = znode_data.state_json(shrinks.pop(0))
                    await tool.session.write([SetData(znode_paths.state("t", 0), data)])
                return await send(operations)

            monkeypatch.setattr(one.metadata.session, "write", be_late)
            await register(one)
            assert await state_of(tool, "t") == StateNode(2, 4, (2,), 8) and not shrinks

    asyncio.run(story())


def test_what_it_could_not_finish_the_next_process_does(place, tmp_path, monkeypatch):
    """It is killed in the midst: its successor runs since the same boot, and has lost the same records."""

    async def story():
        states = {name: StateNode(2, 4, (2, 1, 3), 7) for name in ("t", "u")}
        async with cluster(place, tmp_path, {}) as tool:
            async with broker(place, tmp_path) as one:
                await register(one)
            for name, state in states.items():
                await create(tool, name, state)
            monkeypatch.setattr(registration_files, "boot_id", lambda: "another boot")
            async with broker(place, tmp_path) as one:
                send = one.metadata.session.write

                async def die(operations: Sequence[Operation]) -> list[str]:
                    if any(each.path == znode_paths.state("t", 0) for each in operations):
                        raise Unavailable("killed")
                    return await send(operations)

                session = one.metadata.session
                monkeypatch.setattr(session, "write", die)
                monkeypatch.setattr(session, "settings", session.settings._replace(connection_timeout_ms=200))
                with pytest.raises(ConfigError, match="killed"):
                    await register(one)
            assert await state_of(tool, "t") == states["t"]
            async with broker(place, tmp_path) as one:
                await register(one)
                assert not one.metadata.brokers[ME].intact
            assert [(await state_of(tool, name)).isr for name in states] == [(2, 3), (2, 3)]

    asyncio.run(story())


def test_another_life_that_has_begun_meanwhile_stops_it(place, tmp_path, monkeypatch):
    async def story():
        async with (
            cluster(place, tmp_path, {"t": StateNode(2, 4, (2, 1, 3), 7)}) as tool,
            broker(place, tmp_path) as one,
        ):
            send = one.metadata.session.write
            overtaken = False

            async def be_overtaken(operations: Sequence[Operation]) -> list[str]:
                nonlocal overtaken
                if not overtaken and any(each.path == znode_paths.state("t", 0) for each in operations):
                    overtaken = True
                    await tool.session.write([SetData(znode_paths.registration(ME), operations[0].path.encode())])
                return await send(operations)

            monkeypatch.setattr(one.metadata.session, "write", be_overtaken)
            await register(one)
            assert overtaken and one.metadata.registration == 3, "it began anew"
            assert await contents(tool.session, znode_paths.registration(ME)) == [
                {"version": 1, "stopping": False, "intact": False}
            ]

    asyncio.run(story())


def test_a_state_that_nobody_understands_does_not_keep_it_out(place, tmp_path):
    async def story():
        async with (
            cluster(place, tmp_path, {"t": StateNode(2, 4, (2, 1, 3), 7)}) as tool,
            broker(place, tmp_path) as one,
        ):
            await tool.session.write([SetData(znode_paths.state("t", 0), b"rotten")])
            await register(one)
            assert one.metadata.brokers[ME].registration == 1

    asyncio.run(story())


def test_thousands_of_partitions_are_left_in_a_few_transactions(place, tmp_path, monkeypatch):
    async def story():
        count = 1_500
        async with cluster(place, tmp_path, {}) as tool:
            node = TopicNode(dict.fromkeys(range(count), (1, 2, 3)), random_uuid())
            await tool.session.write(
                [Create(znode_paths.topic("t"), znode_data.topic_json(node)), Create(znode_paths.partitions("t"))]
            )
            data = znode_data.state_json(StateNode(1, 4, (1, 2, 3), 7))
            for first in range(0, count, 250):
                made: list[Operation] = []
                for number in range(first, first + 250):
                    made += [Create(znode_paths.partition("t", number)), Create(znode_paths.state("t", number), data)]
                await tool.session.write(made)
            async with broker(place, tmp_path) as one:
                sent = []
                send = one.metadata.session.write

                async def count_them(operations: Sequence[Operation]) -> list[str]:
                    sent.append(len(operations))
                    return await send(operations)

                monkeypatch.setattr(one.metadata.session, "write", count_them)
                await register(one)
                states = one.metadata.topics["t"].partitions.values()
                assert {(each.leader, each.isr) for each in states} == {(-1, (2, 3))} and len(sent) < 10

    asyncio.run(story())


def test_the_files_are_those_of_the_registration(place, tmp_path):
    async def story():
        async with cluster(place, tmp_path, {}) as tool, broker(place, tmp_path) as one:
            await register(one)
            files = RegistrationFiles([tmp_path])
            files.load()
            (node,) = await tool.session.read([znode_paths.registration(ME)])
            assert files.vouch(node)

    asyncio.run(story())


def test_a_list_that_may_not_be_written_keeps_it_out(place, tmp_path, monkeypatch):
    async def story():
        state = StateNode(2, 4, (2, 1, 3), 7)
        async with cluster(place, tmp_path, {"t": state}) as tool, broker(place, tmp_path) as one:
            send = one.metadata.session.write

            async def forbid(operations: Sequence[Operation]) -> list[str]:
                paths = [each.path for each in operations]
                if znode_paths.state("t", 0) in paths:
                    raise NotAllowed(znode_paths.state("t", 0), paths.index(znode_paths.state("t", 0)))
                return await send(operations)

            monkeypatch.setattr(one.metadata.session, "write", forbid)
            with pytest.raises(ConfigError, match="access list"):
                await register(one)
            assert await tool.session.read([znode_paths.broker(ME)]) == [None]

    asyncio.run(story())
