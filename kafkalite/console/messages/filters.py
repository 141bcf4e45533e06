"""Filters on keys, values and headers of records: text, regular expressions and paths into JSON.

A plain filter also has a test of all records of a batch at once, by their bytes before they are decoded: a batch whose
bytes cannot have a match costs a search a fiftieth of what its records would.
"""

from __future__ import annotations

import importlib
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from kafkalite.client.partition_scan import MayMatch, ScannedRecord
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json
from kafkalite.console.decoders.registry import NotEncoded
from kafkalite.console.messages.payload import Format, parse_json
from kafkalite.console.request.parameters import ApiError, invalid

CONTAINS, ANY_CASE, EQUALS, REGEX, JSON_PATH = MATCHES = ("contains", "contains_any_case", "equals", "regex", "json")
REGEX_S_MAX = 0.25
_TEXT_BYTES_MAX = 1 << 20
_EXACT_MAX = 10**15  # larger ones may be written as 1e+16
_NAME = r"([A-Za-z_][\w-]*)"
_STEP = re.compile(rf'\.\.{_NAME}|\.{_NAME}|\[(\d{{1,9}})\]|\["([^"]*)"\]|(\[\*\])')

# what folds to ASCII letters besides these themselves, by the first bytes of its UTF-8: \u00df, \u0130, \u0149, \u017f,
# \u01f0, \u1e96 to \u1e9e, \u212a, and ligatures
_FOLDED = (
    ("s", b"\xc3\x9f"),
    ("i", b"\xc4\xb0"),
    ("n", b"\xc5\x89"),
    ("s", b"\xc5\xbf"),
    ("j", b"\xc7\xb0"),
    ("ahstwy", b"\xe1\xba"),
    ("k", b"\xe2\x84\xaa"),
    ("filst", b"\xef\xac"),
)
_ASCII = bytes(range(0x80))
_ASCII_RUN = re.compile("[\0-\x7f]+")
_REPLACEMENT = "\ufffd"  # in the text of bytes that are no UTF-8
_WORD = re.compile(r"\w+")
_BEYOND_NUMBERS = re.compile(r"[^\W\deEInfityNa]")  # a letter that neither a number nor NaN nor Infinity has
_COMPARISON = re.compile(r"(!=|>=|<=|=|>|<|~)(.*)", re.DOTALL)
_ORDERS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}

_WHERE_OR_ANY = frozenset("dDwWsSbBAZ")  # behind a backslash: a kind of character, or a place between two
_QUANTIFIERS, _SINGLE = "*+?", ".^$"

_AT, _EACH, _ANYWHERE = "at", "each", "anywhere"


class _Step(NamedTuple):
    """A step of a path: _AT a name or an index; _EACH item of a list or value of an object, [*]; _ANYWHERE, to every
    field of a name at any depth, ..name."""

    kind: str
    place: str | int = ""


Test = Callable[[bytes], bool]


class Filter(NamedTuple):
    """A condition on records. `may_match`: whether the bytes of some records may have one that matches; None if only
    the records themselves show it."""

    matches: Callable[[ScannedRecord], bool]
    may_match: MayMatch | None = None


def test_of(match: str, text: str, shown: Format, side: str) -> Test:
    """The test of a filter. Raises ApiError for an invalid pattern or path."""
    wanted = text.encode()
    if match == EQUALS:
        return lambda data: data == wanted
    if match == REGEX:
        return _regex(text, shown, side)
    if match == JSON_PATH:
        return _json_path(text, shown, side)
    if match == ANY_CASE:
        folded = text.casefold()
        return lambda data: folded in _decoded_text(shown, data).casefold()
    if shown.decode is not None:
        return lambda data: text in _decoded_text(shown, data)
    return lambda data: wanted in data


def screen_of(match: str, text: str, shown: Format) -> MayMatch | None:
    """The test of all records of a batch at once for `test_of`: False only if it is False for each key, value and value
    of a header in these bytes. None if there is none: text that a decoder makes is not in the bytes."""
    if match == EQUALS:
        return _having(text)
    if shown.decode is not None:
        return None
    if match == CONTAINS:
        return _having(text)
    if match == ANY_CASE:
        return _having_any_case(text.casefold())
    return _having_json(*_comparison_of(text, "")) if match == JSON_PATH else _having(_literal_of(text))


def _having(text: str) -> MayMatch | None:
    part = text.encode()
    return (lambda data: part in data) if part and _REPLACEMENT not in text else None


def _having_any_case(folded: str) -> MayMatch | None:
    """By the longest part in ASCII of the text that is searched for."""
    run = max(_ASCII_RUN.findall(folded), key=len, default="")
    part = run.encode()
    others = [first for letters, first in _FOLDED if not set(letters).isdisjoint(run)]

    def may_match(data: bytes) -> bool:
        if part in data.lower():
            return True
        beyond = data.translate(None, _ASCII)  # little in most topics, and a sequence of others stays one
        return any(one in beyond for one in others)

    return may_match if part else None


