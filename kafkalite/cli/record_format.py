"""Records as lines of text by formats with %v, %k and so on; the same letters to write and to read.

    %t topic   %p partition   %o offset   %T timestamp in ms   %d date and time   %k key   %v value (also %s)
    %K and %V their sizes (-1: null)   %h headers, NAME=VALUE with commas, a null one NAME alone   %% a percent sign
    \\n \\t \\0 \\\\ \\xHH

Source: kcat's -f, rpk topic consume --format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from kafkalite.common.errors import ConfigError
from kafkalite.common.text import printable
from kafkalite.common.timestamps import format_timestamp
from kafkalite.record.batch import NewRecord
from kafkalite.record.json_lines import Line, Shown

_PIECE = re.compile(r"%(.)|\\(x[0-9A-Fa-f]{2}|.)|([^%\\]+|.)", re.DOTALL)
_KEPT = "\n\t\u061c\u200e\u200f"  # marks of direction belong to Arabic and Hebrew, and override nothing
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


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
    "h": lambda one: b",".join(name.encode() + (b"" if value is None else b"=" + value) for name, value in one.headers),
    "%": lambda one: b"%",
}


def pieces_of(text: str) -> list[bytes | Render]:
    """The literal bytes of a format, and the functions for its letters. Raises ConfigError."""
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
            found.append(literal.encode("utf-8", "surrogateescape"))
    return found


def renderer(text: str) -> Callable[[Shown], list[bytes]]:
    """The function that formats a record as bytes, in pieces. Raises ConfigError."""
    pieces = pieces_of(text)
    return lambda one: [piece if isinstance(piece, bytes) else piece(one) for piece in pieces]


def safe(data: bytes) -> str:
    """The text for a terminal, with escapes for characters that move the cursor or change colours or directions."""
    return printable(data.decode(errors="backslashreplace"), keep=_KEPT)


def line_parser(text: str) -> Callable[[bytes], Line]:
    """The parser of lines in a format of %k, %v, %p and %T, each at most once, with text between them. The parser
    raises ValueError for a line that does not fit. Raises ConfigError."""
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
            raise ValueError(f"does not have the form {text}")
        parts = found.groupdict()
        record = NewRecord(parts.get("key"), parts["value"], (), int(parts.get("timestamp") or -1))
        return Line(record, int(parts["partition"]) if "partition" in parts else None)

    return parse
