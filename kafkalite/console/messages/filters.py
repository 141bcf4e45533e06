"""Filters on keys, values and headers. A regular expression has a time limit for each value, so that none runs away."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.common.text import read_json
from kafkalite.console.messages.payload import Format, parse_json
from kafkalite.console.request.parameters import ApiError, invalid

CONTAINS, EQUALS, REGEX, JSON_PATH = MATCHES = ("contains", "equals", "regex", "json")
REGEX_S_MAX = 0.25
_TEXT_BYTES_MAX = 1 << 20
_EXACT_MAX = 10**15  # larger ones may be written as 1e+16
_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d{1,9})\]|\[\"([^\"]*)\"\]")

Test = Callable[[bytes], bool]
Filter = Callable[[ScannedRecord], bool]


def test_of(match: str, text: str, shown: Format, side: str) -> Test:
    """Whether bytes match. Raises ApiError for a pattern or path that is none."""
    wanted = text.encode()
    if match == EQUALS:
        return lambda data: data == wanted
    if match == REGEX:
        return _regex(text, shown, side)
    if match == JSON_PATH:
        return _json_path(text, shown, side)
    if shown.decode is not None:
        return lambda data: text in _decoded_text(shown, data)
    return lambda data: wanted in data


def _decoded_text(shown: Format, data: bytes) -> str:
    """The text that a person sees, for filters on it."""
    if shown.decode is None:
        return data[:_TEXT_BYTES_MAX].decode(errors="replace")
    try:
        return shown.decode(data)
    except ValueError:
        return ""


def _regex(pattern: str, shown: Format, side: str) -> Test:
    regex: Any = importlib.import_module("regex")  # unlike `re` it can be stopped
    try:
        compiled = regex.compile(pattern)
    except (regex.error, OverflowError, RecursionError) as fault:
        raise invalid(f"{side}: {pattern[:80]!r} is no regular expression: {fault}") from None

    def test(data: bytes) -> bool:
        try:
            return compiled.search(_decoded_text(shown, data), timeout=REGEX_S_MAX, concurrent=True) is not None
        except TimeoutError:
            limit = f"{REGEX_S_MAX:g} s for one value"
            raise ApiError(400, "TIMEOUT", f"{side}: the regular expression takes more than {limit}") from None

    return test


def _json_path(text: str, shown: Format, side: str) -> Test:
    path, equals, wanted_text = text.partition("=")
    steps = _steps(path.strip(), side)
    if not equals:
        raise invalid(f"{side}: {text[:80]!r} must be a path and a value, such as $.user.id=7")
    try:
        wanted = parse_json(wanted_text.strip().encode())
    except ValueError:
        wanted = wanted_text.strip()  # a word without quotes is itself

    needle = _part_of(wanted)

    def test(data: bytes) -> bool:
        try:
            if shown.decode is None:
                value: Any = parse_json(data)
            else:
                text = shown.decode(data)
                if needle not in text:  # 1 us instead of 7 for a record of six fields
                    return False
                value = read_json(text)
        except ValueError:
            return False
        for step in steps:
            if isinstance(value, str):
                return False
            try:
                value = value[step]
            except (LookupError, TypeError):
                return False
        return bool(value == wanted and isinstance(value, bool) == isinstance(wanted, bool)) or value == wanted_text

    return test


def _part_of(wanted: Any) -> str:
    """A part of every text of a decoder in which this value stands; "" if none is known."""
    if isinstance(wanted, bool) or wanted is None:
        return json.dumps(wanted)
    if isinstance(wanted, int) and abs(wanted) < _EXACT_MAX:
        return str(wanted)  # of 7.0, too
    return wanted if isinstance(wanted, str) and json.dumps(wanted, ensure_ascii=False) == f'"{wanted}"' else ""


def _steps(path: str, side: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 1
    if not path.startswith("$"):
        raise invalid(f"{side}: a path begins with $, such as $.user.id=7")
    while position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            raise invalid(f"{side}: {path[position : position + 40]!r} is no step of a path such as $.orders[0].id")
        name, index, quoted = found.groups()
        steps.append(int(index) if index is not None else name if name is not None else quoted)
        position = found.end()
    return steps


def filters_of(query: dict[str, Any], key: Format, value: Format) -> list[Filter]:
    """The filters that a query asks for; a record is found if all hold. Raises ApiError."""
    found: list[Filter] = []
    if query["key"] is not None:
        of_key = test_of(query["key_match"], query["key"], key, "key")
        found.append(lambda one: one.key is not None and of_key(one.key))
    if query["value"] is not None:
        of_value = test_of(query["value_match"], query["value"], value, "value")
        found.append(lambda one: one.value is not None and of_value(one.value))
    if query["header"] is not None:
        found.append(_header_filter(query["header"], query["header_match"]))
    return found


def _header_filter(text: str, match: str) -> Filter:
    """NAME=TEXT for the value of a header of this name, TEXT alone for a name or a value."""
    name, equals, wanted = text.partition("=")
    test = test_of(match, wanted if equals and match != JSON_PATH else text, Format(), "header")

    def values(one: ScannedRecord) -> Iterable[bytes]:
        for each, value in one.headers:
            if equals and match != JSON_PATH:
                if each == name:
                    yield value or b""
            else:
                yield each.encode()
                yield value or b""

    return lambda one: any(map(test, values(one)))
