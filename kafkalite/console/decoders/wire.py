"""Frames between the console and a decoder process, over two pipes.

A request is two sizes (u32 each), a head in JSON, and the data of its records one after the other. It is answered with
a frame for the schema and one for each record: a status (u8), a size (u32) and text in UTF-8. They are sent together:
one by one, each would wake the console, and a search would take twice as long.
The console trusts neither the data nor, for them, the process: what it sends is compared with limits and never run.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import NamedTuple

from kafkalite.common.errors import Malformed
from kafkalite.common.text import read_json

AVRO, PROTOBUF = "avro", "protobuf"
DONE, FAULT, LAST_FAULT = range(3)
"""Of a frame: the record as JSON; the reason why it is none; that, and the process ends, since it had no memory."""
DATA_BYTES_MAX = 32 << 20
TEXT_BYTES_MAX = 32 << 20

REQUEST = struct.Struct(">II")
_FRAME = struct.Struct(">BI")


class Schema(NamedTuple):
    """`text`: for AVRO a schema as JSON, for PROTOBUF base64 of a FileDescriptorSet with `message`."""

    kind: str
    text: str
    message: str = ""


class Decoded(NamedTuple):
    """The text of a record as JSON, or else the reason why there is none."""

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
    """Halves of characters, which JSON can spell, cannot be sent on."""
    data = text.encode(errors="replace")
    if len(data) > TEXT_BYTES_MAX:
        status, data = FAULT, f"it would be more than {TEXT_BYTES_MAX >> 20} MiB of text".encode()
    return _FRAME.pack(status, len(data)) + data


class Frames:
    """Takes frames from a stream that arrives in pieces."""

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
