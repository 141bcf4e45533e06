"""Lags beside those of Kafka's own tool, on partitions of every kind: read, behind, beyond the end, emptied, untouched.

pytest -m long tests/compatibility/interop/test_lags_java.py
"""

from __future__ import annotations

import json
import random

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalite import Broker
from kafkalite.cli.main import main
from tests.compatibility.interop.conftest import run_command
from tests.compatibility.interop.java_tools import JavaTools
from tests.support.wait import DEADLINE_S

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
PARTITIONS = 500
RECORDS_MAX = 4


def test_five_hundred_lags_are_those_of_kafkas_tool(capsys: pytest.CaptureFixture[str]) -> None:
    drawn = random.Random(35)
    with Broker() as broker:
        broker.create_topic("t", PARTITIONS)
        ends = [drawn.randint(0, RECORDS_MAX) for _ in range(PARTITIONS)]
        for index, end in enumerate(ends):
            for number in range(end):
                broker.produce("t", str(number), partition=index)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        deleted = [TopicPartition("t", index, drawn.randint(0, end)) for index, end in enumerate(ends)]
        for future in admin.delete_records(deleted).values():
            future.result(DEADLINE_S)
        committed = [TopicPartition("t", index, drawn.randint(0, RECORDS_MAX + 3)) for index in range(PARTITIONS)]
        committed = [one for one in committed if drawn.random() < 0.9]
        group = ConsumerGroupTopicPartitions("g", committed)
        admin.alter_consumer_group_offsets([group])["g"].result(DEADLINE_S)
        java = JavaTools("3.9.1", broker.bootstrap_servers, run_command)
        printed = java("ConsumerGroupCommand", "--timeout", 60_000, "--describe", "--group", "g")
        capsys.readouterr()
        assert main(["group", "describe", "g", "--json", "--bootstrap", broker.bootstrap_servers]) == 0
        ours = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    theirs = sorted(tuple(map(int, line.split()[2:6])) for line in printed.splitlines() if line.startswith("g "))
    assert [(row["partition"], row["offset"], row["end"], row["lag"]) for row in ours] == theirs
    lags = [row["lag"] for row in ours]
    assert len(lags) > 400 and min(lags) < 0 < max(lags)
