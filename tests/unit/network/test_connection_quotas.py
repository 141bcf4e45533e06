"""Limits of connections, their rates, and connections that rest after an answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kafkalite.network.client_connection import ClientConnection, ThrottledAnswer
from kafkalite.network.connection_quotas import (
    ADDRESSES_MAX,
    BUSY_FACTOR,
    FAIR_BYTES,
    SILENT_S,
    ConnectionQuotas,
    ListenerLimits,
    NetworkLimits,
    RequestMemoryPool,
)
from kafkalite.network.socket_server import Listener, SocketServer
from tests.support.loop import idle
from tests.support.manual_clock import ManualClock

if TYPE_CHECKING:
    from .conftest import Client, Tell, World


WITHOUT_TLS = True


async def turns() -> None:
    await idle()


async def is_served(client: Client) -> bool:
    """Whether the client's request is answered without time passing."""
    await client.ask(b"hello")
    pending = asyncio.ensure_future(client.answer())
    await turns()
    done = pending.done()
    if not done:
        pending.cancel()
        await turns()
    return done


def test_a_connection_rests_after_its_answer_and_is_not_idle(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start(NetworkLimits(connections_max_idle_ms=8_000))

        def answer(_: ClientConnection, request: memoryview) -> ThrottledAnswer:
            return ThrottledAnswer([world.frame(bytes(request))], 60_000)

        world.answer = answer
        client = await world.connect()
        await client.ask(b"one", b"two")
        assert await client.answer() == b"one"
        world.clock.advance(59_999)
        await turns()
        assert world.requests == [b"one"] and world.server.connection_count == 1
        world.clock.advance(1)
        assert await client.answer() == b"two"

    tell(story)


@pytest.mark.parametrize("in_time", [True, False])
def test_an_answer_that_comes_late_is_followed_by_a_rest(tell: Tell, in_time: bool) -> None:
    async def story(world: World) -> None:
        await world.start()
        client = await world.connect()
        await client.ask(b"wait one", b"two")
        await world.until(lambda: world.waiting)
        parts = [world.frame(b"wait one")] if in_time else []  # nothing, as for acks=0
        world.waiting[b"wait one"].set_result(ThrottledAnswer(parts, 5_000))
        if in_time:
            assert await client.answer() == b"wait one"
        await turns()
        assert world.requests == [b"wait one"]
        world.clock.advance(5_000)
        assert await client.answer() == b"two"

    tell(story)


def test_whoever_leaves_or_is_drained_rests_no_more(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        world.answer = lambda _, request: ThrottledAnswer([world.frame(bytes(request))], 60_000)
        leaving, staying = await world.connect(), await world.connect()
        for client in (leaving, staying):
            await client.ask(b"hello")
            assert await client.answer() == b"hello"
        leaving.leave()
        await world.until(lambda: world.server.connection_count == 1)
        await world.server.stop(grace_ms=10_000)
        assert await staying.is_closed()

    tell(story)


def test_connections_that_come_too_fast_wait(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start(NetworkLimits(max_connection_creation_rate=1))
        clients = [await world.connect() for _ in range(12)]
        assert [await is_served(client) for client in clients[:10]] == [True] * 10
        assert not await is_served(clients[10])
        world.clock.advance(1_000)  # the wait is one window at most
        assert await clients[10].answer() == b"hello"
        assert not await is_served(clients[11])
        world.server.quotas.reconfigure(NetworkLimits(), {})
        world.clock.advance(1_000)
        assert await clients[11].answer() == b"hello"
        assert world.server.quotas.listener("PLAINTEXT").accept_waits.average_ms(world.clock.monotonic_ms()) > 0

    tell(story)


def test_an_address_that_comes_too_often_is_closed_late(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start()
        world.server.limit_ip("127.0.0.1", 0)
        refused = await world.connect()
        await refused.ask(b"hello")
        await turns()
        assert not world.requests and world.server.connection_count == 0
        world.clock.advance(1_000)
        assert await refused.is_closed()
        world.server.limit_ip("127.0.0.1", None)
        assert await is_served(await world.connect())
        world.server.limit_ip(None, 0)
        await world.connect()  # closed with the server
        world.server.limit_ip("localhost", 10_000)
        await world.until(lambda: not world.server._tasks)
        assert await is_served(await world.connect())

    tell(story)


def test_a_limit_that_sinks_closes_whoever_was_silent_for_longest(tell: Tell) -> None:
    async def story(world: World) -> None:
        await world.start(NetworkLimits(connections_max_idle_ms=80_000))
        clients = []
        for _ in range(3):
            clients.append(await world.connect())
            assert await is_served(clients[-1])
            world.clock.advance(10_000)  # one look at the clock
        world.server.reconfigure(NetworkLimits(max_connections=1))
        await world.until(lambda: world.server.connection_count == 1)
        assert await clients[0].is_closed() and await clients[1].is_closed()
        assert await is_served(clients[2])

    tell(story)


def test_other_brokers_find_room_where_clients_have_taken_all(tell: Tell) -> None:
    async def story(world: World) -> None:
        limits = NetworkLimits(
            max_connections=2, protected_listener="INSIDE", of_listeners={"INSIDE": ListenerLimits(1)}
        )
        listeners = [Listener("PLAINTEXT", "127.0.0.1", 0), Listener("INSIDE", "127.0.0.1", 0)]
        server = world.server = SocketServer(listeners, world.handle, limits, world.clock, processors=1)
        await server.start()
        clients = [await world.connect() for _ in range(2)]
        for client in clients:
            assert await is_served(client)
        ports = dict(server.ports)
        server.ports["PLAINTEXT"] = ports["INSIDE"]
        assert await is_served(await world.connect())
        await world.until(lambda: server.connection_count == 2)
        assert not await is_served(await world.connect())  # it has a limit of its own

    tell(story)


def test_rates_of_addresses_take_bounded_memory() -> None:
    clock = ManualClock()
    quotas = ConnectionQuotas(NetworkLimits(), {}, clock)
    quotas.limit_ip(None, 5)
    for number in range(2 * ADDRESSES_MAX):
        assert quotas.ip_wait_ms("PLAINTEXT", str(number)) == 0
    assert len(quotas._rate_by_ip) <= ADDRESSES_MAX
    assert quotas.listener("PLAINTEXT").rate.per_second(clock.monotonic_ms()) == 0


MUCH = FAIR_BYTES + 1
BOUND = 2 * MUCH + 100


class World:
    def __init__(self, bytes_max: int = BOUND) -> None:
        self.now_s = 0.0
        self.requests = RequestMemoryPool(bytes_max, lambda: self.now_s)


class Sender:
    def __init__(self, world: World) -> None:
        self.requests = world.requests
        self.gone = False

    def close_to_free_memory(self) -> None:
        self.gone = True
        self.requests.note(self, 0)


def test_of_those_that_have_much_the_one_that_was_silent_longest_gives_way() -> None:
    world = World()
    first, second, third = (Sender(world) for _ in range(3))
    world.requests.note(first, MUCH)
    world.requests.note(second, MUCH)
    world.requests.note(first, MUCH + 50)  # it goes on
    world.requests.note(third, MUCH)
    assert (first.gone, second.gone, third.gone) == (False, True, False)
    assert world.requests.bytes_held == 2 * MUCH + 50


def test_a_crowd_that_all_send_a_little_is_served() -> None:
    world = World(1000)
    crowd = [Sender(world) for _ in range(70)]
    for sender in crowd:
        world.requests.note(sender, 100)
    assert not any(sender.gone for sender in crowd)


def test_a_crowd_of_the_silent_gives_way() -> None:
    world = World(1000)
    crowd = [Sender(world) for _ in range(20)]
    for sender in crowd:
        world.requests.note(sender, 100)
    world.now_s += SILENT_S
    newcomer = Sender(world)
    world.requests.note(newcomer, 100)
    assert sum(sender.gone for sender in crowd) == 11 and not newcomer.gone
    assert world.requests.bytes_held == 1000


def test_a_crowd_has_an_end_too() -> None:
    world = World(1000)
    crowd = [Sender(world) for _ in range(200)]
    for sender in crowd:
        world.requests.note(sender, 100)
    assert world.requests.bytes_held == BUSY_FACTOR * 1000


def test_what_is_whole_takes_nothing() -> None:
    world = World()
    one, other = Sender(world), Sender(world)
    world.requests.note(one, BOUND)
    world.requests.note(one, 0)
    world.requests.note(other, BOUND)
    assert not one.gone and not other.gone and world.requests.bytes_held == BOUND


def test_one_alone_above_the_bound_gives_way_itself() -> None:
    world = World()
    one = Sender(world)
    world.requests.note(one, BOUND + 1)
    assert one.gone and world.requests.bytes_held == 0
