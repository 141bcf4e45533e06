"""The console's API in front of a real broker: what it tells is what is there, and what it changes is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from kafkalite.record.json_lines import parse_json
from kafkalite.testing import Broker
from tests.support.console import Browser, console
from tests.support.consumer_members import ConsumerMember
from tests.support.share_requests import ACCEPT, ShareRequester, begin_at_earliest
from tests.support.streams_members import PROMPT, StreamsMember, counting_topology
from tests.support.wait import DEADLINE_S, until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def browser(broker: Broker) -> Iterator[Browser]:
    with console(broker.bootstrap_servers) as browser:
        yield browser


def test_topics_are_listed_page_by_page(broker: Broker, browser: Browser) -> None:
    for name in ("alpha", "beta", "gamma"):
        broker.create_topic(name, partitions=2)
    until(lambda: browser.get("topics")["total"] == 3, "the topics")
    page = browser.get("topics", sort="-name", page_size=2)
    assert [row["name"] for row in page["items"]] == ["gamma", "beta"] and page["total"] == 3
    assert [row["name"] for row in browser.get("topics", q="ALPH")["items"]] == ["alpha"]
    assert browser.refusal("topics", sort="colour") == (400, "INVALID_REQUEST")
    assert browser.refusal("topics", quarry="x") == (400, "INVALID_REQUEST")


def test_counts_are_those_of_records_and_not_of_offsets(broker: Broker, browser: Browser) -> None:
    broker.create_topic("state", cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    for value in range(20):
        broker.produce("state", key=f"k{value % 4}", value=str(value))
    broker.compact("state")

    def row() -> dict[str, object]:
        page = browser.get("topics/state/partitions")
        return dict(page["items"][0])

    until(lambda: row()["records"] == 4, "the count")
    assert row()["offset_span"] == 20 and browser.get("topics/state")["records"] == 4
    assert browser.get("topics/state/segments", partition=0)["items"][-1]["is_active"]
    assert [one["topic"] for one in browser.get("compaction", topic="state")["items"]] == ["state"]


def test_messages_are_found_from_both_ends(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders")
    for number in range(300):
        broker.produce("orders", key=f"k{number % 3}", value=f'{{"n": {number}}}')
    newest, done = browser.search("orders", limit=3)
    assert [one["offset"] for one in newest] == [299, 298, 297] and done["next"] == {"0": 297}
    older, _ = browser.search("orders", limit=2, **{"from": "end"}, offsets="0:297")
    assert [one["offset"] for one in older] == [296, 295]
    first, done = browser.search("orders", limit=2, **{"from": "beginning"})
    assert [one["offset"] for one in first] == [0, 1] and done["next"] == {"0": 2}
    found, done = browser.search("orders", **{"from": "beginning"}, value="$.n=250", value_match="json")
    assert [one["offset"] for one in found] == [250] and done["reason"] == "end"
    assert first[0]["value"]["format"] == "json" and first[0]["key"]["text"] == "k0"


def test_numbers_of_a_topic_are_those_of_this_moment(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders", partitions=2)
    assert browser.get("topics/orders")["last_timestamp_ms"] is None
    for number in range(5):
        broker.produce("orders", value=str(number))
        told = browser.get("topics/orders")
        assert told["records"] == told["records_uncommitted"] == told["offset_span"] == number + 1
        assert told["last_timestamp_ms"] is not None


def test_the_newest_records_are_exported(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders")
    for number in range(30):
        broker.produce("orders", value=str(number))
    answer = browser.client.get("/api/topics/orders/export", params={"from": "end", "limit": 3})
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [29, 28, 27]
    assert browser.refusal("topics/orders/export", **{"from": "end"}, limit=10_001) == (400, "INVALID_REQUEST")
    assert browser.refusal("topics/orders/export", **{"from": "tail"}) == (400, "INVALID_REQUEST")


def test_an_export_is_what_the_terminal_reads(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders")
    broker.produce("orders", key=b"\xff", value=b"text", headers={"h": b"\xfe"}, timestamp=1_000)
    [line] = browser.client.get("/api/topics/orders/export").content.splitlines()
    read = parse_json(line)
    assert (read.record.key, read.record.value, read.partition) == (b"\xff", b"text", 0)
    assert list(read.record.headers) == [("h", b"\xfe")]
    assert json.loads(line)["topic"] == "orders" and json.loads(line)["offset"] == 0


def test_a_restart_of_the_only_broker_takes_everything_away(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders", partitions=3)
    broker.produce("orders", value="one")
    until(lambda: browser.get("restart")["items"][0]["unavailable"] == 3, "the topic")
    [told] = browser.get("restart")["items"]
    assert (told["handed_over"], told["refusing"]) == (0, 0)
    assert [one["logs"] for one in told["directories"]] == [1] and told["directories"][0]["all_logs"] == 3


def test_a_topic_lives_from_its_creation_to_its_end(browser: Browser) -> None:
    assert browser.change("POST", "topics", {"name": "new", "partitions": 1})[0] == 200
    assert browser.change("POST", "topics", {"name": "new"})[0] == 409
    status, produced = browser.change("POST", "topics/new/messages", {"key": "k", "value": "v", "headers": []})
    assert status == 200 and (produced["partition"], produced["offset"]) == (0, 0)
    assert browser.get("topics/new/messages/0/0")["value"]["text"] == "v"
    assert browser.change("PATCH", "topics/new/config", {"set": {"retention.ms": "soon"}})[0] == 409
    assert browser.change("PATCH", "topics/new/config", {"set": {"retention.ms": "60000"}})[0] == 200
    config = {one["name"]: one for one in browser.get("topics/new/config")["items"]}
    assert (config["retention.ms"]["value"], config["retention.ms"]["source"]) == ("60000", "topic")
    assert browser.change("POST", "topics/new/partitions", {"count": 3})[0] == 200
    assert browser.change("POST", "topics/new/empty")[1]["low_watermarks"]["0"] == 1
    assert browser.change("DELETE", "topics/new")[0] == 200
    assert browser.refusal("topics/new") == (404, "NOT_FOUND")


def test_a_console_that_may_not_write_changes_nothing(broker: Broker) -> None:
    broker.create_topic("orders")
    with console(broker.bootstrap_servers, may_write=False) as browser:
        assert not browser.session["write"]
        status, answer = browser.change("DELETE", "topics/orders")
        assert (status, answer["error"]) == (403, "READ_ONLY") and "console.write=true" in answer["message"]
        assert browser.get("topics/orders")["partitions"] == 1


def test_a_change_needs_the_token_of_its_session(browser: Browser) -> None:
    answer = browser.client.post("/api/topics", json={"name": "forged"})
    assert (answer.status_code, answer.json()["error"]) == (403, "CSRF")
    browser.session["csrf_token"] = "another"
    assert browser.change("POST", "topics", {"name": "forged"})[1]["error"] == "CSRF"


def test_a_name_that_is_not_ours_is_refused(browser: Browser) -> None:
    answer = browser.client.get("/api/session", headers={"host": "attacker.example"})
    assert (answer.status_code, answer.json()["error"]) == (421, "WRONG_HOST")
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_a_group_without_a_name_is_opened_reset_and_deleted(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders")
    broker.produce("orders", value="x")
    assert browser.reset({"group_id": "", "topics": ["orders"], "to": "latest"})[0] == 200
    (listed,) = browser.get("groups")["items"]
    assert (listed["group_id"], listed["group_type"], listed["protocol_type"]) == ("", "classic", None)
    group = browser.get("group", group_id="")
    assert (group["group_id"], group["group_type"], group["protocol_type"], group["lag"]) == ("", "classic", None, 0)
    assert browser.get("group/lag", group_id="")["times_ms"] is not None
    assert browser.refusal("group") == (400, "INVALID_REQUEST")
    assert browser.change("DELETE", "group", group_id="")[0] == 200
    assert browser.refusal("group", group_id="") == (404, "NOT_FOUND")


def test_half_a_character_in_a_name_is_an_error_and_no_fault(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders")
    wanted = {"group_id": "g", "to": "latest", "partitions": [{"topic": "\ud800\x1b", "partition": 0}]}
    body, headers = json.dumps(wanted), {"X-CSRF-Token": browser.session["csrf_token"]}
    headers["Content-Type"] = "application/json"
    answer = browser.client.post("/api/group/reset", content=body, headers=headers)
    assert answer.status_code == 404 and "\\ud800\\x1b" in answer.json()["message"]


def test_a_consumer_group_has_epochs_targets_and_waits(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders", partitions=2)
    first = ConsumerMember(broker.bootstrap_servers, "new", "m1", subscribed_topic_names=["orders"])
    until(lambda: [row["group_type"] for row in browser.get("groups", type="consumer")["items"]] == ["consumer"], "it")
    assert browser.get("groups", type="classic")["total"] == 0
    assert browser.refusal("groups", type="colour") == (400, "INVALID_REQUEST")
    group = browser.get("group", group_id="new")
    assert (group["group_type"], group["protocol"], group["state"]) == ("consumer", "uniform", "Stable")
    assert group["group_epoch"] == group["target_epoch"] == first.epoch
    (member,) = group["members"]
    assert member["member_epoch"] == first.epoch and member["member_type"] == "consumer"
    assert member["partitions"] == member["target"] and len(member["target"]) == 2
    assert (member["subscribed_topics"], member["subscribed_regex"]) == (["orders"], None)
    assert group["reconciliation"] == {"sentences": [], "steps": []}
    ConsumerMember(broker.bootstrap_servers, "new", "m2", subscribed_topic_names=["orders"])
    broker.clock.advance(seconds=2)
    first.beat()
    group = browser.get("group", group_id="new")
    steps = group["reconciliation"]["steps"]
    assert [(step["topic"], step["holder"], step["heir"]) for step in steps] == [("orders", "m1", "m2")]
    assert "m1 has not confirmed the revocation of orders-" in group["reconciliation"]["sentences"][0]


def test_a_group_of_kafka_streams_shows_what_its_members_read() -> None:
    with Broker(**PROMPT) as broker, console(broker.bootstrap_servers) as browser:
        broker.create_topic("texts", partitions=2)
        member = StreamsMember(broker.bootstrap_servers, "app", "m1", counting_topology("app", "texts"))
        member.await_tasks()
        until(
            lambda: [row["group_type"] for row in browser.get("groups", type="streams")["items"]] == ["streams"], "it"
        )
        group = browser.get("group", group_id="app")
        assert (group["group_type"], group["state"]) == ("streams", "Stable")
        assert group["reconciliation"] == {"sentences": [], "steps": []}
        (told,) = group["members"]
        assert told["member_epoch"] == member.epoch and told["member_type"] == "streams"
        assert {(one["topic"], one["partition"]) for one in told["partitions"]} == {
            (topic, partition) for topic in ("texts", "app-by-key-repartition") for partition in (0, 1)
        }
        assert {one["member_id"] for one in group["partitions"]} == {"m1"}
        assert told["tasks"] == told["target_tasks"] == {"0": [0, 1], "1": [0, 1]}
        assert len(group["topology"]) == 2 and "texts" in group["topology"][0]


def test_a_group_is_reset_after_a_preview(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders")
    for number in range(10):
        broker.produce("orders", value=str(number))
    wanted = {"group_id": "a/b", "topics": ["orders"], "to": "offset", "offset": 4}
    status, preview = browser.change("POST", "group/reset", wanted)
    assert status == 200 and preview["items"][0]["to_offset"] == 4 and preview["preview"]
    assert browser.refusal("group", group_id="a/b") == (404, "NOT_FOUND")
    assert browser.reset(wanted)[0] == 200
    group = browser.get("group", group_id="a/b")
    assert (group["lag"], group["lag_records"]) == (6, 6)
    assert browser.get("groups")["items"][0]["group_id"] == "a/b"
    assert browser.change("DELETE", "group", group_id="a/b")[0] == 200


def test_a_reset_is_refused_unless_it_is_that_of_its_preview(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders")
    for number in range(10):
        broker.produce("orders", value=str(number))
    wanted = {"group_id": "g", "topics": ["orders"], "to": "offset", "offset": 4}

    def preview(**changes: Any) -> dict[str, Any]:
        return browser.change("POST", "group/reset", wanted | changes)[1]

    def act(preview_id: str | None, **changes: Any) -> tuple[int, Any]:
        return browser.change("POST", "group/reset", {**wanted, **changes, "preview": False, "preview_id": preview_id})

    assert act(None)[0] == 409 and act("another")[0] == 409
    assert act(preview()["preview_id"], offset=5)[0] == 409
    seen = preview(to="latest")
    broker.produce("orders", value="later")
    assert act(seen["preview_id"], to="latest")[0] == 200, "the offsets of the preview, wherever the end is now"
    assert browser.get("group", group_id="g")["partitions"][0]["committed_offset"] == 10
    assert act(seen["preview_id"], to="latest")[0] == 409, "each preview is for one reset"
    seen = preview()
    assert act(preview(offset=7)["preview_id"], offset=7)[0] == 200
    status, answer = act(seen["preview_id"])
    assert status == 409 and "has committed offsets since the preview" in answer["message"]


def test_a_share_group_has_positions_and_records_in_flight(broker: Broker, browser: Browser) -> None:
    broker.create_topic("jobs")
    begin_at_earliest(broker.bootstrap_servers, "workers")
    for number in range(6):
        broker.produce("jobs", value=str(number))
    worker = ShareRequester(broker.bootstrap_servers, "workers", "jobs").join()
    worker.fetch(max_records=3)
    worker.acknowledge((0, 0, [ACCEPT]))
    until(lambda: [row["lag"] for row in browser.get("groups", type="share")["items"]] == [5], "it")
    (listed,) = browser.get("groups")["items"]
    assert (listed["state"], listed["members"], listed["topics"]) == ("Stable", 1, ["jobs"])
    group = browser.get("group", group_id="workers")
    assert (group["group_type"], group["protocol"], group["lag"]) == ("share", "simple", 5)
    (member,) = group["members"]
    assert (member["member_id"], member["partitions"]) == ("m", [{"topic": "jobs", "partition": 0}])
    (row,) = group["partitions"]
    assert (row["start_offset"], row["end_offset"], row["readers"]) == (0, 6, 1)
    assert (row["acquired"], row["available"], row["acknowledged"], row["archived"]) == (2, 0, 1, 0)
    (run,) = group["records_in_flight"]
    assert (run["first_offset"], run["last_offset"], run["member_id"], run["delivery_count"]) == (1, 2, "m", 1)
    assert run["locked_until_ms"] - run["acquired_ms"] == 30_000 and group["left_out"] == 0
    status, answer = browser.reset({"group_id": "workers", "to": "latest"})
    assert status == 409 and "workers has members (1)" in answer["message"]
    broker.faults.expire_session("workers", "m")
    worker.close()
    assert browser.reset({"group_id": "workers", "to": "latest"})[0] == 200
    (row,) = browser.get("group", group_id="workers")["partitions"]
    assert (row["start_offset"], row["lag"], row["acquired"]) == (6, 0, None)
    assert browser.change("DELETE", "group", group_id="workers")[0] == 200
    assert browser.refusal("group", group_id="workers") == (404, "NOT_FOUND")


def test_a_group_with_members_is_kept_and_the_reason_is_no_fault(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders")
    ConsumerMember(broker.bootstrap_servers, "busy", "m1", subscribed_topic_names=["orders"])
    status, answer = browser.change("DELETE", "group", group_id="busy")
    assert (status, answer["error"]) == (409, "REFUSED") and "has members" in answer["message"]
    status, answer = browser.reset({"group_id": "busy", "topics": ["orders"], "to": "latest"})
    assert (status, answer["error"]) == (409, "REFUSED") and "has members" in answer["message"]


def test_partitions_that_a_group_reads_without_a_commit_are_counted(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders", partitions=6)
    ConsumerMember(broker.bootstrap_servers, "slow", "m1", subscribed_topic_names=["orders"])
    until(lambda: browser.get("group", group_id="slow")["uncommitted"] == 6, "the assignment")
    until(lambda: browser.get("groups")["items"][0]["uncommitted"] == 6, "the list")


def test_an_open_transaction_is_aborted_and_its_producer_fenced(broker: Broker, browser: Browser) -> None:
    broker.create_topic("orders")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "tx"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    producer.flush(DEADLINE_S)
    [row] = browser.get("transactions")["items"]
    assert (row["state"], row["can_abort"]) == ("Ongoing", True)
    assert row["partitions"] == [{"topic": "orders", "partition": 0}]
    assert browser.change("POST", "transactions/abort", {"transactional_id": "tx"})[0] == 200
    until(lambda: browser.get("transactions")["items"][0]["state"] != "Ongoing", "the end of the transaction")
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(DEADLINE_S)


def test_internal_topics_are_in_the_compaction_only_if_wanted(broker: Broker, browser: Browser) -> None:
    broker.create_topic("state", cleanup_policy="compact")
    browser.reset({"group_id": "g", "topics": ["state"], "to": "latest"})
    until(lambda: browser.get("compaction", internal=True)["total"] > 1, "the internal topics")
    assert [row["topic"] for row in browser.get("compaction")["items"]] == ["state"]


@pytest.mark.parametrize("place", ["beginning", "end"])
def test_a_search_ends_before_a_time(broker: Broker, browser: Browser, place: str) -> None:
    broker.create_topic("orders")
    for number in range(10):
        broker.produce("orders", value=str(number), timestamp=1_000 + number)
    found, done = browser.search("orders", **{"from": place}, until_ms=1_004)
    assert sorted(one["offset"] for one in found) == [0, 1, 2, 3] and done["reason"] == "end"
    assert len(browser.search("orders", until_ms=9_000)[0]) == 10
    found, _ = browser.search("orders", **{"from": "time"}, time_ms=1_002, until_ms=1_004)
    assert [one["offset"] for one in found] == [2, 3]


@pytest.mark.parametrize("path", ["overview", "problems", "history", "storage", "cluster", "clients", "requests"])
def test_the_broker_tells_about_itself(browser: Browser, path: str) -> None:
    assert browser.get(path)
    assert browser.get("transactions")["items"] == [] and browser.get("quotas")["items"] == []
