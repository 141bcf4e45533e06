"""Filters on keys, values and headers: which records match, and patterns and paths that are none."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.console.messages import search
from kafkalite.console.messages.payload import Format
from kafkalite.console.messages.search import ANY_CASE, CONTAINS, EQUALS, JSON_PATH, REGEX, filters_of
from kafkalite.console.messages.search import test_of as filter_of
from kafkalite.console.request.parameters import ApiError
from kafkalite.record.batch import NewRecord, build_batch, parse_header

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
    return all(each(one) for each in filters_of({**_QUERY, **query}, Format(), Format()))


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
    monkeypatch.setattr(search, "REGEX_S_MAX", 0.01)
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
