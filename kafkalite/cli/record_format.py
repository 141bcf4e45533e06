"""Records as lines of text: formats with %v, %k and so on, and JSON; the same letters to write and to read.

    %t topic   %p partition   %o offset   %T timestamp in ms   %d date and time   %k key   %v value (also %s)
    %K and %V their sizes (-1: null)   %h headers, NAME=VALUE with commas   %% a percent sign   \\n \\t \\0 \\\\ \\xHH

In JSON a key, a value or that of a header that is no UTF-8 stands as {"base64": ...}.
Source: kcat's -f, rpk topic consume --format.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from kafkalite.common.errors import ConfigError
from kafkalite.common.timestamps import format_timestamp
from kafkalite.record.batch import NewRecord

_PIECE = re.compile(r"%(.)|\\(x[0-9A-Fa-f]{2}|.)|([^%\\]+|.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Shown(NamedTuple):
    """A record that is to be shown."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


Render = Callable[[Shown], bytes]
_READ = {"k": "key", "v": "value", "s": "value", "p": "partition", "T": "timestamp"}
_FIELDS: Mapping[str, Render] = {
    "t": lambda one: one.topic.encode(),
    "p": lambda one: b"%d" % one.partition,
    "o": lambda one: b"%d" % one.offset,
    "T": lambda one: b"%d" % one.timestamp,
    "d": lambda one: format_timestamp(one.timestamp).encode(),
    "k": lambda one: one.key or b"",
    "v": lambda one: one.value or b"",
    "s": lambda one: one.value or b"",
    "K": lambda one: b"%d" % (-1 if one.key is None else len(one.key)),
    "V": lambda one: b"%d" % (-1 if one.value is None else len(one.value)),
    "h": lambda one: b",".join(name.encode() + b"=" + (value or b"") for name, value in one.headers),
    "%": lambda one: b"%",
}


def pieces_of(text: str) -> list[bytes | Render]:
    """The literal bytes of a format, and what stands for its letters. Raises ConfigError."""
    found: list[bytes | Render] = []
    for letter, escape, literal in _PIECE.findall(text):
        if letter:
            if letter not in _FIELDS:
                raise ConfigError(f"--format has %{letter}; there are {' '.join('%' + each for each in _FIELDS)}")
            found.append(_FIELDS[letter])
        elif len(escape) > 1:
            found.append(bytes([int(escape[1:], 16)]))
        elif escape:
            if escape not in _ESCAPES:
                raise ConfigError(f"--format has \\{escape}; there are \\n \\t \\r \\0 \\\\ \\xHH")
            found.append(_ESCAPES[escape])
        else:
            found.append(literal.encode())
    return found


def renderer(text: str) -> Render:
    """Makes the bytes of a record by a format. Raises ConfigError."""
    pieces = pieces_of(text)
    return lambda one: b"".join(piece if isinstance(piece, bytes) else piece(one) for piece in pieces)


def json_of(one: Shown) -> bytes:
    """A line with an object, its end included."""
    told = {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp": one.timestamp,
        "key": _text_or_base64(one.key),
        "value": _text_or_base64(one.value),
        "headers": [{"name": name, "value": _text_or_base64(value)} for name, value in one.headers],
    }
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def safe(data: bytes) -> str:
    """For a terminal: nothing in it moves the cursor, changes colours or the direction of writing."""
    return _UNSAFE.sub(_escaped, data.decode(errors="backslashreplace"))


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


class Line(NamedTuple):
    """A record that was read from a line, and the partition that it is for, if the line says one."""

    record: NewRecord
    partition: int | None


def line_parser(text: str) -> Callable[[bytes], Line]:
    """Reads lines of a format of %k, %v, %p and %T, each at most once, with something between them. The parser raises
    ValueError for a line that does not fit. Raises ConfigError."""
    names = {_FIELDS[letter]: name for letter, name in _READ.items()}
    pattern, seen, is_field_before = b"", set(), False
    for piece in pieces_of(text.removesuffix("\\n")):
        if isinstance(piece, bytes):
            pattern += re.escape(piece)
        elif piece is _FIELDS["%"]:
            pattern += b"%"
        else:
            name = names.get(piece, "")
            if not name or name in seen or is_field_before:
                raise ConfigError("--format of lines to be read has %k, %v, %p, %T, each once, and a text between them")
            seen.add(name)
            pattern += b"(?P<%s>%s)" % (name.encode(), rb"-?\d{1,18}" if name in ("partition", "timestamp") else b".*?")
            is_field_before = True
            continue
        is_field_before = False
    if "value" not in seen:
        raise ConfigError("--format of lines to be read has no %v")
    line_pattern = re.compile(pattern, re.DOTALL)

    def parse(line: bytes) -> Line:
        found = line_pattern.fullmatch(line)
        if found is None:
            raise ValueError(f"does not look like {text}")
        parts = found.groupdict()
        record = NewRecord(parts.get("key"), parts["value"], (), int(parts.get("timestamp") or -1))
        return Line(record, int(parts["partition"]) if "partition" in parts else None)

    return parse


_JSON_NAMES = frozenset(("topic", "partition", "offset", "timestamp", "key", "value", "headers"))


def parse_json(line: bytes) -> Line:
    """The record of a line as `json_of` writes it; all but the value may be left out, topic and offset have no effect.
    Raises ValueError, also for other names: a slip of the pen would lose what it stands for."""
    told = json.loads(line)
    if not isinstance(told, dict):
        raise ValueError("is no JSON object")
    if unknown := sorted(told.keys() - _JSON_NAMES):
        raise ValueError(f"has {unknown[0]!r}, and there are {', '.join(sorted(_JSON_NAMES))}")
    if "value" not in told:
        raise ValueError('has no "value"; null is a tombstone')
    headers = told.get("headers") or []
    if isinstance(headers, dict):
        headers = [{"name": name, "value": value} for name, value in headers.items()]
    partition, timestamp = told.get("partition"), told.get("timestamp", -1)
    if not (partition is None or type(partition) is int) or type(timestamp) is not int:
        raise ValueError("has a partition or a timestamp that is no number")
    return Line(
        NewRecord(
            _bytes(told.get("key"), "key"),
            _bytes(told.get("value"), "value"),
            tuple(_header(one) for one in headers),
            timestamp,
        ),
        partition,
    )


def _header(told: Any) -> tuple[str, bytes | None]:
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        raise ValueError('has a header that is not {"name": TEXT, "value": TEXT}')
    return told["name"], _bytes(told.get("value"), "header")


def _bytes(told: Any, name: str) -> bytes | None:
    if told is None or isinstance(told, str):
        return None if told is None else told.encode()
    if isinstance(told, dict) and told.keys() == {"base64"} and isinstance(told["base64"], str):
        try:
            return base64.b64decode(told["base64"], validate=True)
        except binascii.Error:
            raise ValueError(f"has a {name} that is no base64") from None
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()  # an object stands for its JSON


def _text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
