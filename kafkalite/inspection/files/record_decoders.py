"""Decoders of a record's key and value into text: UTF-8 by default, else a number, or the state of an internal topic.

A decoder takes (key, value, offset) and returns the two texts; None is not shown. Bytes that are no UTF-8 become
replacement characters exactly as in Java, so that a dump can be compared with Kafka's own.
Source: org.apache.kafka.tools.api.{StringDecoder, IntegerDecoder, LongDecoder}, kafka.tools.DumpLogSegments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from kafkalite.common.errors import ConfigError

DecodedRecord = tuple[str | None, str | None]
RecordDecoder = Callable[[bytes | None, bytes | None, int], DecodedRecord]
FieldDecoder = Callable[[bytes], str]

_REPLACEMENT = "�".encode()
# Java makes one replacement of a whole encoded surrogate, Python one of each of its bytes
_SURROGATE = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]?")
_CONTROL = re.compile(r"\\u00[0-9a-f]{2}")


def decode_string(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return (_SURROGATE.sub(_REPLACEMENT, data) if b"\xed" in data else data).decode(errors="replace")


def decode_integer(data: bytes) -> str:
    return _number(data, 4)


def decode_long(data: bytes) -> str:
    return _number(data, 8)


def _number(data: bytes, width: int) -> str:
    if len(data) < width:
        return f"({len(data)} bytes are no number of {width}: {data.hex()})"
    return str(int.from_bytes(data[:width], "big", signed=True))


FIELD_DECODERS: dict[str, FieldDecoder] = {
    "string": decode_string,
    "integer": decode_integer,
    "long": decode_long,
    "hex": bytes.hex,
}


def field_decoder(name: str) -> FieldDecoder:
    """The decoder with this short name, or of this class of Kafka's. Raises ConfigError."""
    short = name.rpartition(".")[2].removesuffix("Decoder").lower()
    decoder = FIELD_DECODERS.get(short)
    if decoder is None:
        raise ConfigError(f"there is no decoder {name}; there are {', '.join(FIELD_DECODERS)}")
    return decoder


def plain_decoder(key: FieldDecoder, value: FieldDecoder) -> RecordDecoder:
    def decode(key_bytes: bytes | None, value_bytes: bytes | None, _: int) -> DecodedRecord:
        return (
            None if key_bytes is None else key(key_bytes),
            None if value_bytes is None else value(value_bytes),
        )

    return decode


def to_json(value: object) -> str:
    """JSON as Jackson writes it: nothing between the tokens, every letter as it is, control characters in capitals."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return _CONTROL.sub(lambda found: f"\\u{found[0][2:].upper()}", text) if "\\u00" in text else text
