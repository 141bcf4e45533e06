"""Keys and values as tests write them: in the bytes of a record, as a pattern for records, and checked arguments.

Arguments may come from a file, a marker or a request, and not from a program that a type checker has read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from kafkalite.common.text import read_json
from kafkalite.testing.records.stored_record import StoredRecord

Payload = bytes | str | Mapping[str, Any] | list[Any] | None
"""Bytes as they are, text in UTF-8, a mapping or a list as JSON; None is no key, or a tombstone."""

HeadersGiven = Mapping[str, bytes | str | None] | Iterable[tuple[str, bytes | str | None]]


def encoded(payload: Payload) -> bytes | None:
    """The bytes of a key or a value. Raises TypeError."""
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, (Mapping, list)):
        return json.dumps(payload, separators=(",", ":")).encode()
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(f"a key or a value is bytes, str, a mapping, a list or None, not {type(payload).__name__}")


def encoded_headers(headers: HeadersGiven) -> tuple[tuple[str, bytes | None], ...]:
    """Raises TypeError."""
    found = []
    for header in headers.items() if isinstance(headers, Mapping) else _listed(headers):
        if not isinstance(header, (tuple, list)) or len(header) != 2 or not isinstance(header[0], str):
            raise TypeError(f"a header is a name and a value, not {header!r}")
        found.append((header[0], encoded(header[1])))
    return tuple(found)


def _listed(headers: object) -> Iterable[object]:
    if isinstance(headers, (str, bytes)) or not isinstance(headers, Iterable):
        raise TypeError(f"headers are a mapping, or pairs of name and value, not {headers!r}")
    return headers


def matches(stored: bytes | None, wanted: Payload | Callable[[Any], object]) -> bool:
    """Whether the bytes are those of `wanted`; a mapping or a list is compared with the JSON that they are, and a
    function is called with them."""
    if callable(wanted):
        return bool(wanted(stored))
    if isinstance(wanted, (Mapping, list)):
        try:
            return stored is not None and bool(read_json(stored) == wanted)
        except ValueError:
            return False
    return stored == encoded(wanted)


_SHOWN_MAX = 20


class Anything:
    """Stands for every key and every value."""

    def __repr__(self) -> str:
        return "ANYTHING"


ANYTHING = Anything()

Wanted = Payload | Callable[[Any], object] | Anything


class RecordPattern(NamedTuple):
    """A record fits with this key and value, in this partition if one is given, and with all of `headers`, among
    others. Keys and values are compared as `Broker.produce` would write them, mappings and lists as JSON; a function
    gets the bytes and decides."""

    key: Wanted
    value: Wanted
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None

    def fits(self, record: StoredRecord) -> bool:
        return (
            (self.partition is None or record.partition == self.partition)
            and (isinstance(self.key, Anything) or matches(record.key, self.key))
            and (isinstance(self.value, Anything) or matches(record.value, self.value))
            and all(header in record.headers for header in self.headers)
        )

    def first(self, records: Iterable[StoredRecord]) -> StoredRecord | None:
        """The first record that fits."""
        return next(filter(self.fits, records), None)

    def __str__(self) -> str:
        parts = [f"key={self.key!r}", f"value={self.value!r}"]
        if self.headers:
            parts.append(f"headers={dict(self.headers)!r}")
        if self.partition is not None:
            parts.append(f"partition={self.partition}")
        return ", ".join(parts)

    def missing(self, topic: str, within_s: float, topics: Mapping[str, int], records: list[StoredRecord]) -> str:
        """The message of a test that fails because no record has come: `topics` and `records` are there instead."""
        message = f"{topic} has no record with {self} within {within_s:g} s. "
        if topic not in topics:
            return message + f"There is no such topic; there are: {', '.join(sorted(topics)) or 'none'}"
        if not records:
            return message + "It is empty."
        more = f" (the last {_SHOWN_MAX})" if len(records) > _SHOWN_MAX else ""
        lines = [f"  {r.partition}@{r.offset} key={r.key!r} value={r.value!r}" for r in records[-_SHOWN_MAX:]]
        return message + "\n".join([f"It has {len(records)}{more}:", *lines])


# --- types of arguments: all raise TypeError with the name of the argument


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
