"""Records as lines, and lines as records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.cli.record_format import Line, Shown, json_of, line_parser, parse_json, renderer, safe
from kafkalite.common.errors import ConfigError
from kafkalite.record.batch import NewRecord

ONE = Shown("orders", 3, 17, 1_700_000_000_123, b"k\xff", "grüße".encode(), (("a", b"1"), ("b", None)))


def test_a_format_has_letters_escapes_and_text() -> None:
    text = r"%t %p %o %T %K %V %h|%k|%s%%\t\x01\\" + "ü"
    expected = b"orders 3 17 1700000000123 2 7 a=1,b=|k\xff|gr\xc3\xbc\xc3\x9fe%\t\x01\\\xc3\xbc"
    assert renderer(text)(ONE) == expected
    nothing = ONE._replace(key=None, value=None, headers=())
    assert renderer("[%k][%v][%K][%V][%h]")(nothing) == b"[][][-1][-1][]"


@pytest.mark.parametrize(("text", "words"), [("%x", "has %x; there are %t"), (r"\q", r"has \\q; there are")])
def test_what_no_format_has_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        renderer(text)


def test_json_holds_any_bytes() -> None:
    told = json.loads(json_of(ONE))
    assert told["value"] == "grüße" and told["key"] == {"base64": "a/8="} and told["timestamp"] == ONE.timestamp
    assert told["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": None}]


@given(
    st.one_of(st.none(), st.binary()),
    st.one_of(st.none(), st.binary()),
    st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.one_of(st.none(), st.binary()))),
    st.integers(0, 1 << 50),
)
def test_json_that_was_written_is_read(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    line = json_of(Shown("t", 2, 5, timestamp, key, value, headers))
    assert parse_json(line) == Line(NewRecord(key, value, tuple(headers), timestamp), 2)


def test_json_may_say_less_and_hold_more_json() -> None:
    assert parse_json(b'{"value": "a"}') == Line(NewRecord(None, b"a"), None)
    assert parse_json(b'{"value": {"b": [1]}, "key": 7, "headers": {"h": "x"}}') == Line(
        NewRecord(b"7", b'{"b":[1]}', (("h", b"x"),)), None
    )


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"nothing",
        b'{"value": "", "partition": "a"}',
        b'{"value": {"base64": "?"}}',
        b'{"value": "", "headers": [1]}',
        b'"x"',
        b'{"val": "a"}',
        b'{"value": "a", "header": {}}',
        b'{"key": "a"}',
    ],
)
def test_json_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        parse_json(line)


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("%k:%v", b"a:b:c", Line(NewRecord(b"a", b"b:c"), None)),
        ("%k=%v", b"a==b", Line(NewRecord(b"a", b"=b"), None)),
        (r"%p\t%T\t%v", b"2\t17\tx\ty", Line(NewRecord(None, b"x\ty", (), 17), 2)),
        (r"%v\n", b"all of it", Line(NewRecord(None, b"all of it"), None)),
        ("%%%v", b"%x", Line(NewRecord(None, b"x"), None)),
    ],
)
def test_lines_are_read_by_a_format(text: str, line: bytes, expected: Line) -> None:
    assert line_parser(text)(line) == expected


def test_a_line_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="does not look like %k:%v"):
        line_parser("%k:%v")(b"no separator")


@pytest.mark.parametrize("text", ["%k%v", "%v-%v", "%o %v", "%k"])
def test_a_format_that_cannot_be_read_by_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        line_parser(text)


def test_nothing_drives_a_terminal() -> None:
    assert safe(b"\x1b[2Ja\tb\n\xff\r") == "\\x1b[2Ja\tb\n\\xff\\x0d"
    assert safe("\u202e\x9b".encode()) == "\\u202e\\x9b"
