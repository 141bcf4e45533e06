"""Keys, values and headers as text for people: JSON, text or hexadecimal by content, Avro and Protobuf by schema.

Nothing is trusted: any bytes become printable data, and what cannot be decoded is shown as hexadecimal with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from kafkalite.common.text import read_json
from kafkalite.console.decoders import wire

SHOWN_BYTES = 10 << 10
JSON_BYTES_MAX = 4 << 20
AUTO, TEXT, JSON, HEX, AVRO, PROTOBUF = FORMATS = ("auto", "text", "json", "hex", wire.AVRO, wire.PROTOBUF)
_CONTROLS_ALLOWED = "\n\r\t"
_LOOKED_AT_CHARS = 4096


class Decode(Protocol):
    """A decoder by a schema."""

    def __call__(self, data: bytes) -> str:
        """The JSON of these bytes. Raises ValueError with the reason."""
        ...

    def expect(self, records: Iterable[bytes | None], /) -> None:
        """These are what it will be asked for, or some of them, in this order."""
        ...


class Format(NamedTuple):
    """How keys or values are shown. `decode` is None unless there is a schema."""

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
    """Raises ValueError, also for what is too large or too deep to be looked into."""
    if len(data) > JSON_BYTES_MAX:
        raise ValueError(f"more than {JSON_BYTES_MAX} bytes are not looked into")
    return read_json(data.decode(), strict=True)


def _looks_like_json(text: str) -> bool:
    return text.lstrip()[:1] in ("{", "[", '"')


def _text_of(data: bytes, *, is_whole: bool) -> str | None:
    """None for bytes that are no text. At the cut a character may be halved."""
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        if is_whole or fault.start < len(data) - 4:
            return None
        text = data[: fault.start].decode()
    controls = sum(not (char.isprintable() or char in _CONTROLS_ALLOWED) for char in text[:_LOOKED_AT_CHARS])
    return None if controls > len(text[:_LOOKED_AT_CHARS]) // 20 and controls else text


def _hex(data: bytes, limit: int | None, note: str | None) -> dict[str, Any]:
    cut = data if limit is None else data[:limit]
    return {"format": HEX, "text": cut.hex(), "size_bytes": len(data), "is_cut": len(cut) < len(data), "note": note}


def _cut(name: str, text: str, size_bytes: int, limit: int | None, note: str | None) -> dict[str, Any]:
    cut = text if limit is None else text[:limit]
    is_cut = len(cut) < len(text) or (limit is not None and size_bytes > limit + 4 and name in (TEXT, JSON))
    return {"format": name, "text": cut, "size_bytes": size_bytes, "is_cut": is_cut, "note": note}
