"""Requests that no page sends, and records that nobody wrote with good intent: an answer for each, and never a fault of
the console's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings

from kafkalite.testing import Broker
from tests.support.console import Browser, console
from tests.support.hostile_records import hostile_records

VALUES = [
    b"<script>alert(1)</script>",
    bytes(range(256)),
    b"\xed\xa0\x80\xff",
    b"[" * 100_000,
    b"\x00" * 5 + b"\x02" * 20,
    b'{"a": NaN}',
    b'"\\ud800"',
    b"x" * 3_000_000,
    "\u202e\u0000\u2028".encode(),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Broker(message_max_bytes=10_000_000) as broker:
        broker.create_topic("hostile", max_message_bytes=10_000_000)
        for value in VALUES:
            broker.produce("hostile", key=value[:1000], value=value)
        with console(broker.bootstrap_servers) as browser:
            yield browser


@pytest.mark.parametrize("shape", ["auto", "text", "json", "hex", "avro"])
def test_any_bytes_are_shown(browser: Browser, shape: str) -> None:
    more = {"value_schema": '{"type": "array", "items": "string"}'} if shape == "avro" else {}
    records, done = browser.search("hostile", value_format=shape, limit=100, **more)
    assert len(records) == len(VALUES) and done["reason"] == "end"
    assert all(len(one["value"]["text"]) <= 2 * 10_240 for one in records)
    whole = browser.get(f"topics/hostile/messages/0/{len(VALUES) - 2}")["value"]
    assert whole["text"] == "x" * 3_000_000 and not whole["is_cut"]
    bare = browser.client.get("/api/topics/hostile/messages/0/1", params={"part": "value"})
    assert bare.content == bytes(range(256)) and bare.headers["content-disposition"].startswith("attachment")


def test_records_that_end_their_decoder_hide_no_others() -> None:
    fields = [{"name": "next", "type": ["null", "L"]}, {"name": "word", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "L", "fields": fields})
    good, deep = b"\0\x08good", b"\2" * 500_000
    with Broker() as broker:
        broker.create_topic("avro")
        for value in (good, deep, good):
            broker.produce("avro", value=value)
        with console(broker.bootstrap_servers) as browser:
            place = {"value_format": "avro", "value_schema": schema, "from": "beginning"}
            records, _ = browser.search("avro", **place)
            assert [one["value"]["format"] for one in records] == ["avro", "hex", "avro"]
            assert records[1]["value"]["note"] == "not valid avro: it is nested too deeply"
            found, done = browser.search("avro", value="good", **place)
            assert [one["offset"] for one in found] == [0, 2] and done["reason"] == "end"


@pytest.mark.parametrize("match", ["contains", "equals", "regex", "json"])
def test_filters_go_through_any_bytes(browser: Browser, match: str) -> None:
    text = {"regex": "<scr.pt", "json": "$.a[0]=1"}.get(match, "<script>alert(1)</script>")
    records, _ = browser.search("hostile", **{"from": "beginning"}, value=text, value_match=match)
    assert [one["offset"] for one in records] == ([] if match == "json" else [0])


def test_a_regular_expression_that_runs_away_is_stopped(browser: Browser) -> None:
    browser.change("POST", "topics", {"name": "slow", "partitions": 1})
    browser.change("POST", "topics/slow/messages", {"key": None, "value": "a" * 5000 + "!"})
    answer = browser.client.get("/api/topics/slow/messages", params={"value": "(a|aa)+$", "value_match": "regex"})
    assert "TIMEOUT" in answer.text and "takes more than" in answer.text


def test_an_export_has_every_record(browser: Browser) -> None:
    lines = browser.client.get("/api/topics/hostile/export").content.split(b"\n")
    assert len([json.loads(line) for line in lines if line]) == len(VALUES)
    assert browser.client.get("/api/topics/hostile/export?format=parquet").content[:4] == b"PAR1"


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", ["auto", "text", "json", "hex", "avro"])
def test_ten_thousand_hostile_records_are_shown(shape: str) -> None:
    count = 10_000
    with Broker(message_max_bytes=20_000_000) as broker:
        broker.create_topic("many", max_message_bytes=20_000_000)
        for one in hostile_records(count, seed=1):
            broker.produce("many", key=one.key, value=one.value, headers=[one.header])
        more = {"value_schema": '{"type": "array", "items": "string"}'} if shape == "avro" else {}
        with console(broker.bootstrap_servers) as browser:
            offsets: list[int] = []
            while len(offsets) < count:
                place = {"from": "offset", "offset": len(offsets), "limit": 1_000}
                found, done = browser.search("many", value_format=shape, **place, **more)
                assert found, done
                assert all(len(one["value"]["text"]) <= 2 * 10_240 for one in found)
                offsets += [one["offset"] for one in found]
            assert offsets == list(range(count))


@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(6, marks=pytest.mark.timeout(300)),
        pytest.param(500, marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
    ids=["some", "many"],
)
def test_no_request_is_answered_with_a_fault_of_ours(browser: Browser, examples: int) -> None:
    schema = schemathesis.openapi.from_dict(browser.client.get("/api/openapi.json").json())
    once = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    faults: list[str] = []

    def ask(case: Any) -> None:
        query = {name: value for name, value in dict(case.query or {}).items() if value is not None}
        if query.get("from") == "tail":
            return  # it has no end
        body = case.body if isinstance(case.body, dict | list | str | int | float) else {}
        headers = {"X-CSRF-Token": browser.session["csrf_token"], "Content-Type": "application/json"}
        answer = browser.client.request(
            case.method,
            case.formatted_path,
            params=query,
            headers=headers,
            content=None if case.method == "GET" else json.dumps(body),
        )
        if answer.status_code >= 500 and answer.status_code not in (502, 504):
            faults.append(f"{case.method} {case.formatted_path} {query} {body!r}: {answer.text[:200]}")

    for found in schema.get_all_operations():
        once(given(case=found.ok().as_strategy())(ask))()
    assert not faults, faults[0]
