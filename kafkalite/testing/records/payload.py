"""Keys and values as tests write them, in the bytes of a record, and the comparison of both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafkalite.common.text import read_json

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
