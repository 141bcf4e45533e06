"""Filters on keys, values and headers: which records match, and patterns and paths that are none."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.console.messages import filters
from kafkalite.console.messages.filters import ANY_CASE, CONTAINS, EQUALS, JSON_PATH, REGEX, filters_of, screen_of
from kafkalite.console.messages.filters import test_of as filter_of
from kafkalite.console.messages.payload import Format, ScalarDecoder
from kafkalite.console.request.parameters import ApiError
from kafkalite.record.batch import NewRecord, build_batch, parse_header

_WITHOUT_ASCII = dict.fromkeys(range(0x80))
_BATCH = parse_header(build_batch([NewRecord(None, b"v")]))
_QUERY = {
    name: CONTAINS if name.endswith("match") else None
    for name in ("key", "key_match", "value", "value_match", "header", "header_match")
}
_JSON = b'{"user": {"id": 7, "name": "ann"}, "ids": [1, true], "a b": null}'


def record(key: bytes | None = None, value: bytes | None = None, *headers: tuple[str, bytes | None]) -> ScannedRecord:
    return ScannedRecord("t", 0, 0, 0, key, value, headers, -1, _BATCH, None)


def matches(one: ScannedRecord, **query: str) -> bool:
    """Whether a record passes all filters of a query."""
    return all(each.matches(one) for each in filters_of({**_QUERY, **query}, Format(), Format()))


@pytest.mark.parametrize(
    ("match", "text", "data", "found"),
    [
        (CONTAINS, "ell", b"hello", True),
        (CONTAINS, "", b"", True),
        (CONTAINS, "\u00e9", "caf\u00e9".encode(), True),
        (CONTAINS, "ELL", b"hello", False),
        (ANY_CASE, "ELL", b"hello", True),
        (ANY_CASE, "stra\u00dfe", b"HAUPTSTRASSE", True),
        (ANY_CASE, "elk", b"hello", False),
        (EQUALS, "hell", b"hello", False),
        (EQUALS, "hello", b"hello", True),
        (REGEX, "^h.*o$", b"hello", True),
        (REGEX, "o{2}", b"hello", False),
        (REGEX, "\ufffd", b"\xff", True),
        (JSON_PATH, "$.user.id=7", _JSON, True),
        (JSON_PATH, "$.user.id=7.0", _JSON, True),
        (JSON_PATH, "$.user.id=8", _JSON, False),
        (JSON_PATH, "$.user.name=ann", _JSON, True),
        (JSON_PATH, '$.user.name="ann"', _JSON, True),
        (JSON_PATH, "$.ids[1]=true", _JSON, True),
        (JSON_PATH, "$.ids[0]=true", _JSON, False),
        (JSON_PATH, "$.ids[9]=1", _JSON, False),
        (JSON_PATH, '$["a b"]=null', _JSON, True),
        (JSON_PATH, "$.user.name[0]=a", _JSON, False),
        (JSON_PATH, "$=7", b"7", True),
        (JSON_PATH, "$.a=1", b"no JSON", False),
        (JSON_PATH, "$.ids[*]=true", _JSON, True),
        (JSON_PATH, "$.ids[*]=2", _JSON, False),
        (JSON_PATH, "$.ids[*]!=true", _JSON, True),
        (JSON_PATH, "$.user[*]=ann", _JSON, True),
        (JSON_PATH, "$.user.name[*]=a", _JSON, False),
        (JSON_PATH, "$..id=7", _JSON, True),
        (JSON_PATH, "$..id>7", _JSON, False),
        (JSON_PATH, "$..sku~B", b'{"orders": [{"items": [{"sku": "A1"}, {"sku": "B2"}]}]}', True),
        (JSON_PATH, "$..items[*].sku=B2", b'[[{"items": [{"sku": "A1"}, {"sku": "B2"}]}]]', True),
    ],
)
def test_bytes_match_or_not(match: str, text: str, data: bytes, found: bool) -> None:
    assert filter_of(match, text, Format(), "value")(data) is found


@pytest.mark.parametrize(
    ("match", "text", "why"),
    [
        (REGEX, "(", r"value: '\(' is no regular expression"),
        (JSON_PATH, "user=7", r"begins with \$"),
        (JSON_PATH, "$.user", "must be a path and a comparison"),
        (JSON_PATH, "$..user..id=7", "a path may have one ..name"),
        (JSON_PATH, "$..[0]=7", "is not a valid step of a path"),
        (JSON_PATH, "$[-1]=7", "is not a valid step of a path"),
    ],
)
def test_a_pattern_or_path_that_is_none_is_refused(match: str, text: str, why: str) -> None:
    with pytest.raises(ApiError, match=why) as refused:
        filter_of(match, text, Format(), "value")
    assert refused.value.status == 400


def test_a_regular_expression_that_runs_away_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filters, "REGEX_S_MAX", 0.01)
    run_away = filter_of(REGEX, "(a|aa)+$", Format(), "key")
    with pytest.raises(ApiError, match=r"key: the regular expression takes more than 0.01 s"):
        run_away(b"a" * 60 + b"b")


def test_a_query_without_filters_has_none_and_null_matches_nothing() -> None:
    assert filters_of(_QUERY, Format(), Format()) == []
    assert not matches(record(None, b"v"), key="") and not matches(record(b"k", None), value="")


def test_all_filters_of_a_query_must_hold() -> None:
    one = record(b"k1", b"v1", ("h", b"x"))
    assert matches(one, key="k", value="v", header="h=x")
    assert not matches(one, key="k", value="w", header="h=x")


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"header": "trace"}, True),
        ({"header": "abc"}, True),
        ({"header": "trace=b"}, True),
        ({"header": "span=b"}, False),
        ({"header": "none="}, True),
        ({"header": "trace=abc", "header_match": EQUALS}, True),
        ({"header": "trace=ab", "header_match": EQUALS}, False),
        ({"header": "trace=^a.c$", "header_match": REGEX}, True),
        ({"header": "$.id=7", "header_match": JSON_PATH}, True),
        ({"header": "$.id=8", "header_match": JSON_PATH}, False),
    ],
)
def test_headers_match_by_name_and_value(query: dict[str, Any], found: bool) -> None:
    one = record(None, None, ("trace", b"abc"), ("none", None), ("json", b'{"id": 7}'))
    assert matches(one, **query) is found


# the bytes of a batch: a text that is not in them is in no record


def _of_chars(chars: list[tuple[str, bool]]) -> str:
    """A string of JSON, some of its characters as \\uXXXX."""
    plain = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "/": "\\/"}
    return '"' + "".join(f"\\u{ord(one):04x}" if escaped else plain.get(one, one) for one, escaped in chars) + '"'


_LETTERS = 'abeknst1/_ \n"\\\u017f\u00df\u212a\u0130\ufb03\ufffd\u00e9'
_STRINGS = st.lists(st.tuples(st.sampled_from(_LETTERS), st.booleans()), max_size=6).map(_of_chars)
_NAMES = st.sampled_from(['"a"', r'"\u0061"']) | _STRINGS
_NUMBERS = st.sampled_from(["1", "1.0", "10e-1", "1E16", "1e999", "true", "false", "null", "NaN"])
_JSON_TEXTS = st.recursive(
    _STRINGS | _NUMBERS,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda all_: f"[{','.join(all_)}]")
        | st.lists(st.tuples(_NAMES, inner), max_size=2).map(
            lambda all_: "{" + ", ".join(f"{name}: {one}" for name, one in all_) + "}"
        )
    ),
    max_leaves=6,
)
_TEXTS = st.text(_LETTERS + "KNSTIf", max_size=5)
_BYTES = st.one_of(
    st.binary(max_size=12), _TEXTS.map(str.encode), _JSON_TEXTS.map(str.encode), st.just(b"\xc3\x9f\xff\xefb\xc5")
)
_PATHS = st.builds(
    "{}{}{}".format,
    st.sampled_from(["$", "$.a", "$[*]", "$..a"]),
    st.sampled_from(["=", "~", "!="]),
    _TEXTS | _JSON_TEXTS,
)


@given(
    st.tuples(st.sampled_from([CONTAINS, ANY_CASE, EQUALS]), _TEXTS) | st.tuples(st.just(JSON_PATH), _PATHS),
    _BYTES,
    st.binary(max_size=3),
    st.binary(max_size=3),
)
@example((ANY_CASE, "STRASSE"), "stra\u00dfe".encode(), b"\xc3", b"")
@example((JSON_PATH, "$.a=an"), b'{"a": "\\u0061n"}', b"", b"")
@example((JSON_PATH, "$~nb"), b'["\\nb"]', b"", b"")
@example((JSON_PATH, "$=a/b"), b'"a\\/b"', b"", b"")
@example((JSON_PATH, "$~1e"), b"[1E16]", b"", b"")
def test_bytes_that_are_refused_have_no_value_that_matches(
    wanted: tuple[str, str], data: bytes, before: bytes, behind: bytes
) -> None:
    screen = screen_of(*wanted, Format())
    if screen is not None and filter_of(*wanted, Format(), "value")(data):
        assert screen(before + data + behind)


@pytest.mark.parametrize(
    ("match", "text", "data", "is_refused"),
    [
        (CONTAINS, "word", b"another text", True),
        (CONTAINS, "", b"another text", None),
        (EQUALS, "word", b"another text", True),
        (ANY_CASE, "WORD", b"another text", True),
        (ANY_CASE, "word", b"a WoRD", False),
        (ANY_CASE, "k\u00f6ln", b"a city", True),
        (ANY_CASE, "\u043c\u0438\u0440", b"a city", None),
        (REGEX, "^wor(d|t)+", b"another text", True),
        (REGEX, "(word)", b"another text", None),
        (JSON_PATH, "$.a=word", b'{"a": "b"}', True),
        (JSON_PATH, "$.a~word", b'{"a": "b"}', True),
        (JSON_PATH, "$.b=7", b'{"a": 7}', True),
        (JSON_PATH, "$.b>7", b'{"\\u0062": 8}', False),
        (JSON_PATH, "$..b[*]!=word", b'{"a": ["b ", {}]}', True),
        (JSON_PATH, "$[0]=7", b"[8]", None),
        (JSON_PATH, "$~{", b'{"a": "b"}', None),
        (JSON_PATH, "$!=word", b'"word"', None),
    ],
)
def test_a_filter_refuses_bytes_without_its_text(match: str, text: str, data: bytes, is_refused: bool | None) -> None:
    """None: it has no such test."""
    screen = screen_of(match, text, Format())
    assert (None if screen is None else not screen(data)) is is_refused


@pytest.mark.parametrize(
    ("pattern", "literal"),
    [
        ("clos(ed|ing)", "clos"), ("^abc$", "abc"), ("ab*c", "a"), ("ab+c", "ab"), ("a|b", ""), ("colou?r", "colo"),
        (r"x\.y", "x.y"), (r"\d+ms", "ms"), ("(?i)abc", ""), ("a{2}", ""), ("(?:ab){e<=1}", ""), ("[abc]def", "def"),
        ("(a[)]b)cd", "cd"), ("[]a]zz", "zz"), ("((a)b)c", "c"), ("(" * 999 + ")" * 999 + "a", "a"), ("a.b.cc", "cc"),
    ],
)  # fmt: skip
def test_the_text_in_all_that_a_pattern_matches(pattern: str, literal: str) -> None:
    assert filters._literal_of(pattern) == literal


_PARTS = [*"abd.()[]*+?|^$w-#\u00e9\\", r"\d", r"\b", r"\.", "(a)", "[ab]", "||"]


@given(st.lists(st.sampled_from(_PARTS), max_size=8).map("".join), st.text("abd.1-#|\u00e9", max_size=8))
def test_text_without_it_has_no_match(pattern: str, text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # sets that a later version of the language reads otherwise
        try:
            test = filter_of(REGEX, pattern, Format(), "value")
        except ApiError:
            return
    assert filters._literal_of(pattern) in text or not test(text.encode())


def test_what_a_decoder_renders_is_not_in_the_bytes() -> None:
    decoded = Format("integer", ScalarDecoder("integer"))
    assert screen_of(CONTAINS, "7", decoded) is None and screen_of(JSON_PATH, "$=7", decoded) is None
    assert screen_of(EQUALS, "7", decoded) is not None, "the bytes themselves are compared"


def test_what_folds_to_ascii_is_known() -> None:
    for code in range(0x80, 0x110000):
        folded = chr(code).casefold()
        if not folded.isascii() and folded.translate(_WITHOUT_ASCII) == folded:
            continue
        known = "".join(letters for letters, first in filters._FOLDED if chr(code).encode().startswith(first))
        assert {one for one in folded if one.isascii()} <= set(known), hex(code)


def test_a_regular_expression_is_the_last_of_a_query() -> None:
    one = record(b"a" * 60 + b"b", b"v")
    assert not matches(one, key="(a|aa)+$", key_match=REGEX, value="w")
