"""A consumer group of stock clients in a random history: members of both protocols come and go while brokers are
disturbed, so that the group changes its protocol now and then.

Promised of the end: every record of the topic was committed by one member, once, and no committed offset is below an
earlier one. No member is static: such a member whose JoinGroup was not answered may be fenced by its second one, which
stops the client for good.
"""

from __future__ import annotations

import contextlib
import threading
from random import Random
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.replication.group_members import (
    CLASSIC,
    CONSUMER,
    UNCOMPACTED,
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
    **UNCOMPACTED,
}
_STRATEGIES = ("range", "roundrobin", "cooperative-sticky")
_ASSIGNORS = ("uniform", "range")


class GroupClients:
    """Members come and go between `start` and `finish`, with pauses of up to `pause_s_max`. `trace`: what they did."""

    def __init__(
        self, cluster: Reachable, topic: str, partitions: int, seed: object, pause_s_max: float = PAUSE_S_MAX
    ) -> None:
        self.trace: list[str] = []
        self._cluster = cluster
        self._topic = topic
        self._partitions = partitions
        self._pause_s_max = pause_s_max
        self._rng = Random(f"groups {seed}")
        self._strategy = self._rng.choice(_STRATEGIES)  # members of the classic protocol need one in common
        self._members: list[GroupMember] = []
        self._present: list[GroupMember] = []
        self._done = threading.Event()
        self._faults: list[str] = []
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def start(self) -> None:
        """The cluster is whole: the topic of the offsets gets all its replicas. The group has an offset of each
        partition from the beginning, so that none of its members may ever be without."""
        with contextlib.closing(new_consumer(self._cluster, group_id=GROUP)) as consumer:
            until(lambda: self._is_committed(consumer), "a coordinator")
        self._thread.start()

    def finish(self) -> None:
        """No member comes or goes any more."""
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join(DEADLINE_S)

    def check(self) -> None:
        """The cluster is whole, and nothing is written any more. Raises AssertionError with what members did."""
        written = written_places(self._cluster, self._topic, self._partitions)
        try:
            self._check(written)
        except (AssertionError, pytest.fail.Exception) as fault:
            counts = [len(each.committed) for each in self._members]
            missing = sorted(written.difference(*(each.committed for each in self._members)))
            unsure = {place for each in self._members for place in each.unsure}
            told = (
                f"missing {missing[:5]}, {missing[-5:]} of {len(missing)}, unsure {len(unsure.intersection(missing))}"
            )
            held = [each.held for each in self._members if each.is_alive()]
            raise AssertionError(
                f"{fault}; {told}; members: {', '.join(self.trace)}; committed {counts}; alive {held}; {self._group()}"
            ) from fault

    def _check(self, written: set[Place]) -> None:
        assert not self._faults, self._faults
        self._join(self._classic())  # every other one may have been fenced
        await_all(self._members, written, self._stored)
        for member in self._members:
            member.leave()
        for member in self._members:
            member.await_end()
        check_each_once(self._members, written)
        check_stored_commits(self._stored(), self._members)

    def _group(self) -> str:
        """The group in the view of its coordinator, for a message."""
        admin = AdminClient({"bootstrap.servers": self._cluster.bootstrap_servers})
        try:
            found = admin.describe_consumer_groups([GROUP], request_timeout=10)[GROUP].result()
        except confluent_kafka.KafkaException as fault:
            return f"the group is not described: {fault}"
        members = [
            f"{each.client_id} {each.member_id} has {[str(one) for one in each.assignment.topic_partitions]}"
            for each in found.members
        ]
        return f"{found.type}, {found.state}, {found.partition_assignor}: {', '.join(members) or 'no members'}"

    def _stored(self) -> dict[int, list[int]]:
        return stored_commits(self._cluster, GROUP, self._topic)

    def _guarded(self) -> None:
        try:
            while not self._done.is_set():
                self._change()
                self._done.wait(self._rng.uniform(0.05, self._pause_s_max))
        except Exception as fault:
            self._faults.append(repr(fault))

    def _is_committed(self, consumer: confluent_kafka.Consumer) -> bool:
        beginning = [TopicPartition(self._topic, index, 0) for index in range(self._partitions)]
        try:
            consumer.commit(offsets=beginning, asynchronous=False)
        except confluent_kafka.KafkaException:
            return False
        return True

    def _change(self) -> None:
        self._present = [member for member in self._present if member.is_alive()]
        joins = self._rng.random() < 0.5
        if self._present and (len(self._present) == MEMBERS_MAX or (len(self._present) > 1 and not joins)):
            member = self._present.pop(self._rng.randrange(len(self._present)))
            self.trace.append(f"{self._members.index(member)} leaves")
            member.leave()
        else:
            self._join(self._settings())

    def _join(self, settings: dict[str, Any]) -> None:
        self.trace.append(f"{len(self._members)} joins, {' '.join(map(str, settings.values()))}")
        address = self._cluster.bootstrap_servers
        self._present.append(GroupMember(address, GROUP, self._topic, settings, may_be_fenced=True))
        self._members.append(self._present[-1])

    def _settings(self) -> dict[str, Any]:
        if self._rng.random() < 0.5:
            assignor = self._rng.choice(_ASSIGNORS)
            return {**CONSUMER, "group.remote.assignor": assignor, "auto.offset.reset": "error"}
        return self._classic()

    def _classic(self) -> dict[str, Any]:
        strategy = {"partition.assignment.strategy": self._strategy}
        return {**CLASSIC, "session.timeout.ms": SESSION_MS, "auto.offset.reset": "error", **strategy}
