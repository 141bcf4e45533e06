"""The primitive types of the protocol as bytes.

`Kind` is a type for the compiler: its `struct` code if it has a fixed width, else a length comes before the value. The
functions are the rare paths that compiled code calls: varints of more than one byte, and unknown tagged fields.
Source: org.apache.kafka.common.protocol.types.Type, ByteUtils, KIP-482 (compact types and tagged fields).
"""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from kafkalite.common.errors import Malformed

T = TypeVar("T")


class Kind(NamedTuple, Generic[T]):
    """One wire type. `code` is its `struct` character; None means that a length goes before the value."""

    name: str
    code: str | None
    width: int


BOOL: Kind[bool] = Kind("bool", "?", 1)  # any byte but zero is true, as `struct` reads it too
INT8: Kind[int] = Kind("int8", "b", 1)
INT16: Kind[int] = Kind("int16", "h", 2)
UINT16: Kind[int] = Kind("uint16", "H", 2)
INT32: Kind[int] = Kind("int32", "i", 4)
INT64: Kind[int] = Kind("int64", "q", 8)
FLOAT64: Kind[float] = Kind("float64", "d", 8)
UUID16: Kind[UUID] = Kind("uuid", "16s", 16)
STRING: Kind[str] = Kind("string", None, 0)
BYTES: Kind[bytes] = Kind("bytes", None, 0)
RECORDS: Kind[Any] = Kind("records", None, 0)

LENGTH_CODE = {"string": "h", "bytes": "i", "records": "i"}
"""The `struct` code of the length before a value, in versions without compact types. Arrays count with "i"."""

ONE_BYTE = tuple(bytes((value,)) for value in range(128))
"""The varints of one byte: a look-up costs a quarter of a struct call."""


def malformed(name: str, data: memoryview, error: Exception) -> Malformed:
    """The fault of bytes in which a field is not there, or a text is none."""
    if isinstance(error, UnicodeDecodeError):
        return Malformed(f"{name}: a text that is not UTF-8")
    return Malformed(f"{name}: its {len(data)} bytes end inside a field")


def read_uvarint(data: memoryview, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits and the position behind it. IndexError where the bytes end."""
    value = data[position]
    if value < 0x80:
        return value, position + 1
    value += (data[position + 1] << 7) - 0x80
    if value < 0x4000:
        return value, position + 2
    value += (data[position + 2] << 14) - 0x4000
    if value < 0x200000:
        return value, position + 3
    value += (data[position + 3] << 21) - 0x200000
    if value < 0x10000000:
        return value, position + 4
    value += (data[position + 4] << 28) - 0x10000000
    if value > 0xFFFFFFFF:
        raise Malformed("varint of more than 32 bits")
    return value, position + 5


def write_uvarint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    if value < 0x80:
        return ONE_BYTE[value]
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(data: memoryview, position: int, count: int) -> int:
    """The position behind `count` unknown tagged fields. Raises IndexError or Malformed if they do not fit."""
    size = len(data)
    for _ in range(count):
        _, position = read_uvarint(data, position)
        length, position = read_uvarint(data, position)
        if length > size - position:
            raise Malformed(f"tagged field of {length} bytes where {size - position} are left")
        position += length
    return position
