"""kafka-reassign-partitions and kafka-log-dirs move replicas between the directories of a broker, as at Apache Kafka.

pytest -m long tests/compatibility/interop/test_moves_between_directories.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from kafkalite import Broker
from tests.compatibility.interop.java_tools import JavaTools
from tests.support.wait import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.mark.parametrize("version", ["2.7.2", "3.9.1", "4.1.0"])
def test_the_tools_move_a_replica(version: str, run: Callable[..., str], tmp_path: Path) -> None:
    places = [str(tmp_path / name) for name in ("one", "two")]
    with Broker(log_dirs=",".join(places)) as broker:
        tools = JavaTools(version, broker.bootstrap_servers, run)
        broker.create_topic("orders", partitions=2)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(20_000):
            producer.produce("orders", b"x" * 100, partition=number % 2)
        producer.flush()

        def where() -> dict[str, tuple[str, int]]:
            (told,) = json.loads(tools("LogDirsCommand", "--describe", "--topic-list", "orders").splitlines()[-1])[
                "brokers"
            ]
            return {
                one["partition"]: (each["logDir"], one["size"])
                for each in told["logDirs"]
                for one in each["partitions"]
                if not one["isFuture"]
            }

        before = where()
        plan = tmp_path / "plan.json"
        rows = [
            {
                "topic": "orders",
                "partition": index,
                "replicas": [0],
                "log_dirs": [places[before[f"orders-{index}"][0] == places[0]]],
            }
            for index in (0, 1)
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        printed = tools("ReassignPartitionsCommand", "--execute", "--reassignment-json-file", plan)
        assert "Successfully started" in printed, printed
        until(
            lambda: all(where()[name][0] != place for name, (place, _) in before.items()),
            lambda: f"the moves: {where()}",
        )
        verified = tools("ReassignPartitionsCommand", "--verify", "--reassignment-json-file", plan)
        assert verified.count("is complete") >= 2 or "completed successfully" in verified, verified
        assert {name: size for name, (_, size) in where().items()} == {name: size for name, (_, size) in before.items()}
        assert len(broker.records("orders")) == 20_000
