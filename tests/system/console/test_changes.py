"""Changes by the console: access control lists, users, quotas, settings, copies, elections; and topics counted."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from kafkalite.testing import Broker
from tests.support.console import Browser, console
from tests.support.wait import until

ACL = {"resource": "topic", "name": "orders", "principal": "User:ann", "operation": "READ"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    authorizer = "kafka.security.authorizer.AclAuthorizer"
    with Broker(authorizer_class_name=authorizer, super_users="User:ANONYMOUS") as broker:
        yield broker


@pytest.fixture
def browser(broker: Broker) -> Iterator[Browser]:
    with console(broker.bootstrap_servers) as browser:
        yield browser


def test_entries_of_access_control_lists_come_and_go(browser: Browser) -> None:
    assert browser.get("acls")["total"] == 0
    assert browser.change("POST", "acls", ACL)[0] == 200
    deny = {**ACL, "pattern": "prefixed", "permission": "DENY", "host": "10.0.0.1"}
    assert browser.change("POST", "acls", deny)[0] == 200
    assert browser.change("POST", "acls", {**ACL, "principal": "ann"})[1]["error"] == "INVALID_REQUEST"
    rows = browser.get("acls", q="ann", sort="-host")["items"]
    assert [(row["pattern"], row["permission"], row["host"]) for row in rows] == [
        ("prefixed", "DENY", "10.0.0.1"),
        ("literal", "ALLOW", "*"),
    ]
    assert browser.change("POST", "acls/remove", ACL) == (200, {"ok": True, "removed": 1})
    assert browser.change("POST", "acls/remove", ACL)[0] == 404
    assert browser.get("acls")["total"] == 1


def test_users_get_passwords_that_nobody_reads(browser: Browser) -> None:
    status, answer = browser.change("POST", "users", {"name": "ann", "password": "ann"})
    assert status == 200 and answer["warning"]
    [row] = browser.get("users")["items"]
    assert row["user"] == "ann" and [each["mechanism"] for each in row["mechanisms"]] == ["SCRAM-SHA-512"]
    assert browser.change("DELETE", "users", name="ann")[0] == 200
    assert browser.get("users")["items"] == [] and browser.change("DELETE", "users", name="ann")[0] == 404


def test_quotas_are_set_and_removed(browser: Browser) -> None:
    entity = {"user": "ann", "client-id": None}
    values = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    assert browser.change("POST", "quotas", {"entity": entity, "set": values})[0] == 200
    assert browser.get("quotas")["items"] == [{"entity": entity, "quotas": values}]
    assert browser.change("POST", "quotas", {"entity": entity, "reset": list(values)})[0] == 200
    assert browser.get("quotas")["items"] == []
    for wrong in ({}, {"ship": "x"}, {"user": 7}):
        assert browser.change("POST", "quotas", {"entity": wrong, "set": {"producer_byte_rate": 1}})[0] == 400
    assert browser.change("POST", "quotas", {"entity": entity, "set": {"producer_byte_rate": "1"}})[0] == 400


def test_settings_of_a_broker_are_changed_and_taken_back(browser: Browser) -> None:
    [broker] = [one["id"] for one in browser.get("cluster")["brokers"]]
    path = f"brokers/{broker}/config"

    def value() -> tuple[str, str]:
        row = next(one for one in browser.get(path)["items"] if one["name"] == "log.cleaner.threads")
        return row["value"], row["type"]

    assert value() == ("1", "int")
    assert browser.change("PATCH", path, {"set": {"log.cleaner.threads": "2"}})[0] == 200
    until(lambda: value()[0] == "2", "the new value")
    assert browser.change("PATCH", path, {"reset": ["log.cleaner.threads"]})[0] == 200
    until(lambda: value()[0] == "1", "the old value")
    assert browser.change("PATCH", path, {"set": {"log.cleaner.threads": "x"}})[0] == 409
    assert browser.change("PATCH", "brokers/77/config", {"set": {"a": "b"}})[0] == 404


def test_records_are_copied_byte_for_byte(broker: Broker, browser: Browser) -> None:
    broker.create_topic("from")
    broker.create_topic("to", partitions=3)
    for number in range(5):
        broker.produce("from", key=b"k%d" % number, value=b"\xff\x00%d" % number, headers={"h": b"\x01"})
    body = {"to": "to", "partition": 0, "offset": 2, "count": 2}
    assert browser.change("POST", "topics/from/copy", body) == (200, {"ok": True, "to": "to", "copied": 2})
    found, _ = browser.search("to", **{"from": "beginning"})
    assert sorted(one["key"]["text"] for one in found) == ["k2", "k3"]
    assert {one["value"]["text"] for one in found} == {"ff0032", "ff0033"} and found[0]["headers"][0]["name"] == "h"
    assert browser.change("POST", "topics/from/copy", {**body, "offset": 9})[0] == 404
    assert browser.change("POST", "topics/from/copy", {**body, "to": "nowhere"})[0] == 404


def test_a_topic_is_counted(broker: Broker, browser: Browser) -> None:
    broker.create_topic("counted", partitions=2)
    for number in range(40):
        key, value = None if number % 4 == 0 else f"k{number % 5}", None if number == 1 else "x" * number
        broker.produce("counted", key=key, value=value)
    answer = browser.client.get("/api/topics/counted/analysis")
    assert answer.status_code == 200 and "event: done" in answer.text
    done = json.loads(answer.text.rsplit("data: ", 1)[1])
    assert done["records"] == 40 and done["key"]["nulls"] == 10 and done["key"]["distinct"] == 5
    assert done["value"]["nulls"] == 1 and done["value"]["largest_bytes"] == 39 and done["reason"] == "end"
    assert sum(one["count"] for one in done["rate"]) == sum(one["count"] for one in done["partitions"]) == 40
    assert sum(one["count"] for one in done["value"]["sizes"]) == 39 and done["largest"][0]["size_bytes"] == 39


def test_leaders_are_elected_and_partitions_moved(broker: Broker, browser: Browser) -> None:
    broker.create_topic("moved", partitions=2)
    assert browser.change("POST", "elections", {"topic": "moved"}) == (200, {"ok": True, "elected": 0, "refusals": []})
    assert browser.change("POST", "elections", {"kind": "unclean"})[0] == 400
    body = {"topic": "moved", "partitions": [0], "replicas": [77]}
    assert browser.change("POST", "reassignments", body)[0] == 404
    [one] = [each["id"] for each in browser.get("cluster")["brokers"]]
    status, answer = browser.change("POST", "reassignments", {**body, "replicas": [one]})
    assert status in (200, 409), answer
    assert browser.get("reassignments")["items"] == []


def test_none_of_it_without_write(broker: Broker) -> None:
    with console(broker.bootstrap_servers, may_write=False) as browser:
        for path in ("acls", "users", "quotas", "elections", "topics/x/copy"):
            assert browser.change("POST", path, {})[1]["error"] == "READ_ONLY"
