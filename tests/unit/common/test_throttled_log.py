"""Lines about clients: one a minute for each reason, and not without end for endless reasons."""

from __future__ import annotations

from kafkalite.common.throttled_log import LINES_MAX, REMEMBERED_MAX, SILENCE_MS, RateLimitedLogger
from tests.support.manual_clock import ManualClock


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance(1)
        self.lines: list[str] = []
        self.log = RateLimitedLogger(self.clock, lambda text, *parts: self.lines.append(text % parts))


def test_a_reason_is_told_once_a_minute_and_counted() -> None:
    world = World()
    for _ in range(5):
        world.log.about("1.2.3.4", "port", "wrong port")
    world.log.about("1.2.3.5", "port", "wrong port")
    assert world.lines == ["1.2.3.4: wrong port", "1.2.3.5: wrong port"]
    world.clock.advance(SILENCE_MS)
    world.log.about("1.2.3.4", "port", "wrong port")
    assert world.lines[2:] == ["1.2.3.4: wrong port (4 more times before)"]


def test_a_client_with_endless_reasons_fills_no_disk() -> None:
    world = World()
    for number in range(10_000):
        world.log.about("1.2.3.4", f"topic {number}", f"may not read topic {number}")
    assert len(world.lines) == LINES_MAX + 1
    assert world.lines[-1] == "1.2.3.4: there are too many lines about it, and no more for a minute"
    world.log.about("1.2.3.5", "topic 1", "may not read topic 1")
    assert world.lines[-1] == "1.2.3.5: may not read topic 1", "others are heard"
    world.clock.advance(SILENCE_MS)
    world.log.about("1.2.3.4", "topic 1", "may not read topic 1")
    assert world.lines[-2:] == ["1.2.3.4: 9900 more lines about it were left out", "1.2.3.4: may not read topic 1"]


def test_many_clients_are_forgotten_in_time() -> None:
    world = World()
    for number in range(3 * REMEMBERED_MAX):
        world.log.about(f"host {number}", "port", "wrong port")
    assert len(world.log._hosts) <= REMEMBERED_MAX and len(world.log._last) <= REMEMBERED_MAX
