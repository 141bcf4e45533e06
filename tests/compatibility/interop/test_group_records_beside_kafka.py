"""Records of `__consumer_offsets` after one story here and at Kafka 4.3.0, as kafka-dump-log decodes them.

Groups of the consumer protocol with static members and regular expressions, a classic group, offsets of transactions,
deletions: the same keys and values in the same order, but for ids, times and hashes of metadata. kafkalite writes
version 3 of a committed offset, which brokers before 4.0 read, too; Kafka 4.3 writes version 4, which adds the topic's
id. Kafka writes a classic group's record before its first generation, and removes it with the group; kafkalite and
Kafka 3.9 begin with the first generation.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.reference_broker import ReferenceBroker
from tests.support.consumer_members import ConsumerMember
from tests.support.wait import DEADLINE_S, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"
VERSION = "4.3.0"
BROKER_SETTINGS = {"group.consumer.assignment.interval.ms": "0"}

Record = tuple[str, str]
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOPIC_ID = re.compile(r'"topicId":"([\w-]{22})"')
_BLURRED = re.compile(r'"(\w*Timestamp|timestamp|metadataHash|version)":"?-?\d+"?')
_OFFSET_ID = re.compile(r',"topicId":"[^"]*"(?=\}\}$)')
_NO_GENERATION = re.compile(r'^<DELETE>$|"generation":0,')
_RECORD = re.compile(r"^\| key: (.*) payload: (.*)$")


def live(bootstrap: str) -> None:
    """The story; each step ends before the next begins."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for topic in ("one", "two"):
        admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(DEADLINE_S)
    consumer_groups(bootstrap)
    matched_topics(bootstrap, admin)
    classic_group(bootstrap)
    transactions(bootstrap)
    commit_by_admin(admin, "new", {0: 5, 1: 6})
    commit_by_admin(admin, "gone", {0: 1})
    admin.delete_consumer_groups(["gone"])["gone"].result(DEADLINE_S)


def consumer_groups(bootstrap: str) -> None:
    """A member, a static one beside it, which leaves for a while, and the end of both."""
    first = ConsumerMember(bootstrap, "new", "m1", subscribed_topic_names=["one"])
    beat_until(lambda: len(owned(first)) == 3, first)
    static = ConsumerMember(bootstrap, "new", "m2", subscribed_topic_names=["one", "two"], instance_id="till")
    beat_until(lambda: len(owned(first)) + len(owned(static)) == 6 and owned(static), first, static)
    first.leave()
    beat_until(lambda: len(owned(static)) == 6, static)
    static.leave()


def matched_topics(bootstrap: str, admin: AdminClient) -> None:
    """A subscription to a regular expression, and to another one."""
    member = ConsumerMember(bootstrap, "matched", "m3", subscribed_topic_regex="o.*")
    beat_until(lambda: len(owned(member)) == 3, member)
    member.leave()


def classic_group(bootstrap: str) -> None:
    settings = {"bootstrap.servers": bootstrap, "group.id": "old", "client.id": "old", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.subscribe(["one"])
    until(lambda: consumer.poll(0.1) is None and len(consumer.assignment()) == 3, "the assignment")
    consumer.commit(offsets=[TopicPartition("one", 1, 2, "metadata")], asynchronous=False)
    consumer.close()


def transactions(bootstrap: str) -> None:
    """Offsets in a transaction that commits and in one that aborts."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "payments"})
    producer.init_transactions(DEADLINE_S)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "paid"})
    for offset, end in ((7, producer.commit_transaction), (8, producer.abort_transaction)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction(
            [TopicPartition("one", 0, offset)], reader.consumer_group_metadata(), DEADLINE_S
        )
        end(DEADLINE_S)
    reader.close()


def commit_by_admin(admin: AdminClient, group: str, offsets: dict[int, int]) -> None:
    for partition, offset in offsets.items():
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition("one", partition, offset)])]

        def is_committed(asked: list[Any] = asked) -> bool:
            try:
                admin.alter_consumer_group_offsets(asked)[group].result(DEADLINE_S)
            except KafkaException:  # the coordinator has only just begun to load
                return False
            return True

        until(is_committed, "a commit")


def owned(member: ConsumerMember) -> list[tuple[Any, int]]:
    return [(topic, index) for topic, indexes in member.owned.items() for index in indexes]


def beat_until(is_reached: Callable[[], object], *members: ConsumerMember) -> None:
    def beat() -> object:
        for member in members:
            member.confirm()
        return is_reached()

    until(beat, "the assignment")


def records(tools: JavaTools, data_dir: Path) -> dict[str, list[Record]]:
    """Keys and values of each group, in the order of the log. Fails on a record that is not decoded."""
    found: dict[str, list[Record]] = {}
    printed = tools.dump_offsets(*sorted(data_dir.glob("__consumer_offsets-*/*.log")))
    names: dict[str, str] = {}
    for line in printed.splitlines():
        if not line.startswith("| "):
            continue
        record = _RECORD.match(line)
        if record is None:
            found.setdefault("markers", []).append((line, ""))
            continue
        key = json.loads(record[1])
        if key["type"] == "2" and _NO_GENERATION.search(record[2]):
            continue
        group = key["data"].get("groupId") or key["data"]["group"]
        value = _OFFSET_ID.sub("", record[2]) if key["type"] == "1" else record[2]
        found.setdefault(group, []).append((blurred(record[1], names), blurred(value, names)))
    return found


def blurred(text: str, names: dict[str, str]) -> str:
    """Without times, hashes and versions; ids are replaced by `names`, in which the order of topics has no meaning."""
    text = _UUID.sub("UUID", text)
    text = _TOPIC_ID.sub(lambda topic: f'"topicId":"{names.setdefault(topic[1], f"topic {len(names)}")}"', text)
    text = re.sub(r"\[(\{\"topicId\".*?\})\](?=[,}])", lambda rows: f"[{sorted_rows(rows[1])}]", text)
    return _BLURRED.sub(r'"\1":N', text)


def sorted_rows(rows: str) -> str:
    return ",".join(sorted(rows.replace("},{", "}\n{").split("\n")))


def test_the_same_records(
    broker: BrokerProcess,
    kafka_4_3: ReferenceBroker,
    tools_4_3: Callable[[str], JavaTools],
    proved: Callable[[str, str, str], None],
) -> None:
    what = "__consumer_offsets after groups of both protocols, patterns and transactions: every record as Kafka's"
    proved("kafka-dump-log", VERSION, what)
    found = []
    for each in (broker, kafka_4_3):
        live(each.bootstrap)
        each.stop()
        found.append(records(tools_4_3(""), each.data_dir))
        each.start()
    ours, theirs = found
    lines = [[f"{group} {key} {value}" for group in sorted(one) for key, value in one[group]] for one in (ours, theirs)]
    differing = [line for line in difflib.ndiff(*lines) if not line.startswith("  ")]
    assert not differing, "\n".join(differing)  # - is here, + at Kafka
