"""Avro by fastavro. Its readers of logical types are replaced: an invalid date costs its field, not its record. Enums
are read as a logical type of our own for the same reason.

Source: Apache Avro 1.12, Logical Types; fastavro's LOGICAL_READERS.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from kafkalite.common.text import read_json
from kafkalite.console.decoders.wire import faulty, to_text, without_prefix

_DECIMAL_BYTES_MAX = 1_500  # about 3,600 digits
_SCALE_MAX = 10_000
_ENUM, _SYMBOLS = "kafkalite-enum", "kafkalite-symbols"
_EPOCH = datetime(1970, 1, 1)
_DAY = timedelta(days=1)

Read = Callable[[Any, Any], Any]


def _date(days: int, _: Any) -> str:
    return str(date(1970, 1, 1) + timedelta(days))


def _time_of(unit: timedelta) -> Read:
    def read(count: int, _: Any) -> str:
        passed = count * unit
        if not timedelta(0) <= passed < _DAY:
            raise ValueError("no time of a day")
        return str((_EPOCH + passed).time())

    return read


def _moment(unit: timedelta, *, is_local: bool = False) -> Read:
    zone = None if is_local else UTC

    def read(count: int, _: Any) -> str:
        return str((_EPOCH + count * unit).replace(tzinfo=zone))

    return read


def _decimal(data: bytes, schema: Any) -> str:
    scale = schema.get("scale", 0)
    if len(data) > _DECIMAL_BYTES_MAX or not 0 <= scale <= _SCALE_MAX:
        raise ValueError("too many digits")
    unscaled = int.from_bytes(data, "big", signed=True)
    digits = str(abs(unscaled)).zfill(scale + 1)
    whole, part = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return f"{'-' if unscaled < 0 else ''}{whole}{'.' if scale else ''}{part}"


def _uuid(text: str, _: Any) -> str:
    return str(UUID(text))


def _symbol(index: int, schema: Any) -> str:
    symbols: list[str] = schema[_SYMBOLS]
    if not 0 <= index < len(symbols):
        raise ValueError("no symbol")
    return symbols[index]


_MILLI, _MICRO = timedelta(milliseconds=1), timedelta(microseconds=1)
_READERS: dict[str, tuple[str, Read]] = {
    "int-date": ("no date", _date),
    "int-time-millis": ("no time of a day", _time_of(_MILLI)),
    "long-time-micros": ("no time of a day", _time_of(_MICRO)),
    "long-timestamp-millis": ("no time", _moment(_MILLI)),
    "long-timestamp-micros": ("no time", _moment(_MICRO)),
    "long-local-timestamp-millis": ("no time", _moment(_MILLI, is_local=True)),
    "long-local-timestamp-micros": ("no time", _moment(_MICRO, is_local=True)),
    "bytes-decimal": ("no decimal", _decimal),
    "fixed-decimal": ("no decimal", _decimal),
    "string-uuid": ("no UUID", _uuid),
    f"int-{_ENUM}": ("no symbol", _symbol),
}


def _guarded(what: str, read: Read) -> Callable[..., Any]:
    def guarded(raw: Any, schema: Any = None, _: Any = None) -> Any:
        try:
            return read(raw, schema)
        except (ValueError, OverflowError, TypeError, AttributeError):
            return faulty(what, raw)

    return guarded


def _with_own_enums(schema: Any, enums: dict[str, Any]) -> Any:
    """A parsed schema with full names, in which enums are replaced by numbers with symbols."""
    if isinstance(schema, str):
        return enums.get(schema, schema)
    if isinstance(schema, list):
        return [_with_own_enums(each, enums) for each in schema]
    if schema["type"] == "enum":
        own = {"type": "int", "logicalType": _ENUM, _SYMBOLS: schema["symbols"]}
        enums[schema["name"]] = own
        return own
    found = {name: value for name, value in schema.items() if not name.startswith("__")}
    for name in ("items", "values"):
        if name in found:
            found[name] = _with_own_enums(found[name], enums)
    if "fields" in found:
        found["fields"] = [
            {"name": one["name"], "type": _with_own_enums(one["type"], enums)} for one in found["fields"]
        ]
    return found


def compile_schema(text: str, references: str) -> Callable[[bytes], str]:
    """A function from data to JSON, which raises Exception. Raises Exception for an invalid schema. `references`: a
    JSON list of the schemas that it refers to, each behind those that it refers to itself."""
    import fastavro
    import fastavro.read

    readers: Any = fastavro.read.LOGICAL_READERS
    readers.update({name: _guarded(*reader) for name, reader in _READERS.items()})
    named: dict[str, Any] = {}
    own: dict[str, Any] = {}
    enums: dict[str, Any] = {}
    parsed: Any = None
    for one in (*(read_json(references) if references else ()), text):
        parsed = fastavro.parse_schema(read_json(one, strict=True), named)
        parsed = fastavro.parse_schema(_with_own_enums(parsed, enums), own)
    read: Any = fastavro.schemaless_reader

    def value_of(data: bytes) -> Any:
        stream = io.BytesIO(data)
        value = read(stream, parsed, handle_unicode_errors="backslashreplace")
        if stream.tell() != len(data):
            raise ValueError(f"{len(data) - stream.tell()} bytes remain")
        return value

    def decode(data: bytes) -> str:
        why = ""
        for each in dict.fromkeys((without_prefix(data), data)):
            try:
                return to_text(value_of(each))
            except MemoryError:
                raise
            except Exception as fault:
                why = why or str(fault) or type(fault).__name__
        raise ValueError(why)

    with suppress(Exception):
        value_of(b"")  # a record type that contains itself ends this process now, and not with every record
    return decode