def _having_json(steps: Sequence[_Step], compare: str, wanted: Any, wanted_text: str) -> MayMatch | None:
    """By the names of the path, and by a part of the value that compares. Any character may be written as \\uXXXX in
    JSON, and a slash as \\/. The text of an object or a list, which ~ looks into, has control characters as letters,
    such as \\n."""
    parts = [_json_of(str(step.place)) for step in steps if step.kind != _EACH and isinstance(step.place, str)]
    if compare == "=" and type(wanted) not in (int, float):
        parts.append(_part_of(wanted))
    elif compare == "~" and _WORD.fullmatch(wanted_text) and _BEYOND_NUMBERS.search(wanted_text):
        parts.append(wanted_text)
    known = [one for one in parts if one and _REPLACEMENT not in one]
    if not known:
        return None
    encoded = [one.encode(errors="surrogatepass") for one in known]
    escapes = {_escape_of(char) for one in known for char in one} | ({b"u00[01]"} if compare == "~" else set())
    escaped = re.compile(rb"\\(?:" + b"|".join(sorted(escapes)) + b")")
    return lambda data: all(one in data for one in encoded) or (b"\\" in data and escaped.search(data) is not None)


def _json_of(text: str) -> str:
    """The text as JSON has it if none of its characters is escaped; "" if some must be."""
    found = json.dumps(text, ensure_ascii=False)
    return found if found == f'"{text}"' else ""


def _escape_of(char: str) -> bytes:
    """The pattern of a character's escape in JSON without its backslash; beyond the BMP, of the first half."""
    unit = char.encode("utf-16-be", "surrogatepass")[:2].hex()
    digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in unit)
    return b"/|u002[fF]" if char == "/" else b"u" + digits.encode()


def _decoded_text(shown: Format, data: bytes) -> str:
    """The rendered text, for filters on it."""
    if shown.decode is None:
        return data[:_TEXT_BYTES_MAX].decode(errors="replace")
    try:
        return shown.decode(data)
    except NotEncoded:
        return data[:_TEXT_BYTES_MAX].decode(errors="replace")
    except ValueError:
        return ""


def _regex(pattern: str, shown: Format, side: str) -> Test:
    regex: Any = importlib.import_module("regex")  # unlike `re` it has a timeout
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


def _literal_of(pattern: str) -> str:
    """The longest text that is in all that a regular expression matches; "" if none is known. Alternatives,
    repetitions by number, and what begins with (? are not looked into: flags may be among them."""
    if "{" in pattern or "(?" in pattern:
        return ""
    runs, at = [""], 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "|":
            return ""
        if char in "([":
            at = _end_of_set(pattern, at) if char == "[" else _end_of_group(pattern, at)
            if not at:
                return ""
            runs.append("")
        elif char in _QUANTIFIERS:
            if char != "+":
                runs[-1] = runs[-1][:-1]
            runs.append("")
        elif char in _SINGLE or (char == "\\" and pattern[at : at + 1] in _WHERE_OR_ANY):
            at += char == "\\"
            runs.append("")
        elif char == "\\":
            char = pattern[at : at + 1]
            if not char or char.isalnum():
                return ""
            at += 1
            runs[-1] += char
        else:
            runs[-1] += char
    return max(runs, key=len)


def _end_of_set(pattern: str, at: int) -> int:
    """The position behind a set of characters whose [ is before `at`; 0 if it has no end, or another set in it."""
    at += pattern[at : at + 1] == "^"
    at += pattern[at : at + 1] == "]"
    while at < len(pattern) and pattern[at] != "[":
        if pattern[at] == "]":
            return at + 1
        at += 2 if pattern[at] == "\\" else 1
    return 0


def _end_of_group(pattern: str, at: int) -> int:
    """The position behind a group whose ( is before `at`; 0 if it has no end."""
    depth = 1
    while at < len(pattern):
        char = pattern[at]
        if char == "[":
            if not (at := _end_of_set(pattern, at + 1)):
                break
            continue
        depth += (char == "(") - (char == ")")
        at += 2 if char == "\\" else 1
        if not depth:
            return at
    return 0


