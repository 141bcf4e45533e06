"""MessagePack and CBOR by their libraries: data that bring their own types, as JSON.

Keys that are no text become the JSON of the key, so that no entry is lost; a tag of CBOR that the library does not know
stays beside its value.
Source: the MessagePack specification; RFC 8949.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping
from typing import Any

from kafkalite.console.decoders.wire import to_text, without_prefix


def compile_msgpack(_: str, __: str) -> Callable[[bytes], str]:
    """A function from data to JSON, which raises Exception."""
    msgpack: Any = importlib.import_module("msgpack")

    def extension(code: int, data: bytes) -> Any:
        return {"extension": code, "data": data}

    def decode(data: bytes) -> str:
        options = {"strict_map_key": False, "unicode_errors": "backslashreplace", "timestamp": 3}
        return to_text(_plain(msgpack.unpackb(data, ext_hook=extension, **options)))

    return _with_or_without_prefix(decode)


def compile_cbor(_: str, __: str) -> Callable[[bytes], str]:
    """A function from data to JSON, which raises Exception."""
    cbor2: Any = importlib.import_module("cbor2")

    def decode(data: bytes) -> str:
        stream = io.BytesIO(data)
        value = cbor2.load(stream)
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes remain")
        return to_text(_plain(value))

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


def _plain(value: Any) -> Any:
    """Raises RecursionError for a value that is too deep, or holds itself."""
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else to_text(_plain(key)): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(each) for each in value]
    if hasattr(value, "tag") and hasattr(value, "value"):
        return {"tag": value.tag, "value": _plain(value.value)}
    return value
