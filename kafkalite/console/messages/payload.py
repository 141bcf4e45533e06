"""Keys, values and headers as text for people: JSON, text or hexadecimal by content, others by a format or a schema.

Nothing is trusted: any bytes become printable data; bytes that cannot be decoded are rendered as hexadecimal with the
reason. The schemas of Avro and Protobuf come from the user, or from a schema registry by the id in front of the data.
Records of internal topics are decoded as `kafkalite log dump` does.
"""

from __future__ import annotations

import importlib.util
import re
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol
from uuid import UUID

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json
from kafkalite.console.decoders import wire
from kafkalite.console.decoders.registry import NotEncoded, RegistryDecoder, SchemaRegistry
from kafkalite.console.decoders.schema_decoder import DecoderPool, SchemaDecoder, SchemaRefused
from kafkalite.console.decoders.wire import Schema
from kafkalite.console.request.parameters import ApiError, invalid
from kafkalite.protocol.internal_records import RecordDecoder
from kafkalite.record.compression import CODEC_NAMES

SHOWN_BYTES = 10 << 10
JSON_BYTES_MAX = 4 << 20
AUTO, TEXT, JSON, HEX = "auto", "text", "json", "hex"
INTEGER, FLOAT, UUID_FORMAT = SCALARS = ("integer", "float", "uuid")
_INTEGER_BYTES = (1, 2, 4, 8)
_FLOATS = {4: struct.Struct(">f"), 8: struct.Struct(">d")}
_UUID_BYTES = 16
AVRO, PROTOBUF = wire.AVRO, wire.PROTOBUF
_SELF_DESCRIBING = (wire.MSGPACK, wire.CBOR)
FORMATS = (AUTO, TEXT, JSON, HEX, *SCALARS, *_SELF_DESCRIBING, AVRO, PROTOBUF)
# control characters but tab, line feed, carriage return, and the escape that begins a colour of a terminal
_CONTROLS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_CONTROLS_MAX = 1 / 20
_LOOKED_AT_CHARS = 4096
_LONG_BYTES = 8
_ID_MAX = 10_000_000  # of a schema that data without a registry are taken to name


class Decode(Protocol):
    """A decoder by a schema."""

    def __call__(self, data: bytes) -> str:
        """The JSON of these bytes. Raises ValueError with the reason."""
        ...

    def expect(self, records: Iterable[bytes | None], /) -> None:
        """Announces the records that are decoded next: these, or some of them, in this order."""
        ...


class Format(NamedTuple):
    """The format of keys or values. `decode` is None for formats by content; that of AUTO decodes data of a schema
    registry, and raises NotEncoded for other data."""

    name: str = AUTO
    decode: Decode | None = None


def shown(data: bytes | None, wanted: Format, limit: int | None = SHOWN_BYTES) -> dict[str, Any] | None:
    """The DATA of the API, cut at `limit` bytes; None for null."""
    if data is None:
        return None
    note = None
    if wanted.decode is not None:
        try:
            text = wanted.decode(data)
            if isinstance(wanted.decode, RegistryDecoder):
                return _cut(wanted.decode.kind_of(data), text, len(data), limit, f"schema id {wire.schema_id(data)}")
            return _cut(wanted.name, text, len(data), limit, None)
        except NotEncoded:
            pass
        except ValueError as fault:
            what = f"schema id {wire.schema_id(data)}" if wanted.name == AUTO else f"not valid {wanted.name}"
            return _hex(data, limit, f"{what}: {str(fault)[:200]}")
    if wanted.name == HEX:
        return _hex(data, limit, None)
    head = data if limit is None else data[: limit + 4]
    found = _text_of(head, is_whole=len(head) == len(data))
    if found is None:
        if wanted.name == AUTO:
            return _hex(data, limit, _perhaps_encoded(data))
        found, note = head.decode(errors="replace"), "not valid UTF-8: wrong bytes are shown as \ufffd"
    text = found
    name = TEXT
    if wanted.name in (AUTO, JSON) and _looks_like_json(text):
        try:
            parse_json(data)
            name = JSON
        except ValueError as fault:
            note = None if wanted.name == AUTO else f"not valid json: {fault}"
    elif wanted.name == JSON:
        note = "not valid json"
    return _cut(name, text, len(data), limit, note)


