"""MessagePack and CBOR by their libraries: data that bring their own types, as JSON.

Keys that are no text become the JSON of the key, so that no entry is lost; a tag of CBOR that the library does not know
stays beside its value. A record may have some hundred thousand items, of which each byte may begin one that takes fifty
in memory.
Source: the MessagePack specification; RFC 8949.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping
from typing import Any

from kafkalite.console.decoders.wire import to_text, without_prefix

ITEMS_MAX = 500_000


def compile_msgpack(_: str, __: str) -> Callable[[bytes], str]:
    """A function from data to JSON, which raises Exception."""
    msgpack: Any = importlib.import_module("msgpack")

    def extension(code: int, data: bytes) -> Any:
        return {"extension": code, "data": data}

    options = {
        "strict_map_key": False,
        "unicode_errors": "backslashreplace",
        "timestamp": 3,
        "max_array_len": ITEMS_MAX,
        "max_map_len": ITEMS_MAX,
        "ext_hook": extension,
    }

    def decode(data: bytes) -> str:
        built = _Items()
        found = msgpack.unpackb(data, list_hook=built.add, object_hook=built.add, **options)
        return to_text(_plain(found, _Items()))

    return _with_or_without_prefix(decode)


def compile_cbor(_: str, __: str) -> Callable[[bytes], str]:
    """A function from data to JSON, which raises Exception."""
    cbor2: Any = importlib.import_module("cbor2")

    def decode(data: bytes) -> str:
        stream = io.BytesIO(data)
        value = cbor2.load(stream)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes remain")
        return to_text(_plain(value, _Items()))

    return _with_or_without_prefix(decode)


def _with_or_without_prefix(decode: Callable[[bytes], str]) -> Callable[[bytes], str]:
    """Data that do not decode as they are decode perhaps behind the prefix of a registry."""

    def either(data: bytes) -> str:
        try:
            return decode(data)
        except MemoryError:
            raise
        except Exception:
            rest = without_prefix(data)
            if len(rest) == len(data):
                raise
            return decode(rest)

    return either


class _Items:
    """Counts the items of a record, and refuses more than ITEMS_MAX."""

    def __init__(self) -> None:
        self._left = ITEMS_MAX

    def add(self, some: Any) -> Any:
        """The same list or mapping. Raises ValueError."""
        self._left -= 1 + len(some)
        if self._left < 0:
            raise ValueError(f"it has more than {ITEMS_MAX:,} items")
        return some


def _plain(value: Any, items: _Items) -> Any:
    """Raises RecursionError for a value that is too deep, or holds itself; ValueError for too many items."""
    if isinstance(value, Mapping):
        return {
            key if isinstance(key, str) else to_text(_plain(key, items)): _plain(each, items)
            for key, each in items.add(value).items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each, items) for each in items.add(value)]
    if hasattr(value, "tag") and hasattr(value, "value"):
        return {"tag": value.tag, "value": _plain(value.value, items)}
    return value
