"""Types of arguments: numbers that fit what they are for, so that no request fails on one."""

from __future__ import annotations

import argparse
from collections.abc import Callable

INT16_MAX, INT32_MAX, INT64_MAX = (1 << 15) - 1, (1 << 31) - 1, (1 << 63) - 1
_DIGITS_MAX = 20
_SECONDS_MAX = 86_400.0


def whole(low: int = 0, high: int = INT32_MAX) -> Callable[[str], int]:
    """The type of a whole number from `low` to `high`."""

    def parse(text: str) -> int:
        digits = text.removeprefix("-")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX
        if not is_number or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {low} to {high}")
        return int(text)

    return parse


def seconds(text: str) -> float:
    """A time to wait, a day at most."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= _SECONDS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of seconds from 0 to {_SECONDS_MAX:.0f}")
    return number