def parse_json(data: bytes) -> Any:
    """The value of a JSON text. Raises ValueError, also if it is too large or too deeply nested."""
    if len(data) > JSON_BYTES_MAX:
        raise ValueError(f"more than {JSON_BYTES_MAX} bytes are not parsed")
    return read_json(data.decode("utf-8-sig"), strict=True)


def _looks_like_json(text: str) -> bool:
    return text.lstrip("\ufeff \t\r\n")[:1] in ("{", "[", '"')


def _text_of(data: bytes, *, is_whole: bool) -> str | None:
    """The text of valid UTF-8; None for other bytes, for one with a NUL, and if more than one character in 20 is a
    control character. Joiners, marks of direction and spaces of any width are text. A character may be cut in the
    middle at the end."""
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        if is_whole or fault.start < len(data) - 4:
            return None
        text = data[: fault.start].decode()
    seen = text[:_LOOKED_AT_CHARS]
    return None if "\0" in seen or len(_CONTROLS.findall(seen)) > len(seen) * _CONTROLS_MAX else text


def _perhaps_encoded(data: bytes) -> str | None:
    """A note about data that seem to be of a schema registry; small numbers of 8 bytes begin the same."""
    schema_id = wire.schema_id(data)
    if not schema_id or len(data) == _LONG_BYTES or schema_id > _ID_MAX:
        return None
    return f"perhaps of a schema registry, with schema id {schema_id}; --schema-registry names it"


def _hex(data: bytes, limit: int | None, note: str | None) -> dict[str, Any]:
    cut = data if limit is None else data[:limit]
    return {"format": HEX, "text": cut.hex(), "size_bytes": len(data), "is_cut": len(cut) < len(data), "note": note}


def _cut(name: str, text: str, size_bytes: int, limit: int | None, note: str | None) -> dict[str, Any]:
    cut = text if limit is None else text[:limit]
    is_cut = len(cut) < len(text) or (limit is not None and size_bytes > limit + 4 and name in (TEXT, JSON))
    return {"format": name, "text": cut, "size_bytes": size_bytes, "is_cut": is_cut, "note": note}


HEADERS_SHOWN_MAX = 100


class View(NamedTuple):
    """The rendering of records: the formats of keys and values, and their longest size (None: no limit). `internal`
    returns key and value of a record of an internal topic as text, if both are shown by content."""

    key: Format = Format()
    value: Format = Format()
    limit: int | None = SHOWN_BYTES
    internal: RecordDecoder | None = None

    def expect(self, records: Sequence[ScannedRecord]) -> None:
        """Announces the records that are rendered or filtered next, so that they are decoded together."""
        if self.key.decode is not None:
            self.key.decode.expect(one.key for one in records if one.marker is None)
        if self.value.decode is not None:
            self.value.decode.expect(one.value for one in records)

    def of(self, one: ScannedRecord) -> dict[str, Any]:
        batch = one.batch
        key = shown(one.key, self.key if one.marker is None else Format(), self.limit)
        value = shown(one.value, self.value, self.limit)
        if self.internal is not None and one.marker is None:
            key, value = self._internal(one, key, value)
        if one.fault is not None:
            value = {"format": "text", "text": "", "size_bytes": batch.size_bytes, "is_cut": False, "note": one.fault}
        size = len(one.key or b"") + len(one.value or b"")
        size += sum(len(name.encode()) + len(content or b"") for name, content in one.headers)
        has_producer = batch.producer_id >= 0
        return {
            "partition": one.partition,
            "offset": one.offset,
            "timestamp_ms": one.timestamp,
            "timestamp_type": "append" if batch.timestamp_type else "create",
            "key": key,
            "value": value,
            "headers": [
                {"name": name, "value": shown(content, Format(), self.limit)}
                for name, content in one.headers[:HEADERS_SHOWN_MAX]
            ],
            "headers_total": len(one.headers),
            "producer_id": batch.producer_id if has_producer else None,
            "producer_epoch": batch.producer_epoch if has_producer else None,
            "sequence": one.sequence if one.sequence >= 0 else None,
            "is_transactional": batch.is_transactional,
            "transaction_state": one.state,
            "control": one.marker,
            "compression": CODEC_NAMES[batch.codec] if batch.codec < len(CODEC_NAMES) else str(batch.codec),
            "size_bytes": size,
            "batch": {
                "base_offset": batch.base_offset,
                "records": batch.record_count,
                "size_bytes": batch.size_bytes,
                "leader_epoch": batch.leader_epoch,
            },
        }

    def texts(self, one: ScannedRecord) -> tuple[str | None, str | None]:
        """Key and value as text for filters, decoded where that is possible; None for null."""
        if self.internal is not None:
            found = self.internal(one.key, one.value, one.offset)
            return found[0], None if one.value is None else found[1]
        return _text(self.key, one.key), _text(self.value, one.value)

    def _internal(self, one: ScannedRecord, key: Any, value: Any) -> tuple[Any, Any]:
        """Key and value of an internal record; those by content if it cannot be decoded."""
        assert self.internal is not None
        texts = self.internal(one.key, one.value, one.offset)
        if texts[0] is None or (texts[1] is None and one.value is not None):
            note = {"note": texts[0]} if texts[0] is not None else {}
            return key, value if value is None else {**value, **note}
        if one.key is not None:
            key = _cut(JSON, texts[0], len(one.key), self.limit, None)
        if one.value is not None:
            value = _cut(JSON, texts[1] or "", len(one.value), self.limit, None)
        return key, value


