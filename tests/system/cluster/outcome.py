"""Outcomes of a trouble in a cluster: what must be usable afterwards, and how long things took."""

from __future__ import annotations

import statistics
import time

import confluent_kafka
from confluent_kafka import TopicPartition

from tests.support.wait import DEADLINE_S, until
from tests.system.cluster.load import LOG
from tests.system.cluster.members import Cluster


def assert_usable(cluster: Cluster, topic: str) -> None:
    """Some groups with coordinators on every broker take commits and give them back; every partition takes a record."""
    groups: dict[int, str] = {}
    until(lambda: cluster.coordinator("first") in cluster.members, "the topic of the offsets")
    for number in range(100):
        groups.setdefault(cluster.coordinator(f"group-{number}"), f"group-{number}")
    assert groups.keys() == cluster.members.keys(), f"coordinators: {groups.keys()}"
    for group in groups.values():
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(settings, logger=LOG)
        number = time.time_ns() // 1_000_000
        consumer.commit(offsets=[TopicPartition(topic, 0, number)], asynchronous=False)
        assert consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)[0].offset == number
        consumer.close()
    for said in (cluster.said_by(i) for i in cluster.members):
        assert set(said.leaders.values()) <= cluster.members.keys(), f"every partition is led: {said}"


SLOW_MACHINE_S = 3.0  # on top, before a test fails for it: the machine has others to serve
ROUNDS_JUDGED = 100  # by how long they took


def seconds_text(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.2f} s (at most {max(seconds):.2f} s)" if seconds else "(never)"
