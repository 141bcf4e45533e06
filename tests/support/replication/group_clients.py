"""A consumer group of stock clients in a random history: members of both protocols come and go while brokers are
disturbed, so that the group changes its protocol now and then.

Promised of the end: every record of the topic was committed by one member, once, and no committed offset is below an
earlier one. Some members are static, and their partitions wait for the end of their sessions.
"""

from __future__ import annotations

import contextlib
import threading
from random import Random
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from kafkalite.common.names import GROUP_METADATA_TOPIC
from tests.support.replication.group_members import (
    CLASSIC,
    CONSUMER,
    GroupMember,
    Place,
    await_all,
    check_each_once,
    check_stored_commits,
    stored_commits,
    written_places,
)
from tests.support.replication.live_cluster import Reachable, new_consumer
from tests.support.wait import DEADLINE_S, until

GROUP = "readers"
MEMBERS_MAX = 3
SESSION_MS = 1_500
PAUSE_S_MAX = 0.6
SETTINGS = {  # of the brokers
    "group.min.session.timeout.ms": "500",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "100",
}
_STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
_ASSIGNORS = ("uniform", "range")
_STATIC = 0.3
_CALL_S = 5.0


class GroupClients:
    """Members come and go between `start` and `finish`. `trace`: what they did."""

    def __init__(self, cluster: Reachable, topic: str, seed: object) -> None:
        self.trace: list[str] = []
        self._cluster = cluster
        self._topic = topic
        self._rng = Random(f"groups {seed}")
        self._strategy = self._rng.choice(_STRATEGIES)  # members of the classic protocol need one in common
        self._members: list[GroupMember] = []
        self._present: list[GroupMember] = []
        self._done = threading.Event()
        self._faults: list[str] = []
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        """The cluster is whole: the topic of the offsets gets all its replicas."""
        with contextlib.closing(new_consumer(self._cluster, group_id=GROUP)) as consumer:
            until(lambda: _is_answered(consumer, self._topic), "a coordinator")
        self._cluster.wait_for_leader(GROUP_METADATA_TOPIC, 0)
        self._thread.start()

    def finish(self) -> None:
        """No member comes or goes any more."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join(DEADLINE_S)

    def check(self, partitions: int) -> None:
        """The cluster is whole, and nothing is written any more. Raises AssertionError with what members did."""
        try:
            self._check(written_places(self._cluster, self._topic, partitions))
        except (AssertionError, pytest.fail.Exception) as fault:
            counts = [len(each.committed) for each in self._members]
            raise AssertionError(f"{fault}; members: {', '.join(self.trace)}; committed {counts}") from fault

    def _check(self, written: set[Place]) -> None:
        assert not self._faults, self._faults
        await_all(self._members, written, self._stored)
        for member in self._members:
            member.leave()
        for member in self._members:
            member.await_end()
        check_each_once(self._members, written)
        check_stored_commits(self._stored(), self._members)

    def _stored(self) -> dict[int, list[int]]:
        return stored_commits(self._cluster, GROUP, self._topic)

    def _guarded(self) -> None:
        try:
            while not self._done.is_set():
                self._change()
                self._done.wait(self._rng.uniform(0.05, PAUSE_S_MAX))
        except Exception as fault:
            self._faults.append(repr(fault))

    def _change(self) -> None:
        joins = self._rng.random() < 0.5
        if self._present and (len(self._present) == MEMBERS_MAX or (len(self._present) > 1 and not joins)):
            member = self._present.pop(self._rng.randrange(len(self._present)))
            self.trace.append(f"{self._members.index(member)} leaves")
            member.leave()
            return
        settings = self._settings()
        self.trace.append(f"{len(self._members)} joins, {' '.join(map(str, settings.values()))}")
        self._present.append(GroupMember(self._cluster.bootstrap_servers, GROUP, self._topic, settings))
        self._members.append(self._present[-1])

    def _settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = (
            {**CONSUMER, "group.remote.assignor": self._rng.choice(_ASSIGNORS)}
            if self._rng.random() < 0.5
            else {**CLASSIC, "session.timeout.ms": SESSION_MS, "partition.assignment.strategy": self._strategy}
        )
        if self._rng.random() < _STATIC:
            settings["group.instance.id"] = f"static-{len(self._members)}"
        return settings


def _is_answered(consumer: confluent_kafka.Consumer, topic: str) -> bool:
    try:
        consumer.committed([TopicPartition(topic, 0)], timeout=_CALL_S)
    except confluent_kafka.KafkaException:
        return False
    return True
