"""Keys, values and headers as text for people: JSON, text or hexadecimal by content, Avro and Protobuf by schema.

Nothing is trusted: any bytes become printable data; bytes that cannot be decoded are rendered as hexadecimal with the
reason. The schemas of Avro and Protobuf come from the user.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json
from kafkalite.console.decoders import wire
from kafkalite.console.decoders.schema_decoder import DecoderPool, SchemaDecoder, SchemaRefused
from kafkalite.console.decoders.wire import Schema
from kafkalite.console.request.parameters import ApiError, invalid
from kafkalite.record.compression import CODEC_NAMES

SHOWN_BYTES = 10 << 10
JSON_BYTES_MAX = 4 << 20
AUTO, TEXT, JSON, HEX, AVRO, PROTOBUF = FORMATS = ("auto", "text", "json", "hex", wire.AVRO, wire.PROTOBUF)
# control characters but tab, line feed, carriage return, and the escape that begins a colour of a terminal
_CONTROLS = re.compile("[\0-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]")
_CONTROLS_MAX = 1 / 20
_LOOKED_AT_CHARS = 4096


class Decode(Protocol):
    """A decoder by a schema."""

    def __call__(self, data: bytes) -> str:
        """The JSON of these bytes. Raises ValueError with the reason."""
        ...

    def expect(self, records: Iterable[bytes | None], /) -> None:
        """Announces the records that are decoded next: these, or some of them, in this order."""
        ...


class Format(NamedTuple):
    """The format of keys or values. `decode` is None unless there is a schema."""

    name: str = AUTO
    decode: Decode | None = None


def shown(data: bytes | None, wanted: Format, limit: int | None = SHOWN_BYTES) -> dict[str, Any] | None:
    """The DATA of the API, cut at `limit` bytes; None for null."""
    if data is None:
        return None
    note = None
    if wanted.decode is not None:
        try:
            return _cut(wanted.name, wanted.decode(data), len(data), limit, None)
        except ValueError as fault:
            note = f"not valid {wanted.name}: {str(fault)[:200]}"
            return _hex(data, limit, note)
    if wanted.name == HEX:
        return _hex(data, limit, None)
    head = data if limit is None else data[: limit + 4]
    found = _text_of(head, is_whole=len(head) == len(data))
    if found is None:
        if wanted.name == AUTO:
            return _hex(data, limit, None)
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


def _hex(data: bytes, limit: int | None, note: str | None) -> dict[str, Any]:
    cut = data if limit is None else data[:limit]
    return {"format": HEX, "text": cut.hex(), "size_bytes": len(data), "is_cut": len(cut) < len(data), "note": note}


def _cut(name: str, text: str, size_bytes: int, limit: int | None, note: str | None) -> dict[str, Any]:
    cut = text if limit is None else text[:limit]
    is_cut = len(cut) < len(text) or (limit is not None and size_bytes > limit + 4 and name in (TEXT, JSON))
    return {"format": name, "text": cut, "size_bytes": size_bytes, "is_cut": is_cut, "note": note}


HEADERS_SHOWN_MAX = 100


class View(NamedTuple):
    """The rendering of records: the formats of keys and values, and their longest size (None: no limit)."""

    key: Format = Format()
    value: Format = Format()
    limit: int | None = SHOWN_BYTES

    def expect(self, records: Sequence[ScannedRecord]) -> None:
        """Announces the records that are rendered or filtered next, so that they are decoded together."""
        if self.key.decode is not None:
            self.key.decode.expect(one.key for one in records if one.marker is None)
        if self.value.decode is not None:
            self.value.decode.expect(one.value for one in records)

    def of(self, one: ScannedRecord) -> dict[str, Any]:
        batch = one.batch
        value = shown(one.value, self.value, self.limit)
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
            "key": shown(one.key, self.key if one.marker is None else Format(), self.limit),
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


def available() -> dict[str, bool]:
    """The formats that are installed here."""
    modules = {AVRO: "fastavro", PROTOBUF: "google.protobuf", "parquet": "pyarrow"}
    return {name: _is_installed(module) for name, module in modules.items()}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def format_of(name: str, schema: str | None, message: str | None, side: str, decoders: DecoderPool) -> Format:
    """The format of a key or value (`side`). Raises ApiError for an invalid or missing schema."""
    if name not in (AVRO, PROTOBUF):
        return Format(name or AUTO)
    if not schema:
        raise invalid(f"{side}_format={name} needs {side}_schema")
    if name == PROTOBUF and not message:
        raise invalid(f"{side}_format=protobuf needs {side}_message, the full name of a message")
    if not available()[name]:
        package = {AVRO: "fastavro", PROTOBUF: "protobuf"}[name]
        raise ApiError(409, "REFUSED", f"{name} needs the package {package}: pip install kafkalite[console]")
    try:
        return Format(name, SchemaDecoder(decoders, Schema(name, schema, message or "")))
    except SchemaRefused as fault:
        wanted = "Avro schema" if name == AVRO else f"base64 of a FileDescriptorSet with {message}"
        raise invalid(f"{side}_schema is no {wanted}: {fault}") from None
    except OSError as fault:
        raise ApiError(503, "NO_DECODER", f"the process that decodes {name} cannot be started: {fault}") from None
