"""Checked access to JSON from ZooKeeper, where any client may write. A value of a wrong type raises ValueError, which
names the key.

As in Kafka and unlike Python, true is not 1, 1e3 is not an integer, and a string that cannot be encoded is refused.
Source: kafka.utils.Json, kafka.utils.json.JsonObject.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kafkalite.common.text import read_json

INT32_MAX = (1 << 31) - 1
INT64_MAX = (1 << 63) - 1

JsonObject = Mapping[str, Any]


def parse(data: bytes) -> JsonObject:
    """The JSON object in `data`. Raises ValueError."""
    return as_object(read_json(data.decode()), "it")


def encode(value: JsonObject) -> bytes:
    """Compact JSON in UTF-8, as Jackson writes it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def as_object(value: Any, what: str) -> JsonObject:
    if type(value) is not dict:
        raise ValueError(f"{what} is not an object but {literal(value)}")
    return value


def integer(source: JsonObject, key: str, at_least: int = -INT32_MAX - 1, at_most: int = INT32_MAX) -> int:
    value = source.get(key)
    if type(value) is not int or not at_least <= value <= at_most:
        raise ValueError(_fault(source, key, f"an integer from {at_least} to {at_most}"))
    return value


def boolean(source: JsonObject, key: str) -> bool:
    value = source.get(key)
    if type(value) is not bool:
        raise ValueError(_fault(source, key, "true or false"))
    return value


def integers(source: JsonObject, key: str) -> tuple[int, ...]:
    return as_integers(source.get(key), key)


def as_integers(value: Any, what: str) -> tuple[int, ...]:
    if type(value) is not list:
        raise ValueError(f"{what} is not a list but {literal(value)}")
    for each in value:
        if type(each) is not int or not -INT32_MAX - 1 <= each <= INT32_MAX:
            raise ValueError(f"{what} has something else than integers in it: {literal(each)}")
    return tuple(value)


def text(source: JsonObject, key: str) -> str:
    return as_text(source.get(key), key)


def as_text(value: Any, what: str) -> str:
    if type(value) is not str:
        raise ValueError(f"{what} is not a text but {literal(value)}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{what} is not a text but half of one: {literal(value)}") from None
    return value


def long_text(source: JsonObject, key: str, at_least: int = 0) -> int:
    """A 64-bit number that is written as a string."""
    word = text(source, key)
    digits = word.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 19 or not at_least <= int(word) <= INT64_MAX:
        raise ValueError(_fault(source, key, f"a number from {at_least} on, as text"))
    return int(word)


def object_of(source: JsonObject, key: str) -> JsonObject:
    """The object, or an empty one when the key is missing or null."""
    value = source.get(key)
    return {} if value is None else as_object(value, key)


def list_of(source: JsonObject, key: str) -> list[Any]:
    value = source.get(key)
    if type(value) is not list:
        raise ValueError(_fault(source, key, "a list"))
    return value


def optional_text(source: JsonObject, key: str) -> str | None:
    value = source.get(key)
    return None if value is None else as_text(value, key)


def number_key(key: str, what: str) -> int:
    """A key that is a number, such as a partition's."""
    if not key.isascii() or not key.isdigit() or len(key) > 10 or int(key) > INT32_MAX:
        raise ValueError(f"{what} {literal(key)} is not a number")
    return int(key)


def decimal(data: bytes, what: str, at_most: int) -> int:
    """The number that is the whole data of a node."""
    digits = data.removeprefix(b"-")
    if not digits.isdigit() or len(digits) > 19 or not -at_most - 1 <= int(data) <= at_most:
        raise ValueError(f"{what} is not a number but {literal(data)}")
    return int(data)


def literal(value: Any) -> str:
    """A value for a message, on one line of limited length."""
    line = ascii(value) if isinstance(value, (str, bytes, int, float, bool, type(None))) else type(value).__name__
    return line if len(line) <= 80 else line[:77] + "..."


def _fault(source: JsonObject, key: str, wanted: str) -> str:
    return f"{key} is missing" if key not in source else f"{key} is not {wanted} but {literal(source[key])}"
