"""Records as lines, and lines as records."""

from __future__ import annotations

import pytest

from kafkalite.cli.record_format import line_parser, renderer, safe
from kafkalite.common.errors import ConfigError
from kafkalite.record.batch import NewRecord
from kafkalite.record.json_lines import Line, Shown

ONE = Shown("orders", 3, 17, 1_700_000_000_123, b"k\xff", "grüße".encode(), (("a", b"1"), ("b", None)))


def test_a_format_has_letters_escapes_and_text() -> None:
    text = r"%t %p %o %T %K %V %h|%k|%s%%\t\x01\\" + "ü"
    expected = b"orders 3 17 1700000000123 2 7 a=1,b|k\xff|gr\xc3\xbc\xc3\x9fe%\t\x01\\\xc3\xbc"
    assert b"".join(renderer(text)(ONE)) == expected
    nothing = ONE._replace(key=None, value=None, headers=())
    assert b"".join(renderer("[%k][%v][%K][%V][%h]")(nothing)) == b"[][][-1][-1][]"


@pytest.mark.parametrize(("text", "words"), [("%x", "has %x; there are %t"), (r"\q", r"has \\q; there are")])
def test_what_no_format_has_is_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        renderer(text)


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
    with pytest.raises(ValueError, match="does not have the form %k:%v"):
        line_parser("%k:%v")(b"no separator")


@pytest.mark.parametrize("text", ["%k%v", "%v-%v", "%o %v", "%k"])
def test_a_format_that_cannot_be_read_by_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        line_parser(text)


def test_a_null_header_is_no_empty_one() -> None:
    one = ONE._replace(headers=(("none", None), ("empty", b""), ("", None), ("", b"")))
    assert b"".join(renderer("%h")(one)) == b"none,empty=,,="


def test_bytes_of_the_command_line_that_are_not_utf_8_stay_bytes() -> None:
    assert line_parser("%k\udcff%v")(b"a\xffb").record[:2] == (b"a", b"b")
    assert b"".join(renderer("%k\udcff")(ONE)) == b"k\xff\xff"


def test_nothing_drives_a_terminal() -> None:
    assert safe(b"\x1b[2Ja\tb\n\xff\r") == "\\x1b[2Ja\tb\n\\xff\\r"
    assert safe("\u202e\x9b".encode()) == "\\u202e\\x9b"
