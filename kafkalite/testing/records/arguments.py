"""Types of arguments that come from a file, a marker or a request, and not from a program that a type checker has read.

All raise TypeError, with the name of the argument.
"""

from __future__ import annotations


def check_text(name: str, value: object, *, or_none: bool = False) -> None:
    if not isinstance(value, str) and not (or_none and value is None):
        raise TypeError(f"{name} is text, not {value!r}")


def check_integer(name: str, value: object, *, or_none: bool = False) -> None:
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    if not is_integer and not (or_none and value is None):
        raise TypeError(f"{name} is a whole number{' or None' if or_none else ''}, not {value!r}")


def check_number(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name} is a number, not {value!r}")


def check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} is true or false, not {value!r}")
