"""Members of consumer groups on one set of directories: Kafka 4.3.0, kafkalite at the same address, and Kafka again.

Kafka needs the topics and their ids in its metadata log, so a directory that kafkalite made by itself is not for Kafka
4.3. On one that Kafka made, each continues with the members that the other wrote to `__consumer_offsets`: they keep
their epochs and partitions, and no member joins again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from bench.reference import ReferenceUnavailable
from tests.compatibility.interop.kraft_kafka import KRaftKafka, kraft_kafka
from tests.compatibility.interop.swap_scene import BROKER_ID, Kafkalite, leave
from tests.support.consumer_members import ConsumerMember
from tests.support.wait import DEADLINE_S, until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"
VERSION = "4.3.0"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_members_stay_while_brokers_change(
    how: str,
    tmp_path: Path,
    data_dirs: list[Path],
    kafkalite: Kafkalite,
    proved: Callable[[str, str, str], None],
) -> None:
    proved("Apache Kafka", VERSION, f"consumer groups there and back with kafkalite, KRaft, after a {how} of either")
    with contextlib.ExitStack() as stack:
        try:
            kafka = stack.enter_context(kraft_kafka(tmp_path / "kafka", data_dirs, node_id=BROKER_ID, version=VERSION))
            kafka.start()
        except ReferenceUnavailable as reason:
            pytest.skip(str(reason))
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic("orders", 4, 1)])["orders"].result(DEADLINE_S)
        theirs = joined(kafka, "theirs", subscribed_topic_names=["orders"])
        pattern = joined(kafka, "pattern", subscribed_topic_regex="o.*")
        leave(kafka, how)

        kafkalite.start("--port", str(kafka.port), "--adopt", kafkalite.data_dirs)
        assert_kept(kafka, theirs, pattern)
        ours = joined(kafka, "ours", subscribed_topic_names=["orders"], instance_id="till")
        second = ConsumerMember(kafka.bootstrap, "theirs", "m2", subscribed_topic_names=["orders"])
        until(lambda: confirmed(theirs, second) == [2, 2], "a share for the second member")
        leave(kafkalite, how)

        kafka.start()
        assert_kept(kafka, theirs, pattern, ours, second)
        theirs.leave()
        until(lambda: confirmed(second) == [4], "all partitions at the member that stays")
        for member in (pattern, ours, second):
            member.leave()


def joined(kafka: KRaftKafka, group: str, **subscription: object) -> ConsumerMember:
    member = ConsumerMember(kafka.bootstrap, group, "m1", **subscription)
    until(lambda: confirmed(member) == [4], "the assignment")
    return member


def confirmed(*members: ConsumerMember) -> list[int]:
    """The number of partitions of each, after a heartbeat of each."""
    for member in members:
        member.confirm()
    return [sum(map(len, member.owned.values())) for member in members]


def assert_kept(kafka: KRaftKafka, *members: ConsumerMember) -> None:
    """The epochs and partitions that they had; a heartbeat of an unknown member is refused."""
    before = [(member.epoch, member.owned) for member in members]
    for member in members:
        member.reconnect(kafka.bootstrap)
        member.confirm()
    assert [(member.epoch, member.owned) for member in members] == before
