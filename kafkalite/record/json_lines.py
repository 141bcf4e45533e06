"""Records as lines of JSON, to write and to read: one object a line.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 1700000000000, "key": "k", "value": "v",
     "headers": [{"name": "h", "value": null}]}

A key, a value or that of a header that is no UTF-8 stands as {"base64": ...}. To be read it may be any other JSON: the
record then gets its text exactly as it is written, since numbers and doubled names do not survive a parser.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import PIECE_BYTES, base64_pieces, is_text, printable, safe_json, text_pieces
from kafkalite.record.batch import NewRecord

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_TIMESTAMP_MAX, _PARTITION_MAX = (1 << 63) - 1, (1 << 31) - 1
_NO_TIMESTAMP = -1
_SHOWN_CHARS = 80


class Shown(NamedTuple):
    """A record that is to be printed."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Line(NamedTuple):
    """A record that was read from a line, and the partition that it is for, if the line says one."""

    record: NewRecord
    partition: int | None


def json_of(one: Shown) -> bytes:
    """A line with an object, its end included."""
    parsed = {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp": one.timestamp,
        "key": _text_or_base64(one.key),
        "value": _text_or_base64(one.value),
        "headers": [{"name": name, "value": _text_or_base64(value)} for name, value in one.headers],
    }
    return _encoded(parsed) + b"\n"


def json_pieces(one: Shown) -> Iterator[bytes]:
    """`json_of`, of a large record a piece at a time."""
    if len(one.key or b"") + len(one.value or b"") + sum(len(value or b"") for _, value in one.headers) <= PIECE_BYTES:
        yield json_of(one)
        return
    place = {"topic": one.topic, "partition": one.partition, "offset": one.offset, "timestamp": one.timestamp}
    yield _encoded(place)[:-1] + b',"key":'
    yield from _pieces_of(one.key)
    yield b',"value":'
    yield from _pieces_of(one.value)
    yield b',"headers":['
    for at, (name, value) in enumerate(one.headers):
        yield (b',{"name":' if at else b'{"name":') + _encoded(name) + b',"value":'
        yield from _pieces_of(value)
        yield b"}"
    yield b"]}\n"


def _pieces_of(data: bytes | None) -> Iterator[bytes]:
    if data is None or len(data) <= PIECE_BYTES:
        yield _encoded(_text_or_base64(data))
    elif is_text(data):
        yield b'"'
        for text in text_pieces(data):
            yield _encoded(text)[1:-1]
        yield b'"'
    else:
        yield b'{"base64":"'
        for text in base64_pieces(data):
            yield text.encode()
        yield b'"}'


def _encoded(parsed: Any) -> bytes:
    return safe_json(json.dumps(parsed, separators=(",", ":"), ensure_ascii=False)).encode()


