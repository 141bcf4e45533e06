"""The ZooKeeper in memory under disturbance: lines that are cut, silent, slow, or lose answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kafkalite.testing.zookeeper.in_memory_zookeeper import RECONNECT_MS, InMemoryZooKeeper
from kafkalite.testing.zookeeper.wire import REQUEST_BYTES_MAX
from kafkalite.zk.client.operations import ConnectionState, Create, SetData, Unavailable
from tests.support.manual_clock import ManualClock
from tests.support.wait import until
from tests.support.zk.visits import SESSION_TIMEOUT_MS, Visit, visit

CONNECTED, SUSPENDED, EXPIRED = ConnectionState.CONNECTED, ConnectionState.SUSPENDED, ConnectionState.EXPIRED


class Scene:
    """One client on a line that is disturbed, and a witness on another, on a clock that stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.zookeeper = InMemoryZooKeeper(self.clock, seed=1)
        self.line = self.zookeeper.line()
        self.one: Visit
        self.witness: Visit

    async def pass_by(self, delay_ms: int) -> None:
        """Time passes, and the loop has its turn."""
        self.clock.advance(delay_ms)
        await asyncio.sleep(0)


@asynccontextmanager
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    witness = made.zookeeper.line()
    async with (
        visit("in-memory", dial=witness.dial) as made.witness,
        visit("in-memory", dial=made.line.dial) as made.one,
    ):
        await made.one.session.watch_tree("/")
        await made.witness.session.watch_tree("/")
        await made.one.session.write([Create("/me", b"1", ephemeral=True)])
        await made.witness.until(lambda: made.witness.paths == {"/me"})
        made.one.forget()
        made.witness.forget()
        yield made


def test_a_line_that_is_cut_comes_back_with_the_same_session_and_its_watches():
    async def story():
        async with scene() as s:
            session, before = s.one.session, s.one.session.session_id
            s.line.cut()
            await s.one.until_states(SUSPENDED)
            with pytest.raises(Unavailable):
                await session.read(["/"])
            await s.witness.session.write([Create("/unseen")])
            await s.pass_by(SESSION_TIMEOUT_MS - 1)
            s.line.mend()
            await s.one.until_states(SUSPENDED, CONNECTED)
            await s.pass_by(SESSION_TIMEOUT_MS)
            assert session.session_id == before and s.one.heard == []
            await s.witness.session.write([SetData("/me", b"2")])
            await s.one.until(lambda: s.one.paths == {"/me"})

    asyncio.run(story())


def test_a_client_that_stays_away_loses_its_session_and_its_nodes():
    async def story():
        async with scene() as s:
            before = s.one.session.session_id
            s.line.cut()
            await s.one.until_states(SUSPENDED)
            await s.pass_by(SESSION_TIMEOUT_MS)
            assert await s.witness.session.read(["/me"]) == [None] and s.witness.paths == {"/me"}
            assert before not in s.zookeeper.sessions.numbers
            s.line.mend()
            await s.one.until_states(SUSPENDED, EXPIRED, CONNECTED)
            assert s.one.session.session_id not in (0, before)
            await s.one.session.write([Create("/again", b"", ephemeral=True)])
            assert s.one.paths == {"/again"}, "the watches went over to the new session"

    asyncio.run(story())


def test_an_expired_client_comes_back_by_itself():
    async def story():
        async with scene() as s:
            s.line.expire()
            assert await s.witness.session.read(["/me"]) == [None]
            await s.pass_by(RECONNECT_MS)
            await s.one.until_states(SUSPENDED, EXPIRED, CONNECTED)

    asyncio.run(story())


