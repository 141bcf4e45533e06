"""The ZooKeeper in memory beside a real one: the same requests get the same answers, versions and notifications."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kazoo.client import KazooClient

from kafkalite.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper
from kafkalite.zk.client.operations import (
    Check,
    ConnectionState,
    Create,
    Delete,
    Operation,
    OperationFailed,
    SetData,
)
from tests.support.zk.visits import Visit, visit
from tests.support.zookeeper import ZooKeeper

SESSIONS = 2

_numbers = itertools.count()


class Writing(NamedTuple):
    session: int
    operations: tuple[Operation, ...]


class Watching(NamedTuple):
    session: int
    path: str


class Expiring(NamedTuple):
    session: int


Step = Writing | Watching | Expiring

PATHS = st.sampled_from(
    ["/a", "/b", "/a/b", "/a/c", "/a/b/c", "/s-0000000000", "/a/s-0000000001", "/a/s-0000000002", "/ab"]
)
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
DATA = st.sampled_from([b"", b"x", b"\x00\xff"])
OPERATIONS = st.one_of(
    st.builds(Create, PATHS, DATA, st.booleans()),
    st.builds(Create, st.sampled_from(["/s-", "/a/s-", "/a/b/s-"]), DATA, st.booleans(), st.just(True)),
    st.builds(SetData, PATHS, DATA, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
WHO = st.integers(0, SESSIONS - 1)
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(Writing, WHO, st.tuples(OPERATIONS)),
    st.builds(Writing, WHO, st.lists(OPERATIONS, min_size=2, max_size=5).map(tuple)),
    st.builds(Watching, WHO, st.sampled_from(["/", "/a", "/a/b", "/nowhere"])),
)
EXPIRING = st.builds(Expiring, WHO)


class World(NamedTuple):
    """Sessions with one ZooKeeper; `expire` ends the n-th on the side of the servers."""

    visits: Sequence[Visit]
    expire: Callable[[int], Awaitable[None]]


@asynccontextmanager
async def real(server: ZooKeeper) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        connect = f"{server.connect}/likeness-{next(_numbers)}"
        visits = [await stack.enter_async_context(visit(connect)) for _ in range(SESSIONS)]

        def take_over(identity: tuple[int, bytes]) -> None:
            thief = KazooClient(server.connect, client_id=identity)
            thief.start(20)
            thief.stop()
            thief.close()

        async def expire(number: int) -> None:
            connection: Any = visits[number].session._connection
            identity = connection.session_id, connection._client._session_passwd
            await asyncio.get_running_loop().run_in_executor(None, take_over, identity)

        yield World(visits, expire)


@asynccontextmanager
async def in_memory() -> AsyncIterator[World]:
    zookeeper = InMemoryZooKeeper()
    lines = [zookeeper.line() for _ in range(SESSIONS)]

    async def expire(number: int) -> None:
        lines[number].expire()

    async with AsyncExitStack() as stack:
        stack.callback(zookeeper.close)
        connect = f"in-memory/likeness-{next(_numbers)}"
        visits = [await stack.enter_async_context(visit(connect, dial=line.dial)) for line in lines]
        yield World(visits, expire)


async def play(world: World, steps: Sequence[Step]) -> list[Any]:
    """All that can be seen after each step."""
    seen = []
    for step in steps:
        for each in world.visits:
            each.forget()
        outcome = await take(world, step)
        for each in world.visits:
            await each.session.read(["/"])  # a change is notified before a read that is later
        ordered = not isinstance(step, Expiring)
        heard = [list(dict.fromkeys(path for batch in each.heard for path in batch)) for each in world.visits]
        seen.append((step, outcome, heard if ordered else [sorted(each) for each in heard], await tree(world)))
    return seen


async def take(world: World, step: Step) -> Any:
    one = world.visits[step.session]
    if isinstance(step, Writing):
        try:
            return await one.session.write(step.operations)
        except OperationFailed as failure:
            return type(failure).__name__, failure.code, failure.index, failure.path
    if isinstance(step, Watching):
        await one.session.watch_tree(step.path)
        return None
    before = one.session.session_id
    while one.session.session_id == before:  # a client may take its session back before the thief has closed it
        one.forget()
        await world.expire(step.session)
        await one.until(lambda: one.states[-1:] == [ConnectionState.CONNECTED])
    return one.states[-2:]


async def tree(world: World) -> Any:
    """All nodes; sessions by their number, transactions by their order."""
    session = world.visits[0].session
    owners = {0: None} | {each.session.session_id: number for number, each in enumerate(world.visits)}
    found, waiting = {}, ["/"]
    while waiting:
        nodes, children = await session.read(waiting), await session.children(waiting)
        found |= dict(zip(waiting, nodes, strict=True))
        below = zip(waiting, children, strict=True)
        waiting = [f"{path.rstrip('/')}/{name}" for path, names in below for name in sorted(names or ())]
    nodes = [(path, node) for path, node in sorted(found.items()) if node is not None and path != "/"]
    order = sorted({zxid for _, node in nodes for zxid in (node.czxid, node.mzxid)})
    root = found["/"]
    assert root is not None
    return root.children_count, [
        (path, node.data, node.version, node.children_count, owners[node.ephemeral_owner], order.index(node.czxid),
         order.index(node.mzxid))
        for path, node in nodes
    ]  # fmt: skip


def compare(server: ZooKeeper, steps: Sequence[Step]) -> None:
    async def story() -> None:
        async with real(server) as theirs, in_memory() as ours:
            assert await play(ours, steps) == await play(theirs, steps)

    asyncio.run(story())


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, min_size=5, max_size=40))
def test_the_same_requests_have_the_same_effects(zookeeper, steps):
    compare(zookeeper, steps)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(begun=st.lists(STEPS, min_size=3, max_size=12), who=EXPIRING, rest=st.lists(STEPS, min_size=1, max_size=6))
def test_a_session_that_ends_has_the_same_effects(zookeeper, begun, who, rest):
    first = Writing(who.session, (Create("/mine", b"", ephemeral=True),))
    compare(zookeeper, [first, Watching(1 - who.session, "/"), *begun, who, *rest])


def test_the_numbers_of_sequential_nodes(zookeeper):
    compare(
        zookeeper,
        [
            Writing(0, (Create("/a"), Create("/a/b"), Create("/a/s-", sequential=True))),
            Writing(0, (Delete("/a/b"),)),
            Writing(0, (Create("/a/s-", sequential=True),)),
            Writing(0, (Delete("/a/s-0000000001"), Create("/a/s-", sequential=True))),
            Writing(0, (Create("/a/s-", sequential=True), Create("/a/s-", sequential=True), Create("/a/s-"))),
            Writing(0, (Create("/a/x"), Delete("/a/x"), Create("/a/x"), SetData("/a/x", b"1", 0), Check("/a/x", 1))),
            Writing(0, (SetData("/a", b"2"), Delete("/a/x", 0))),
        ],
    )


def test_no_node_has_an_ephemeral_parent(zookeeper):
    compare(zookeeper, [Writing(0, (Create("/e", b"", ephemeral=True),)), Writing(1, (Create("/e/below"),))])