def _text(wanted: Format, data: bytes | None) -> str | None:
    if data is None:
        return None
    if wanted.decode is not None:
        with suppress(ValueError):
            return wanted.decode(data)
    return data.decode(errors="replace")


_MODULES = {
    AVRO: "fastavro",
    PROTOBUF: "google.protobuf",
    wire.MSGPACK: "msgpack",
    wire.CBOR: "cbor2",
    wire.CEL: "cel",
    "parquet": "pyarrow",
}
_PACKAGES = {AVRO: "fastavro", PROTOBUF: "protobuf", wire.MSGPACK: "msgpack", wire.CBOR: "cbor2"}


def available() -> dict[str, bool]:
    """The formats that are installed here."""
    return {name: is_available(name) for name in _MODULES}


def is_available(name: str) -> bool:
    """Whether the package of a format is installed here."""
    return _is_installed(_MODULES[name])


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def format_of(
    name: str,
    schema: str | None,
    message: str | None,
    side: str,
    decoders: DecoderPool,
    registry: SchemaRegistry | None = None,
) -> Format:
    """The format of a key or value (`side`). Raises ApiError for an invalid or missing schema."""
    if name in ("", AUTO):
        return Format(AUTO, None if registry is None else RegistryDecoder(registry, decoders))
    if name in SCALARS:
        return Format(name, ScalarDecoder(name))
    if name not in _PACKAGES:
        return Format(name)
    has_schema = name not in _SELF_DESCRIBING
    if has_schema and not schema:
        raise invalid(f"{side}_format={name} needs {side}_schema")
    if name == PROTOBUF and not message:
        raise invalid(f"{side}_format=protobuf needs {side}_message, the full name of a message")
    if not is_available(name):
        raise ApiError(409, "REFUSED", f"{name} needs the package {_PACKAGES[name]}: pip install kafkalite[console]")
    wanted = Schema(name, (schema or "") if has_schema else "", (message or "") if name == PROTOBUF else "")
    try:
        return Format(name, SchemaDecoder(decoders, wanted))
    except SchemaRefused as fault:
        expected = "Avro schema" if name == AVRO else f"base64 of a FileDescriptorSet with {message}"
        raise invalid(f"{side}_schema is no {expected}: {fault}") from None
    except OSError as fault:
        raise ApiError(503, "NO_DECODER", f"the process that decodes {name} cannot be started: {fault}") from None


class ScalarDecoder:
    """Decodes keys and values that are one number or one UUID, by the name of a format.

    Source: org.apache.kafka.common.serialization.{Short,Integer,Long,Float,Double,UUID}Serializer.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def expect(self, _: Iterable[bytes | None], /) -> None:
        """Nothing is decoded ahead."""

    def __call__(self, data: bytes) -> str:
        """Raises ValueError."""
        if self._name == INTEGER:
            if len(data) not in _INTEGER_BYTES:
                raise ValueError(f"{len(data)} bytes, not 1, 2, 4 or 8")
            return str(int.from_bytes(data, "big", signed=True))
        if self._name == FLOAT:
            if len(data) not in _FLOATS:
                raise ValueError(f"{len(data)} bytes, not 4 or 8")
            return str(_FLOATS[len(data)].unpack(data)[0])
        if len(data) == _UUID_BYTES:
            return str(UUID(bytes=data))
        return str(UUID(data.decode("ascii")))