def _json_path(text: str, shown: Format, side: str) -> Test:
    steps, compare, wanted, wanted_text = _comparison_of(text, side)
    needle = _part_of(wanted) if compare == "=" else ""
    may_match = _having_json(steps, compare, wanted, wanted_text)

    def test(data: bytes) -> bool:
        try:
            try:
                text = None if shown.decode is None else shown.decode(data)
            except NotEncoded:
                text = None
            if text is None:
                if may_match is not None and not may_match(data):
                    return False
                value: Any = parse_json(data)
            elif needle not in text:  # 1 us instead of 7 for a record of six fields
                return False
            else:
                value = read_json(text)
        except ValueError:
            return False
        return any(holds(each) for each in _values_at(value, steps))

    def holds(value: Any) -> bool:
        if compare in _ORDERS:
            return type(value) in (int, float) and _ORDERS[compare](value, wanted)
        if compare == "~":
            return wanted_text in (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        is_equal = bool(value == wanted and isinstance(value, bool) == isinstance(wanted, bool)) or value == wanted_text
        return is_equal == (compare == "=")

    return test


def _comparison_of(text: str, side: str) -> tuple[list[_Step], str, Any, str]:
    """The path, the operator, the value to compare with and its text. Raises ApiError."""
    steps, rest = _steps(text.strip(), side)
    found = _COMPARISON.match(rest)
    if found is None:
        raise invalid(f"{side}: {text[:80]!r} must be a path and a comparison, such as $.user.id=7 or $.total>=100")
    compare, wanted_text = found[1], found[2].strip()
    try:
        wanted = parse_json(wanted_text.encode())
    except ValueError:
        wanted = wanted_text  # a word without quotes stands for itself
    if compare in _ORDERS and type(wanted) not in (int, float):
        raise invalid(f"{side}: {compare} compares numbers, and {wanted_text[:80]!r} is none")
    return steps, compare, wanted, wanted_text


def _values_at(value: Any, steps: Sequence[_Step]) -> Iterator[Any]:
    """The values that a path leads to. There is at most one _ANYWHERE, so it visits each part of the value once."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step.kind == _AT:
        if not isinstance(value, dict | list):
            return
        place: Any = step.place
        try:
            found = value[place]
        except (LookupError, TypeError):
            return
        yield from _values_at(found, rest)
    elif step.kind == _EACH:
        for each in _children(value):
            yield from _values_at(each, rest)
    else:
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict) and step.place in one:
                yield from _values_at(one[step.place], rest)
            waiting += _children(one)


def _children(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _part_of(wanted: Any) -> str:
    """A substring of every decoded text that contains this value; "" if none is known."""
    if isinstance(wanted, bool) or wanted is None:
        return json.dumps(wanted)
    if isinstance(wanted, int) and abs(wanted) < _EXACT_MAX:
        return str(wanted)  # also in the text of 7.0
    return wanted if isinstance(wanted, str) and _json_of(wanted) else ""


def _steps(text: str, side: str) -> tuple[list[_Step], str]:
    """The steps of the path that a text begins with, and the rest of the text. Raises ApiError."""
    steps: list[_Step] = []
    position = 1
    if not text.startswith("$"):
        raise invalid(f"{side}: a path begins with $, such as $.user.id=7")
    while (found := _STEP.match(text, position)) is not None:
        anywhere, name, index, quoted, _ = found.groups()
        if anywhere is not None:
            steps.append(_Step(_ANYWHERE, anywhere))
        elif index is not None:
            steps.append(_Step(_AT, int(index)))
        elif name is not None or quoted is not None:
            steps.append(_Step(_AT, quoted if name is None else name))
        else:
            steps.append(_Step(_EACH))
        position = found.end()
    if sum(step.kind == _ANYWHERE for step in steps) > 1:
        raise invalid(f"{side}: a path may have one ..name")
    rest = text[position:].strip()
    if rest and rest[0] in ".[":
        raise invalid(f"{side}: {rest[:40]!r} is not a valid step of a path such as $.orders[0].id")
    return steps, rest


def filters_of(query: dict[str, Any], key: Format, value: Format) -> list[Filter]:
    """The filters of a query; a record matches if all hold. Regular expressions come last: each may end a search by its
    limit, and a record that another filter leaves out needs none. Raises ApiError."""
    found: list[tuple[bool, Filter]] = []
    if query["key"] is not None:
        found.append((query["key_match"] == REGEX, _key_filter(query["key"], query["key_match"], key)))
    if query["value"] is not None:
        found.append((query["value_match"] == REGEX, _value_filter(query["value"], query["value_match"], value)))
    if query["header"] is not None:
        found.append((query["header_match"] == REGEX, _header_filter(query["header"], query["header_match"])))
    return [one for _, one in sorted(found, key=operator.itemgetter(0))]


def screen_of_all(filters: Sequence[Filter]) -> MayMatch | None:
    """Whether the bytes of some records may have one for which all filters hold; None if only the records show it."""
    found = [one.may_match for one in filters if one.may_match is not None]
    if len(found) < 2:
        return found[0] if found else None
    return lambda data: all(each(data) for each in found)


def _key_filter(text: str, match: str, shown: Format) -> Filter:
    test = test_of(match, text, shown, "key")
    return Filter(lambda one: one.key is not None and test(one.key), screen_of(match, text, shown))


def _value_filter(text: str, match: str, shown: Format) -> Filter:
    test = test_of(match, text, shown, "value")
    return Filter(lambda one: one.value is not None and test(one.value), screen_of(match, text, shown))


def _header_filter(text: str, match: str) -> Filter:
    """The filter on headers: NAME=TEXT for the value of a header of this name, TEXT alone for a name or a value."""
    name, equals, wanted = text.partition("=")
    has_name = bool(equals) and match != JSON_PATH
    if not has_name:
        wanted = text
    test = test_of(match, wanted, Format(), "header")

    def values(one: ScannedRecord) -> Iterable[bytes]:
        for each, value in one.headers:
            if has_name:
                if each == name:
                    yield value or b""
            else:
                yield each.encode()
                yield value or b""

    return Filter(lambda one: any(map(test, values(one))), screen_of(match, wanted, Format()))
