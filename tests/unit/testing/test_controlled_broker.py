"""The control over HTTP: who may, what it does, and how it refuses."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import wire
from bench.records import record_batch
from kafkalite.common.errors import ConfigError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.server.broker import LoopThread
from kafkalite.testing.controlled_broker import ControlledBroker

TOKEN = "a-token-of-24-characters"


class Remote:
    """A client in whatever language: it knows the address and the token."""

    def __init__(self, broker: ControlledBroker) -> None:
        self.broker = broker
        self.token = TOKEN

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        assert self.broker.metrics_address is not None
        connection = http.client.HTTPConnection(self.broker.metrics_address, timeout=30)
        sent = body if isinstance(body, (bytes, type(None))) else json.dumps(body).encode()
        connection.request(method, f"/control/{path}", sent, {"Authorization": f"Bearer {self.token}", **headers})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if text.startswith((b"{", b"[")) else text

    def get(self, path: str) -> Any:
        return self._ok("GET", path)

    def post(self, path: str, **body: object) -> Any:
        return self._ok("POST", path, body)

    def _ok(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self.ask(method, path, body)
        assert status == 200, answer
        return answer


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[Remote]:
    (tmp_path / "token").write_text(TOKEN + "\n")
    properties = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path / "data")}
    config = BrokerConfig.load({**properties, "metrics.listener": "127.0.0.1:0"})
    thread = LoopThread()
    broker = ControlledBroker(config, False, token_file=str(tmp_path / "token"))
    try:
        thread.run(broker.start)
        yield Remote(broker)
        thread.run(broker.stop)
    finally:
        thread.close()


def test_only_the_token_opens_it(remote: Remote) -> None:
    assert remote.get("broker")["bootstrap_servers"] == remote.broker.bootstrap_servers
    for token in ("", "wrong", TOKEN + "x", "\xe4" * 24):
        remote.token = token
        status, answer = remote.ask("POST", "reset")
        assert status == 401 and "Authorization" in answer["error"]


def test_topics_records_and_groups(remote: Remote) -> None:
    remote.post("topics", name="orders", partitions=2, cleanup_policy="compact")
    assert remote.get("topics") == {"orders": 2}
    for key, value in (("a", "1"), ("a", "2")):
        stored = remote.post("records", topic="orders", key=key, value=value, partition=1, headers={"source": "test"})
    assert stored["offset"] == 1
    remote.post("records", topic="orders", key="b", value_base64="/w==", partition=0)
    first, second, third = remote.get("records?topic=orders&count=3")
    assert first["value_base64"] == "/w==" and (second["key"], second["value"]) == ("a", "1")
    assert third["headers"] == [{"name": "source", "value": "test"}]
    remote.post("maintenance", what="compact", topic="orders")
    assert [record["offset"] for record in remote.get("records?topic=orders&partition=1")] == [1]
    assert remote.get("groups") == {}
    group = {"state": "Dead", "epoch": 0, "members": [], "partitions": []}
    assert remote.get("share_group?group=workers") == group
    assert remote.post("share_group", expire_locks="workers") == {"records": 0}
    assert remote.ask("DELETE", "topics", {"name": "orders"})[0] == 200
    assert remote.get("topics") == {}


def test_time_faults_and_requests(remote: Remote) -> None:
    remote.post("topics", name="orders", retention_ms=86_400_000, segment_ms=3_600_000)
    remote.post("requests", record=True)
    assert remote.post("faults", fault="error", api="PRODUCE", error="NOT_ENOUGH_REPLICAS")["fault"].startswith("error")
    with wire.Connection(remote.broker.bootstrap_servers) as client:
        frame = wire.produce_frame("orders", 0, record_batch(1, 10))
        with pytest.raises(wire.BrokerError):
            client.produce(frame)
        client.produce(frame)
    faults = remote.get("faults")
    assert faults["active"][0]["fired"] == len(faults["fired"]) == 1
    assert [each["errors"] for each in remote.get("requests?api=Produce")] == [["NOT_ENOUGH_REPLICAS"], []]
    remote.ask("DELETE", "faults")
    remote.ask("DELETE", "requests")
    assert (remote.get("faults"), remote.get("requests")) == ({"active": [], "fired": []}, [])
    assert remote.post("clock", frozen=True, advance={"days": 3})["frozen"]
    assert remote.get("records?topic=orders") == []
    assert remote.post("clock", frozen=False, set="2030-01-01T00:00:00+00:00")["now"].startswith("2030-01-01T00:00:0")
    remote.post("reset")
    assert remote.get("topics") == {} and not remote.get("clock")["now"].startswith("2030")


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "nowhere", None, 404, "/control/records"),
        ("PUT", "reset", None, 405, "takes POST"),
        ("POST", "topics", b"[1]", 400, "a JSON object"),
        ("POST", "topics", b"{", 400, "Expecting"),
        ("POST", "topics", {}, 400, "'name' is missing"),
        ("POST", "topics", {"name": "a b"}, 409, "INVALID_TOPIC_EXCEPTION"),
        ("POST", "topics", {"name": "a", "partitions": "x"}, 400, "partitions is a whole number"),
        ("POST", "topics", {"name": "a", "partitions": 1.5}, 400, "partitions is a whole number"),
        ("POST", "topics", {"name": "a", "partitons": 3}, 409, "Unknown topic config name: 'partitons'"),
        ("POST", "topics", {"name": None}, 400, "name is text, not None"),
        ("POST", "reset", {"x": 1}, 400, "no argument is named 'x'; there are none"),
        ("POST", "reset", b"[" * 100_000, 400, "nested too deeply"),
        ("GET", "records?topic=a&coutn=3", None, 400, "no argument is named 'coutn'; similar: count"),
        ("GET", "records?topic=a&count=x", None, 400, "count is a whole number"),
        ("GET", "records?topic=a&count=1&timeout_s=nan", None, 400, "timeout_s is 0 to 30"),
        ("GET", "records?topic=a&count=1&timeout_s=31", None, 400, "timeout_s is 0 to 30"),
        ("POST", "records", {"topic": "a", "valeu": "x"}, 400, "similar: value"),
        ("POST", "records", {"topic": None, "value": "x"}, 400, "topic is text"),
        ("POST", "records", {"topic": "a", "value": "x", "value_base64": "eA=="}, 400, "give one of them"),
        ("POST", "records", {"topic": "a", "value_base64": 5}, 400, "value_base64 is text"),
        ("POST", "records", {"topic": "a", "value": "x", "headers": "abc"}, 400, "headers are a mapping"),
        ("POST", "records", {"topic": "a", "value": "x", "headers": [["a"]]}, 400, "a header is a name and a value"),
        ("POST", "records", {"topic": "a", "value": "x", "timestamp": "now"}, 400, "timestamp is a whole number"),
        ("POST", "records", {"topic": "a", "value": "x", "timestamp": 1 << 70}, 400, "more than 64 bits"),
        ("POST", "records", {"topic": "a", "value": "\ud800"}, 400, "surrogates"),
        ("GET", "records?topic=nothing", None, 409, "UNKNOWN_TOPIC_OR_PARTITION"),
        ("POST", "records", {"topic": "a", "value_base64": "?"}, 400, "base64|Only|Invalid"),
        ("POST", "faults", {"fault": "explode"}, 400, "a fault is one of"),
        ("POST", "faults", {"fault": "fence", "transactional_id": "x"}, 400, "no producer"),
        ("POST", "faults", {"fault": "fence"}, 400, "'transactional_id' is missing"),
        ("POST", "faults", {"fault": "fence", "transactional_id": "x", "id": 1}, 400, "no argument is named 'id'"),
        ("POST", "faults", {"fault": "crash"}, 400, "a fault is one of"),
        ("POST", "faults", {"fault": ["fence"]}, 400, "a fault is one of"),
        ("POST", "faults", {"fault": "error", "api": "PRODUCE", "error": None}, 400, "error is text"),
        ("POST", "requests", {"record": "no"}, 400, "record is true or false"),
        ("GET", "requests?api=Prodcue", None, 400, "similar: Produce"),
        ("POST", "clock", {"frozen": "no"}, 400, "frozen is true or false"),
        ("POST", "clock", {"advance": 8}, 400, "advance has units"),
        ("POST", "clock", {"advance": {"day": 8}}, 400, "no unit is named 'day'; there are weeks, days"),
        ("POST", "clock", {"set": 5}, 400, "set is text"),
        ("POST", "clock", {"advance": {"days": -1}}, 400, "forward only"),
        ("POST", "clock", {"advance": {"days": 1e12}}, 400, "too long"),
        ("POST", "clock", {"advance": {"days": 3e6}}, 400, "year 9999"),
        ("POST", "faults", {"fault": "truncate_response", "size": "x"}, 400, "number of bytes"),
        ("POST", "faults", {"fault": "throttle", "seconds": 1e10}, 400, "seconds is 0 to"),
        ("POST", "clock", {"faster": 1}, 400, "there are set, advance, frozen"),
        ("POST", "maintenance", {"what": "delete"}, 400, "compact, roll or expire"),
    ],
)
def test_what_is_wrong_is_refused_with_a_reason(
    remote: Remote, method: str, path: str, body: object, status: int, words: str
) -> None:
    import re

    found, answer = remote.ask(method, path, body)
    assert found == status and re.search(words, json.dumps(answer)), answer


def test_a_failure_of_the_broker_itself_is_answered(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail() -> None:
        raise AssertionError("a bug")

    monkeypatch.setattr(remote.broker, "reset", fail)
    assert remote.ask("POST", "reset") == (500, {"error": "AssertionError('a bug')"})


def test_a_body_has_a_length_and_a_limit(remote: Remote) -> None:
    for headers in ({"Content-Length": "1048577"}, {"Content-Length": "-1"}, {"Transfer-Encoding": "chunked"}):
        status, answer = remote.ask("POST", "reset", None, **headers)
        assert status == 413 and b"1 MiB" in answer


@pytest.mark.parametrize(
    ("listener", "token", "words"),
    [
        ("", TOKEN, "metrics.listener=127"),
        ("127.0.0.1:0", "short", "5 characters"),
        ("127.0.0.1:0", None, "No such file"),
    ],
)
def test_a_control_that_cannot_be_is_refused(tmp_path: Path, listener: str, token: str | None, words: str) -> None:
    if token is not None:
        (tmp_path / "token").write_text(token)
    config = BrokerConfig.load({"log.dirs": str(tmp_path / "data"), "metrics.listener": listener})
    with pytest.raises(ConfigError, match=words):
        ControlledBroker(config, False, token_file=str(tmp_path / "token"))
