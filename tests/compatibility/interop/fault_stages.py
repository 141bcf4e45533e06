"""The two brokers of the stories about faults: kafkalite, told over HTTP to misbehave, and an Apache Kafka, which is
brought to do so.

`kafkalite serve` with the control of docs/testing.md; what happens to a client of it has an equal on Apache Kafka by
ordinary means: another producer, a member that comes and goes, a member that is removed by an administrator, kill -9.
"""

from __future__ import annotations

import json
import os
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConsumerGroupDescription, NewTopic
from kafka.admin import KafkaAdminClient, MemberToRemove

from tests.compatibility.interop.kraft_kafka import KRaftKafka
from tests.compatibility.interop.swap_scene import read
from tests.support.broker_process import ServedBroker
from tests.support.wait import DEADLINE_S, until

SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
ASK_AGAIN_S = 5.0
VALUES = ("0", "1", "2")
TOKEN = "a token for the control of a test"


class Stage:
    """A broker that runs."""

    bootstrap: str

    def topic(self, settings: Mapping[str, str] | None = None) -> str:
        """A new topic of one partition, empty."""
        name = f"orders-{uuid.uuid4().hex[:8]}"
        self.administer("create_topics", [NewTopic(name, 1, 1, config=dict(settings or {}))])
        return name

    def fill(self, topic: str, values: Sequence[str] = VALUES) -> None:
        """A batch for each value."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0})
        for value in values:
            producer.produce(topic, value)
            assert producer.flush(DEADLINE_S) == 0

    def commit(self, group: str, topic: str, offset: int) -> None:
        places = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])]
        self.administer("alter_consumer_group_offsets", places)

    def await_member(self, group: str) -> str:
        """The id of the only member of a stable group."""

        def member() -> str | None:
            try:
                found = self.group(group)
            except KafkaException:  # of a broker that is just starting
                return None
            whole = found.state.name == "STABLE" and len(found.members) == 1
            return found.members[0].member_id if whole else None

        return str(until(member, f"{group} to be stable"))

    def group(self, group: str) -> ConsumerGroupDescription:
        described: ConsumerGroupDescription = self.administer(
            "describe_consumer_groups", [group], request_timeout=ASK_AGAIN_S
        )
        return described

    def administer(self, deed: str, *arguments: Any, **more: Any) -> Any:
        """The result of the last that was asked for."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})  # its requests end with it
        return [done.result(DEADLINE_S) for done in getattr(admin, deed)(*arguments, **more).values()][-1]

    def values(self, topic: str, isolation: str = "read_uncommitted") -> list[str]:
        """Of the records that there are; none for a topic that there is not."""
        raise NotImplementedError

    def fence(self, transactional_id: str) -> None:
        raise NotImplementedError

    def rebalance(self, group: str) -> None:
        raise NotImplementedError

    def expire_session(self, group: str) -> None:
        raise NotImplementedError

    def kill_and_start(self) -> None:
        raise NotImplementedError


class KafkaliteStage(Stage):
    def __init__(self, home: Path) -> None:
        (home / "token").write_text(TOKEN)
        self._ready = home / "ready.json"
        more = ("--ready-file", str(self._ready), "--control-token-file", str(home / "token"))
        settings = SETTINGS | {"metrics.listener": "127.0.0.1:0"}
        self.broker = ServedBroker(home / "data", home / "broker.log", settings, more=more)

    @property
    def bootstrap(self) -> str:  # type: ignore[override]
        return self.broker.bootstrap

    @contextmanager
    def faults(self, topic: str, wanted: Sequence[dict[str, Any]]) -> Iterator[None]:
        """At the end each must have fired."""
        for fault in wanted:
            self.control("POST", "faults", fault | ({"topic": topic} if "topic" in fault else {}))
        try:
            yield
            active = self.control("GET", "faults")["active"]
            assert all(fault["fired"] for fault in active), active
        finally:
            self.control("DELETE", "faults")

    def control(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        address = json.loads(self._ready.read_text())["metrics"]
        request = urllib.request.Request(
            f"http://{address}/control/{path}",
            method=method,
            data=json.dumps(body or {}).encode(),
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        with urllib.request.urlopen(request, timeout=DEADLINE_S) as answer:
            return json.load(answer)

    def values(self, topic: str, isolation: str = "read_uncommitted") -> list[str]:
        found = self.control("GET", f"records?topic={topic}&isolation={isolation}")
        return [record["value"] for record in found]

    def fence(self, transactional_id: str) -> None:
        self.control("POST", "faults", {"fault": "fence", "transactional_id": transactional_id})

    def rebalance(self, group: str) -> None:
        self.await_member(group)
        self.control("POST", "faults", {"fault": "rebalance", "group": group})

    def expire_session(self, group: str) -> None:
        member = self.await_member(group)
        self.control("POST", "faults", {"fault": "expire_session", "group": group, "member_id": member})

    def kill_and_start(self) -> None:
        self.broker.kill()
        self.broker.start()


class KafkaStage(Stage):
    def __init__(self, kafka: KRaftKafka, data_dir: Path) -> None:
        self.kafka = kafka
        self.data_dir = data_dir

    @property
    def bootstrap(self) -> str:  # type: ignore[override]
        return self.kafka.bootstrap

    def values(self, topic: str, isolation: str = "read_uncommitted") -> list[str]:
        if topic not in AdminClient({"bootstrap.servers": self.bootstrap}).list_topics(timeout=DEADLINE_S).topics:
            return []
        return [(one.value or b"").decode() for one in read(self.bootstrap, [(topic, 0)], isolation)[topic, 0]]

    def delete_records(self, topic: str, before: int) -> None:
        self.administer("delete_records", [TopicPartition(topic, 0, before)])

    def damage(self, topic: str) -> None:
        """Turns a bit of the last record on the disk, in its value."""
        [segment] = (self.data_dir / f"{topic}-0").glob("*.log")
        with segment.open("r+b") as file:
            file.seek(-2, os.SEEK_END)  # the last byte counts the headers
            last = file.read(1)[0]
            file.seek(-2, os.SEEK_END)
            file.write(bytes([last ^ 1]))

    def fence(self, transactional_id: str) -> None:
        Producer({"bootstrap.servers": self.bootstrap, "transactional.id": transactional_id}).init_transactions(
            DEADLINE_S
        )

    def rebalance(self, group: str) -> None:
        """Another member comes, takes part, and goes."""
        self.await_member(group)
        group_now = self.group(group)
        [topic] = {place.topic for place in group_now.members[0].assignment.topic_partitions}
        other = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": group,
                "partition.assignment.strategy": group_now.partition_assignor,
            }
        )
        joined: list[object] = []
        other.subscribe([topic], on_assign=lambda _, partitions: joined.append(partitions))
        until(lambda: other.poll(0.05) is None and joined, "the other member to have joined")
        other.close()

    def expire_session(self, group: str) -> None:
        """The member is removed from the group, and learns it by its next heartbeat: as from a session that ended."""
        member = self.await_member(group)
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        try:
            admin.remove_group_members(group, [MemberToRemove(member_id=member)])
        finally:
            admin.close()

    def kill_and_start(self) -> None:
        self.kafka.kill()
        self.kafka.start()
