"""Encoded topics: kept ones equal newly described ones, whatever has happened to the topics in between."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafkalite.api.request import topic_describer
from kafkalite.api.request.broker_endpoints import BrokerEndpoint
from kafkalite.api.request.request_context import OPERATIONS_NOT_ASKED
from kafkalite.api.request.topic_describer import EncodedTopics, TopicDescriber
from kafkalite.common.errors import ErrorCode
from kafkalite.common.event import Event
from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import BrokerRecord, ClusterMetadata, PartitionRecord, TopicRecord
from kafkalite.protocol.codec.codec import encoded
from kafkalite.protocol.header import response_frame
from kafkalite.protocol.messages.metadata import MetadataResponse
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.partition import OfflinePartition, Partition

ME, OTHER, UNREACHABLE = 1, 2, 3
VERSIONS = (0, 5, 6, 12)


class LedPartition(Partition):
    """A partition without a log."""

    def __init__(self, topic: str, index: int, leader_epoch: int) -> None:
        self.topic, self.index, self.leader_epoch = topic, index, leader_epoch


class World:
    """The topics of a broker and the other brokers, changed as the metadata and failed disks change them."""

    def __init__(self) -> None:
        self.by_name: dict[str, Topic] = {}
        self.brokers = {each: BrokerRecord(each, ()) for each in (ME, OTHER, UNREACHABLE)}
        self.offline: dict[tuple[str, int], str] = {}
        self.epoch = 0
        self.replica_manager: Any = SimpleNamespace(
            by_name=self.by_name,
            hosted=SimpleNamespace(offline=self.offline),
            is_offline=lambda *key: key in self.offline,
            when_deleted=Event[[str]](),
        )
        self.encoded_topics = EncodedTopics(self.replica_manager)

    def describer(self, version: int) -> TopicDescriber:
        reachable = [BrokerEndpoint(each, "host", 9092, None) for each in self.brokers if each != UNREACHABLE]
        cluster: Any = SimpleNamespace(brokers=self.brokers)
        cluster.awaits_election = partial(ClusterMetadata.awaits_election, cluster)
        return TopicDescriber(ME, reachable, cluster, self.replica_manager, version)

    def create(self, name: str, partitions: int) -> None:
        states = {index: PartitionRecord((ME, OTHER), ME, 0, (ME, OTHER), 0) for index in range(partitions)}
        self.by_name[name] = Topic(TopicRecord(name, UUID(int=self.next_epoch()), states, {}), None)  # type: ignore[arg-type]

    def add(self, topic: Topic) -> int:
        """A partition that was never elected; its index."""
        index = len(topic.states)
        topic.states = {**topic.states, index: PartitionRecord((OTHER,), NO_LEADER, -1, (), -1)}
        return index

    def delete(self, name: str) -> None:
        del self.by_name[name]
        self.replica_manager.when_deleted(name)

    def next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

    def elect(self, topic: Topic, index: int, leader: int) -> None:
        """The metadata name a leader; a broker that was the leader gives up."""
        epoch = self.next_epoch()
        is_new = topic.states[index].is_new or index in topic.unopened
        state = topic.states[index]._replace(leader=leader, leader_epoch=epoch, isr=(leader,))
        topic.states = {**topic.states, index: state}
        led = topic.partitions.get(index)
        topic.unopened.discard(index)
        if leader != ME:
            topic.partitions.pop(index, None)
        elif led is not None:
            led.leader_epoch = epoch
        elif is_new:
            topic.unopened.add(index)

    def lead(self, topic: Topic, index: int) -> None:
        topic.partitions[index] = LedPartition(topic.name, index, max(0, topic.states[index].leader_epoch))
        topic.unopened.discard(index)

    def resign(self, topic: Topic, index: int) -> None:
        topic.partitions.pop(index, None)

    def fail(self, topic: Topic, index: int) -> None:
        if topic.partitions.get(index) is not None:
            topic.partitions[index] = OfflinePartition(topic.name, index, "no disk", 0)
        else:
            self.offline[topic.name, index] = "no disk"


ACTIONS = ("create", "add", "delete", "elect", "lead", "resign", "fail", "repair", "broker")


@given(st.data())
def test_kept_descriptions_equal_new_ones(data: st.DataObject) -> None:
    world = World()
    long_list = data.draw(st.sampled_from([1, 4]), label="long list")
    with_long_list = topic_describer._LONG_LIST
    topic_describer._LONG_LIST = long_list  # type: ignore[misc]
    try:
        for name in "abcd":
            world.create(name, 2)
        for _ in range(data.draw(st.integers(1, 12), label="steps")):
            change(world, data)
            for version in data.draw(st.lists(st.sampled_from(VERSIONS), min_size=1, max_size=3), label="asked"):
                topics = list(world.by_name.values())
                kept = world.encoded_topics.encoded(world.describer(version), topics)
                new = [encoded(world.describer(version).topic(each, OPERATIONS_NOT_ASKED), version) for each in topics]
                assert kept == new
    finally:
        topic_describer._LONG_LIST = with_long_list  # type: ignore[misc]


def change(world: World, data: st.DataObject) -> None:
    action = data.draw(st.sampled_from(ACTIONS), label="action")
    if action == "create":
        world.create(data.draw(st.sampled_from("abcdef"), label="name"), data.draw(st.integers(1, 3), label="count"))
    elif action == "broker":
        other = data.draw(st.sampled_from([OTHER, UNREACHABLE]), label="broker")
        present = data.draw(st.sampled_from([None, False, True]), label="stopping, None: away")
        world.brokers.pop(other, None)
        if present is not None:
            world.brokers[other] = BrokerRecord(other, (), stopping=present)
    elif action == "repair":
        world.offline.clear()
    elif world.by_name:
        name = data.draw(st.sampled_from(sorted(world.by_name)), label="topic")
        topic = world.by_name[name]
        if action in ("add", "delete"):
            world.add(topic) if action == "add" else world.delete(name)
            return
        index = data.draw(st.sampled_from(sorted(topic.states)), label="partition")
        if action == "elect":
            world.elect(topic, index, data.draw(st.sampled_from([ME, OTHER, UNREACHABLE, -1]), label="leader"))
        else:
            {"lead": world.lead, "resign": world.resign, "fail": world.fail}[action](topic, index)


def test_a_new_partition_is_seen_with_its_first_election_or_when_nobody_can_be_elected() -> None:
    world = World()
    world.create("t", 2)
    topic = world.by_name["t"]
    index = world.add(topic)

    def seen() -> list[tuple[int, int]]:
        describer = world.describer(12)
        described = describer.topic(topic, OPERATIONS_NOT_ASKED).partitions
        assert [each.partition_index for each in described] == describer.indexes(topic)
        return [(each.partition_index, each.error_code) for each in described if each.partition_index > 1]

    assert seen() == []
    del world.brokers[OTHER]
    assert seen() == [(index, ErrorCode.LEADER_NOT_AVAILABLE)]
    world.brokers[OTHER] = BrokerRecord(OTHER, ())
    world.elect(topic, index, OTHER)
    assert seen() == [(index, ErrorCode.NONE)]
    added = world.add(topic)
    world.elect(topic, added, ME)
    assert seen() == [(index, ErrorCode.NONE)]
    world.lead(topic, added)
    assert seen() == [(index, ErrorCode.NONE), (added, ErrorCode.NONE)]
    world.resign(topic, added)
    assert seen() == [(index, ErrorCode.NONE), (added, ErrorCode.LEADER_NOT_AVAILABLE)]


def test_a_response_is_the_same_with_encoded_topics() -> None:
    world = World()
    world.create("t", 3)
    for version in range(14):
        describer, topic = world.describer(version), world.by_name["t"]
        described = [describer.topic(topic, OPERATIONS_NOT_ASKED)]
        of_bytes: Any = [describer.encoded(topic)]
        frames = [response_frame(MetadataResponse(topics=topics), version, 7) for topics in (described, of_bytes)]
        assert frames[0] == frames[1]


def test_a_long_list_is_described_once() -> None:
    world = World()
    for number in range(topic_describer._LONG_LIST):
        world.create(f"t{number}", 1)
    topics = list(world.by_name.values())
    first = world.encoded_topics.encoded(world.describer(12), topics)
    assert world.encoded_topics.encoded(world.describer(12), topics) is first
    world.elect(topics[3], 0, OTHER)
    second = world.encoded_topics.encoded(world.describer(12), topics)
    assert [index for index, pair in enumerate(zip(first, second, strict=True)) if pair[0] is not pair[1]] == [3]


def test_nothing_holds_a_deleted_topic() -> None:
    world = World()
    for number in range(topic_describer._LONG_LIST):
        world.create(f"t{number}", 1)
    world.encoded_topics.encoded(world.describer(12), list(world.by_name.values()))
    world.delete("t7")
    assert not world.encoded_topics._answers