def _text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def parse_json(line: bytes) -> Line:
    """The record of a line as `json_of` writes it; all but the value may be left out, topic and offset have no effect.

    Raises ValueError with a clause for the user, also for other names: a misspelt name would lose its value.
    """
    try:
        text = line.decode("utf-8-sig")
        return _line(text, _decode(text))
    except UnicodeDecodeError as fault:
        raise ValueError(f"is not UTF-8 from byte {fault.start + 1} on") from None
    except json.JSONDecodeError as fault:
        raise ValueError(f"is no JSON: {fault.msg}, at character {fault.pos + 1}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


class _Source:
    """The text of a line, and where the values in it begin: those of each object or array are searched once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._starts: dict[tuple[int, ...], list[int]] = {}

    def written(self, path: tuple[int, ...]) -> str:
        """The text of the value to which `path` leads: the place of a member or an element, and so on inwards."""
        at = self._start(path)
        return self._text[at : _decode_at(self._text, at)[1]]

    def _start(self, path: tuple[int, ...]) -> int:
        if not path:
            return _after_space(self._text, 0)
        outer = path[:-1]
        if outer not in self._starts:
            self._starts[outer] = list(self._values(self._start(outer)))
        return self._starts[outer][path[-1]]

    def _values(self, at: int) -> Iterator[int]:
        text = self._text
        is_object = text[at] == "{"
        at = _after_space(text, at + 1)
        while text[at] not in "]}":
            if is_object:
                at = _after_space(text, _after_space(text, _decode_at(text, at)[1]) + 1)
            yield at
            at = _after_space(text, _decode_at(text, at)[1])
            if text[at] == ",":
                at = _after_space(text, at + 1)


class _Number(str):
    """A number is its text."""


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"has {name}, which is no JSON")


# objects become tuples of pairs, so that a doubled name is seen, and arrays lists
_DECODER = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=_Number, parse_float=_Number, parse_constant=_refuse_constant
)
_decode, _decode_at = _DECODER.decode, _DECODER.raw_decode
_NAMES = ("headers", "key", "offset", "partition", "timestamp", "topic", "value")
_HEADER_NAMES = ("name", "value")


def _line(text: str, parsed: Any) -> Line:
    members = _members(parsed, _NAMES)
    source = _Source(text)
    if "value" not in members:
        raise ValueError('has no "value"; null is a tombstone')

    def data(name: str) -> bytes | None:
        at, value = members.get(name, _ABSENT)
        return _bytes(value, name, source, (at,))

    timestamp = _number(members.get("timestamp", _ABSENT)[1], "timestamp", _NO_TIMESTAMP, _TIMESTAMP_MAX)
    record = NewRecord(
        data("key"),
        data("value"),
        tuple(_headers(*members.get("headers", _ABSENT), source)),
        _NO_TIMESTAMP if timestamp is None else timestamp,
    )
    return Line(record, _number(members.get("partition", _ABSENT)[1], "partition", 0, _PARTITION_MAX))


_Member = tuple[int, Any]  # its place among the members, and its value
_ABSENT: _Member = (-1, None)


def _members(parsed: Any, names: Sequence[str]) -> dict[str, _Member]:
    """The members of an object, each of `names` at most once. Raises ValueError."""
    if not isinstance(parsed, tuple):
        raise ValueError("is no JSON object")
    found: dict[str, _Member] = {}
    for at, (name, value) in enumerate(parsed):
        if name in found:
            raise ValueError(f"has {_quoted(name)} twice")
        if name not in names:
            raise ValueError(f"has {_quoted(name)}, and there are {', '.join(names)}")
        found[name] = at, value
    return found


def _number(parsed: Any, name: str, smallest: int, largest: int) -> int | None:
    if parsed is None:
        return None
    if not isinstance(parsed, _Number) or not _NUMBER.fullmatch(parsed) or not smallest <= int(parsed) <= largest:
        raise ValueError(f"has a {name} that is no number from {smallest} to {largest}")
    return int(parsed)


def _headers(place: int, parsed: Any, source: _Source) -> Iterator[tuple[str, bytes | None]]:
    """Of an array of {"name": TEXT, "value": VALUE}, or of an object with a name for each."""
    if isinstance(parsed, tuple):
        for at, (name, value) in enumerate(parsed):
            yield _whole(name, "header"), _bytes(value, "header", source, (place, at))
    elif isinstance(parsed, list):
        for at, one in enumerate(parsed):
            header = _members(one, _HEADER_NAMES) if isinstance(one, tuple) else {}
            name = header.get("name", _ABSENT)[1]
            if not isinstance(name, str) or isinstance(name, _Number):
                raise ValueError('has a header that is not {"name": TEXT, "value": TEXT}')
            inner, value = header.get("value", _ABSENT)
            yield _whole(name, "header"), _bytes(value, "header", source, (place, at, inner))
    elif parsed is not None:
        raise ValueError('has headers that are neither [{"name": TEXT, "value": TEXT}] nor {NAME: TEXT}')


def _bytes(parsed: Any, name: str, source: _Source, path: tuple[int, ...]) -> bytes | None:
    if parsed is None:
        return None
    if isinstance(parsed, str):
        return _whole(parsed, name).encode()
    if isinstance(parsed, tuple) and len(parsed) == 1 and parsed[0][0] == "base64":
        data = parsed[0][1]
        try:
            return base64.b64decode(
                "?" if not isinstance(data, str) or isinstance(data, _Number) else data, validate=True
            )
        except ValueError:
            raise ValueError(f"has a {name} that is no base64") from None
    return source.written(path).encode()


def _whole(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"has half a character (a lone surrogate) in its {name}, which no UTF-8 can hold") from None
    return text


def _after_space(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _quoted(name: str) -> str:
    return f'"{printable(name[:_SHOWN_CHARS])}"'
