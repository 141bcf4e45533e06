"""Lines of the log: each message is one, and one a minute for each client and reason."""

from __future__ import annotations

import logging
import sys

from kafkalite.common.log_lines import (
    LINES_MAX,
    MESSAGE_CHARS_MAX,
    REMEMBERED_MAX,
    SILENCE_MS,
    LogLines,
    RateLimitedLogger,
)
from tests.support.manual_clock import ManualClock


def line(message: str, *parts: object, fails: str = "") -> str:
    fault = None
    if fails:
        try:
            raise ValueError(fails)
        except ValueError:
            fault = sys.exc_info()
    record = logging.LogRecord("kafkalite", logging.INFO, __file__, 1, message, parts, fault)
    return LogLines("%(levelname)s %(message)s").format(record)


def test_names_break_no_lines_and_move_no_cursors() -> None:
    assert line("group %s is empty", "a\nERROR all is lost") == "INFO group a\\nERROR all is lost is empty"
    assert line("%s", "\r\x1b[2J\0\x85\u2028\u202e") == "INFO \\r\\x1b[2J\\x00\\x85\\u2028\\u202e"
    assert line("%s", "Jürgen, 日本 ☃") == "INFO Jürgen, 日本 ☃"


def test_a_long_name_is_cut() -> None:
    written = line("%s", "x" * 100_000)
    assert len(written) < MESSAGE_CHARS_MAX + 50 and written.endswith("... (100000 characters)")


def test_a_traceback_keeps_its_lines() -> None:
    lines = line("a\nb", fails="ours").splitlines()
    assert lines[:2] == ["INFO a\\nb", "Traceback (most recent call last):"] and lines[-1] == "ValueError: ours"


def test_a_traceback_moves_no_cursor() -> None:
    assert line("x", fails="there is no group \x1b[2J\u202e").splitlines()[-1].endswith("group \\x1b[2J\\u202e")


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
