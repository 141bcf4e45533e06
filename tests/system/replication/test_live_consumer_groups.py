"""Members of a group.protocol=consumer group while brokers of its cluster are killed, stopped and started.

A member commits each record before it notes it: at the end every record was noted once, by somebody.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from kafkalite.testing import Cluster
from tests.support.replication.live_cluster import EVERY, LOG, QUICK, SETTINGS, create_topic, load
from tests.support.wait import DEADLINE_S, until

GROUP = "g"
PARTITIONS = 6
OFFSETS = "__consumer_offsets"
LOST = {  # the partition is somebody else's: so is the record
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
}
GROUP_SETTINGS = {
    "offsets_topic_num_partitions": 1,
    "group_consumer_min_session_timeout_ms": 1_000,
    "group_consumer_session_timeout_ms": 20_000,
    "group_consumer_min_heartbeat_interval_ms": 100,
    "group_consumer_heartbeat_interval_ms": 200,
}


class Member(threading.Thread):
    """`noted`: the values it committed; `unsure`: of a commit without an answer, after which the partition was lost."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self.noted: list[int] = []
        self.unsure: set[int] = set()
        self.failure: BaseException | None = None
        self._end = threading.Event()
        settings: dict[str, Any] = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": GROUP,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self._consumer = confluent_kafka.Consumer(settings | QUICK, logger=LOG)
        self._consumer.subscribe(["t"])
        self.start()

    def run(self) -> None:
        try:
            while not self._end.is_set():
                message = self._consumer.poll(0.1)
                if message is None:
                    continue
                error = message.error()
                assert error is None or not error.fatal(), error
                if error is None:
                    self._commit(message)
            self._consumer.close()
        except BaseException as failure:  # told by `check`
            self.failure = failure

    def _commit(self, message: confluent_kafka.Message) -> None:
        number, is_unsure = int(message.value() or b""), False
        while not self._end.is_set() or is_unsure:
            try:
                self._consumer.commit(message, asynchronous=False)
            except KafkaException as refusal:
                if refusal.args[0].code() in LOST:
                    if is_unsure:
                        self.unsure.add(number)
                    return
                assert not refusal.args[0].fatal(), refusal
                is_unsure = True
            else:
                self.noted.append(number)
                return

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def progress(self) -> None:
        """Waits until it has noted more."""
        count = len(self.noted)

        def noted() -> bool:
            self.check()
            return len(self.noted) > count + 5

        until(noted, "a member to commit")

    def leave(self) -> None:
        self._end.set()
        self.join(DEADLINE_S)
        self.check()


def each_once(members: list[Member], written: int) -> None:
    def noted() -> set[int]:
        return {number for member in members for number in [*member.noted, *member.unsure]}

    until(lambda: len(noted()) == written, lambda: f"{written} records; {len(noted())} are there")
    twice = {n: c for n, c in Counter(n for member in members for n in member.noted).items() if c > 1}
    assert not twice, twice


def committed(cluster: Cluster) -> int:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": GROUP}, logger=LOG)
    try:
        asked = [TopicPartition("t", partition) for partition in range(PARTITIONS)]
        return sum(one.offset for one in consumer.committed(asked, DEADLINE_S))
    finally:
        consumer.close()


@pytest.mark.parametrize("trouble", ["the coordinator is killed", "rolling restart"])
def test_a_group_goes_on(trouble):
    with Cluster(3, **SETTINGS, **GROUP_SETTINGS) as cluster:
        create_topic(cluster, "t", placed_on=[EVERY] * PARTITIONS)
        with load(cluster, "t", PARTITIONS) as writer:
            members = [Member(cluster), Member(cluster)]
            for member in members:
                member.progress()
            victims = [cluster.wait_for_leader(OFFSETS, 0)] if "killed" in trouble else list(EVERY)
            for victim in victims:
                was_coordinator = cluster.leader_of(OFFSETS, 0) == victim
                (cluster.kill if "killed" in trouble else cluster.stop)(victim)
                if was_coordinator:
                    cluster.wait_for_leader(OFFSETS, 0, other_than=[victim])
                for member in members:
                    member.progress()
                cluster.start(victim)
                for partition in range(PARTITIONS):
                    cluster.wait_for_isr("t", partition, EVERY)
                cluster.wait_for_isr(OFFSETS, 0, EVERY)
            for member in members:
                member.progress()
        written = len(writer.acknowledged) + len(writer.unplaced)
        assert not writer.failures
        each_once(members, written)
        for member in members:
            member.leave()
        assert committed(cluster) == written