def test_a_silent_line_holds_everything_back_until_it_is_given_up():
    async def story():
        async with scene() as s:
            s.line.silence()
            reading = asyncio.ensure_future(s.one.session.read(["/me"]))
            await s.witness.session.write([SetData("/me", b"2")])
            await s.pass_by(SESSION_TIMEOUT_MS // 2)
            assert not reading.done() and s.one.heard == [] and s.one.states == []
            s.line.end_silence()
            (node,) = await reading
            assert node is not None and node.data == b"2" and s.one.paths == {"/me"}
            await s.pass_by(SESSION_TIMEOUT_MS)
            assert s.one.states == [], "it was heard of in time"

            s.line.silence()
            writing = asyncio.ensure_future(s.one.session.write([SetData("/me", b"3")]))
            await s.pass_by(SESSION_TIMEOUT_MS * 2 // 3 + 1)
            await s.one.until_states(SUSPENDED)
            with pytest.raises(Unavailable):
                await writing
            s.line.end_silence()
            await s.one.until_states(SUSPENDED, CONNECTED)
            (node,) = await s.one.session.read(["/me"])
            assert node is not None and node.data == b"2", "a request goes down with its connection"

    asyncio.run(story())


@pytest.mark.parametrize("is_performed", [True, False])
def test_a_lost_answer_leaves_open_whether_it_was_done(is_performed):
    async def story():
        async with scene() as s:
            (s.line.lose_answers if is_performed else s.line.lose_requests)(1)
            with pytest.raises(Unavailable):
                await s.one.session.write([SetData("/me", b"2")])
            (node,) = await s.witness.session.read(["/me"])
            assert node is not None and node.data == (b"2" if is_performed else b"1")
            await s.pass_by(RECONNECT_MS)
            await s.one.until_states(SUSPENDED, CONNECTED)
            await s.one.session.write([SetData("/me", b"3")])

    asyncio.run(story())


def test_a_slow_line_keeps_the_order_of_all_that_goes_over_it():
    async def story():
        async with scene() as s:
            s.line.delay_ms = (1, 20)
            made = [asyncio.ensure_future(s.one.session.write([Create(f"/n{i}")])) for i in range(8)]
            await asyncio.sleep(0)
            assert await s.witness.session.read(["/n0"]) == [None]
            for _ in range(100):
                await s.pass_by(1)
            assert [await each for each in made] == [[f"/n{i}"] for i in range(8)]
            assert [path for batch in s.one.heard for path in batch] == [f"/n{i}" for i in range(8)]
            s.line.delay_ms = (0, 0)

    asyncio.run(story())


def test_a_client_that_vanishes_keeps_its_session_for_a_while_and_its_line_serves_the_next():
    async def story():
        async with scene() as s:
            s.line.abandon()
            await s.pass_by(SESSION_TIMEOUT_MS - 1)
            async with visit("in-memory", dial=s.line.dial) as heir:
                (node,) = await heir.session.read(["/me"])
                assert node is not None and node.ephemeral_owner == s.one.session.session_id
                await s.pass_by(1)
                assert await heir.session.read(["/me"]) == [None]
            assert s.one.states == [], "nobody is there to be told"

    asyncio.run(story())


def test_while_the_servers_are_away_no_session_ends():
    async def story():
        async with scene() as s:
            s.zookeeper.stop()
            await s.one.until_states(SUSPENDED)
            await s.pass_by(10 * SESSION_TIMEOUT_MS)
            s.zookeeper.start()
            await s.one.until_states(SUSPENDED, CONNECTED)
            (node,) = await s.one.session.read(["/me"])
            assert node is not None and node.ephemeral_owner == s.one.session.session_id

    asyncio.run(story())


def test_a_request_that_is_too_large_costs_the_connection():
    async def story():
        async with scene() as s:
            with pytest.raises(Unavailable):
                await s.one.session.write([SetData("/me", bytes(REQUEST_BYTES_MAX))])

    asyncio.run(story())


def test_sessions_of_several_loops_are_one_cluster_and_leave_no_thread():
    before = set(threading.enumerate())  # of brokers of other tests, perhaps

    def threads() -> set[str]:
        started = set(threading.enumerate()) - before
        return {each.name for each in started if each.name == "kafkalite-test-timers"}

    zookeeper = InMemoryZooKeeper()
    all_watch = threading.Barrier(4)

    async def count(number: int) -> None:
        async with visit("in-memory", dial=zookeeper.line().dial) as one:
            await one.session.watch_tree("/n")
            await asyncio.to_thread(all_watch.wait)
            for i in range(50):
                await one.session.write([Create(f"/n/{number}-{i}")])
                assert f"/n/{number}-{i}" in one.paths
            await one.until(lambda: len(one.paths) == 200)

    async def begin() -> None:
        async with visit("in-memory", dial=zookeeper.line().dial) as one:
            await one.session.write([Create("/n")])

    asyncio.run(begin())
    loops = [threading.Thread(target=asyncio.run, args=(count(number),)) for number in range(4)]
    for each in loops:
        each.start()
    for each in loops:
        each.join()
    assert len(zookeeper.tree.children("/n")) == 200 and zookeeper.sessions.numbers == []
    zookeeper.close()
    until(lambda: not threads(), "the end of all threads")
