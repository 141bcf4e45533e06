"""A message is one line of the log, whatever a client calls its groups."""

from __future__ import annotations

import logging
import sys

from kafkalite.common.log_lines import MESSAGE_CHARS_MAX, LogLines


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
