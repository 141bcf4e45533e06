"""Large requests that do not come to an end share a bounded memory; who is silent, or has much, gives way."""

from __future__ import annotations

from kafkalite.network.connection_quotas import BUSY_FACTOR, FAIR_BYTES, SILENT_S, RequestMemoryPool

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
