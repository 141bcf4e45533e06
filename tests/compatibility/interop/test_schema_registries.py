"""The console beside schema registries of others: records of Confluent's serializer, decoded by their schemas."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kafkalite.testing import Broker
from tests.compatibility.interop.old_clients import python_with
from tests.compatibility.interop.registries import RunningRegistry, apicurio_registry, karapace
from tests.support.console import Browser, console
from tests.support.wait import DEADLINE_S

ECOSYSTEM = "Schema registries"
PROGRAM = Path(__file__).parent / "python" / "registry_producer.py"
LIBRARY = "confluent-kafka[avro,schemaregistry]==2.16.1"

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="module", params=["apicurio", "karapace"])
def registry(request: pytest.FixtureRequest, broker: Broker, tmp_path_factory: Any) -> Iterator[RunningRegistry]:
    room = tmp_path_factory.mktemp("registry")
    running = apicurio_registry(room) if request.param == "apicurio" else karapace(broker.bootstrap_servers, room)
    with running as registry:
        yield registry


@pytest.fixture
def browser(broker: Broker, registry: RunningRegistry) -> Iterator[Browser]:
    with console(broker.bootstrap_servers, properties={"schema.registry.url": registry.url}) as browser:
        yield browser


def test_records_of_a_stock_serializer_are_decoded(
    broker: Broker, registry: RunningRegistry, browser: Browser, run: Callable[..., str], proved: Any
) -> None:
    proved(registry.name, registry.version, "records of Confluent's Avro serializer, schemas that refer to others")
    topic = f"orders-{registry.name.split()[0].lower()}"
    program = [python_with("confluent-avro", LIBRARY), str(PROGRAM)]
    run([*program, broker.bootstrap_servers, registry.url, topic], timeout=DEADLINE_S)
    records, done = browser.search(topic, **{"from": "beginning"})
    assert done["reason"] == "end"
    assert {one["value"]["format"] for one in records} == {"avro"}, records
    assert [json.loads(one["value"]["text"]) for one in records] == [
        {"n": 1, "w": "one"},
        {"n": 2, "w": "zwei"},
        {"n": 3, "w": "three", "size": "L"},
    ]
    found, _ = browser.search(topic, filter="value.n == 3")
    assert [one["offset"] for one in found] == [2]
    subjects = {row["subject"]: row for row in browser.get("schemas")["items"]}
    assert subjects[f"{topic}-value"]["version"] == 2 and subjects["size"]["type"] == "AVRO"
    described = browser.get("schema", subject=f"{topic}-value")
    assert described["versions"] == [2, 1]
    assert described["references"] == [{"name": "shop.Size", "subject": "size", "version": 1}]


def test_json_is_known_and_an_unknown_id_costs_its_record(
    broker: Broker, registry: RunningRegistry, browser: Browser, proved: Any
) -> None:
    proved(registry.name, registry.version, "JSON by a schema; the subject's page; an id that it does not know")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}  # without them Apicurio takes it for none
    body = {"schema": json.dumps(schema), "schemaType": "JSON"}
    answer = httpx.post(f"{registry.url}/subjects/json-value/versions", json=body, timeout=DEADLINE_S)
    schema_id = answer.json()["id"]
    topic = f"json-{registry.name.split()[0].lower()}"
    broker.produce(topic, b"\0" + schema_id.to_bytes(4, "big") + b'{"a": 1}')
    broker.produce(topic, b"\0" + (9_999).to_bytes(4, "big") + b"\xff\xfe")
    (known, unknown), _ = browser.search(topic, **{"from": "beginning"})
    assert (known["value"]["format"], known["value"]["note"]) == ("json", f"schema id {schema_id}"), known
    assert unknown["value"]["format"] == "hex"
    assert unknown["value"]["note"].startswith("schema id 9999: the schema registry answers: "), unknown
    assert browser.get("schema", subject="json-value")["type"] == "JSON"
    assert browser.refusal("schema", subject="nobody")[0] == 404
