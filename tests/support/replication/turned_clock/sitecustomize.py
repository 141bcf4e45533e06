"""Turns the wall clock of a Python process, which imports this file first: ahead of the machine's by as many seconds as
the file TURNED_CLOCK says at that time. The monotonic clock stays.

libfaketime 0.9.10 is no alternative: with it `time.sleep`, which waits for a moment of the monotonic clock, fails.
"""

from __future__ import annotations

import os
import time

_LOOK_AGAIN_S = 0.1

_wall, _wall_ns, _monotonic = time.time, time.time_ns, time.monotonic
_path = os.environ["TURNED_CLOCK"]
_turned_s = 0
_look_at = 0.0


def _turned() -> int:
    global _turned_s, _look_at
    now = _monotonic()
    if now >= _look_at:
        with open(_path) as file:
            _turned_s = int(file.read())
        _look_at = now + _LOOK_AGAIN_S
    return _turned_s


def _time() -> float:
    return _wall() + _turned()


def _time_ns() -> int:
    return _wall_ns() + _turned() * 1_000_000_000


time.time, time.time_ns = _time, _time_ns
