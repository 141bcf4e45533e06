"""Frames between the console and a decoder process, over two pipes.

A request is two sizes (u32 each), a head in JSON, and the data of its records one after the other. The response is a
frame for the schema and one for each record: a status (u8), a size (u32) and text in UTF-8. They are sent together:
one by one, each would wake the console, and a search would take twice as long.
The console does not trust the process, whose input is hostile: its frames are checked against limits and never run.

Decoded values are valid JSON. Values that JSON lacks have a form of their own: bytes are {"hex": ...}, NaN and
infinities text as in Protobuf's JSON, and an undecodable field {"fault": reason, "raw": value}, so that it costs no
other field.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json

AVRO, PROTOBUF, MSGPACK, CBOR, CEL = "avro", "protobuf", "msgpack", "cbor", "cel"
DONE, FAULT, LAST_FAULT = range(3)
"""Status of a frame: the record as JSON; an error; an error after which the process ends, out of memory."""
DATA_BYTES_MAX = 32 << 20
TEXT_BYTES_MAX = 32 << 20

REQUEST = struct.Struct(">II")
_FRAME = struct.Struct(">BI")
MEMORY_BYTES_MAX = 512 << 20
EXCHANGE_CPU_S, CPU_S_A_BYTE = 1.0, 0.25e-6
"""Limit for the records of one exchange, or for a schema's compilation. A normal megabyte takes 0.1 to 0.3 s."""
ANSWER_S_MAX = 60.0
"""Limit for one frame; a process that was stopped, or starves, must not block a search without end."""
PROCESSES_MAX = 4
ENDS_MAX = 5
"""Ends of a process that one search may cause, each of which costs 0.2 s; after that it decodes no more records."""
WAIT_S, WAIT_S_A_RECORD, WAIT_S_A_BYTE = 30.0, 0.01, 1e-6
"""How long one search may wait for decoders: records that take a second each would block it, and others, for hours."""
_REGISTRY_MAGIC = 0
_REGISTRY_BYTES = 5
_INDEXES_MAX = 100


class Schema(NamedTuple):
    """`text`: for AVRO a schema as JSON, with a JSON list of the schemas that it refers to in `message`; for PROTOBUF
    base64 of a FileDescriptorSet with `message`, or the files of a registry (`decoders/protobuf`); for CEL an
    expression; else empty."""

    kind: str
    text: str
    message: str = ""


class Decoded(NamedTuple):
    """The text of a record as JSON, or the reason why there is none."""

    is_done: bool
    text: str


def encode_request(schema: Schema, records: Sequence[bytes]) -> bytes:
    head = json.dumps({**schema._asdict(), "sizes": [len(data) for data in records]}).encode()
    return b"".join((REQUEST.pack(len(head), sum(map(len, records))), head, *records))


def decode_request(head: bytes, body: bytes) -> tuple[Schema, list[bytes]]:
    fields = read_json(head)
    records, at = [], 0
    for size in fields.pop("sizes"):
        records.append(body[at : at + size])
        at += size
    return Schema(**fields), records


def encode_frame(status: int, text: str) -> bytes:
    """The bytes of a frame. Lone surrogates, which JSON can contain and UTF-8 cannot, are replaced."""
    data = text.encode(errors="replace")
    if len(data) > TEXT_BYTES_MAX:
        status, data = FAULT, f"it would be more than {TEXT_BYTES_MAX >> 20} MiB of text".encode()
    return _FRAME.pack(status, len(data)) + data


class Frames:
    """Parses frames from a stream that arrives in pieces."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[tuple[int, str]]:
        """(status, text) of the frames that are complete now. Raises Malformed."""
        buffer, at = self._buffer, 0
        buffer += data
        found = []
        while len(buffer) - at >= _FRAME.size:
            status, size = _FRAME.unpack_from(buffer, at)
            if status > LAST_FAULT or size > TEXT_BYTES_MAX:
                raise Malformed(f"a frame of status {status} and {size} bytes")
            end = at + _FRAME.size + size
            if end > len(buffer):
                break
            found.append((status, buffer[at + _FRAME.size : end].decode(errors="replace")))
            at = end
        del buffer[:at]
        return found


def faulty(reason: str, raw: Any) -> dict[str, Any]:
    """The JSON value of a field that cannot be decoded."""
    return {"fault": reason, "raw": raw}


def to_text(value: Any) -> str:
    """Raises RecursionError, MemoryError."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_other, allow_nan=False)
    except ValueError:
        return json.dumps(_without_nan(value), ensure_ascii=False, default=_other)


def _other(value: Any) -> Any:
    return {"hex": bytes(value).hex()} if isinstance(value, bytes | bytearray | memoryview) else str(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: _without_nan(each) for key, each in value.items()}
    return [_without_nan(each) for each in value] if isinstance(value, list) else value


def exchange_cpu_s(size_bytes: int) -> float:
    return EXCHANGE_CPU_S + CPU_S_A_BYTE * size_bytes


def schema_id(data: bytes) -> int | None:
    """The id in the prefix of Confluent's Schema Registry; None for data without one."""
    is_of_registry = len(data) >= _REGISTRY_BYTES and data[0] == _REGISTRY_MAGIC
    return int.from_bytes(data[1:_REGISTRY_BYTES], "big") if is_of_registry else None


def without_prefix(data: bytes) -> bytes:
    """The data without the prefix of Confluent's Schema Registry: 0, then the id of a schema."""
    return data if schema_id(data) is None else data[_REGISTRY_BYTES:]


def without_indexes(data: bytes) -> bytes:
    """The data without the five bytes and the zig-zag varints behind them: the number of indexes, then each."""
    return indexes_of(data)[1]


def indexes_of(data: bytes) -> tuple[list[int], bytes]:
    """The place of a message in its file, and the data behind it: the index of the outermost message, then that of the
    one inside. The first message of a file is written as no index at all."""
    rest = without_prefix(data)
    if len(rest) == len(data) or not rest:
        return [0], data
    count, position = _varint(rest, 0)
    indexes = []
    for _ in range(min(count, _INDEXES_MAX)):
        index, position = _varint(rest, position)
        indexes.append(index)
    return indexes or [0], rest[position:]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if not byte & 0x80:
            break
    return (value >> 1) ^ -(value & 1), position
