"""Commands that change what stands in ZooKeeper, given to a broker of either kind; and when a tree has come to rest.

A stage starts and stops brokers of one kind, always with the same settings. After each step of a story the whole tree
is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kafkalite.client.blocking_client import BlockingClient
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.messages.configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.partition_admin import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkalite.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from tests.compatibility.differential.asking import APPEND, DELETE, SET, TOPIC, change, create, new_topic
from tests.support.wait import DEADLINE_S, until
from tests.support.zk.znode_tree import Tree, zookeeper_client

BROKER = 4  # of what kind the thing is that has settings
NOT_YET = (3, 5, 6, 7, 14, 15, 16, 41)  # nobody knows it, leads it, or coordinates it so far
NO_LEADER = -1
IN_HAND = (
    "/admin/delete_topics/", "/admin/preferred_replica_election", "/admin/reassign_partitions",
    "/isr_change_notification/",
)  # fmt: skip
"""What a controller takes away when it is done with it."""
SETTINGS = {"num.partitions": "3", "default.replication.factor": "1", "offsets.topic.num.partitions": "4"}


class Stage(Protocol):
    """Brokers of one kind on one ZooKeeper (and its chroot, if any)."""

    @property
    def zookeeper(self) -> str: ...

    def start(self, broker_id: int) -> None: ...

    def stop(self, broker_id: int) -> None: ...

    def address(self, broker_id: int) -> str: ...


Step = Callable[[Stage], None]
Story = Mapping[str, Step]


def start(broker_id: int) -> Step:
    return lambda stage: stage.start(broker_id)


def stop(broker_id: int) -> Step:
    return lambda stage: stage.stop(broker_id)


def ask(request: Message, version: int, broker_id: int = 0) -> Step:
    """Until no code in the answer says that it is too early; any other code is a failure."""

    def step(stage: Stage) -> None:
        with BlockingClient(stage.address(broker_id), DEADLINE_S) as client:

            def done() -> bool:
                codes = set(codes_in(client.ask(request, version)))
                assert codes <= {0, *NOT_YET}, codes
                return not codes - {0}

            until(done, f"an answer to {type(request).__name__}", DEADLINE_S)

    return step


def write(*nodes: tuple[str, Any]) -> Step:
    """Put nodes there, one by one, as Kafka's tools with --zookeeper do: path and JSON (None: no data). A path that
    ends in "_" is that of a sequential node."""

    def step(stage: Stage) -> None:
        with zookeeper_client(stage.zookeeper) as client:
            for path, value in nodes:
                data = b"" if value is None else json.dumps(value).encode()
                if not path.endswith("_") and client.exists(path):
                    client.set(path, data)
                else:
                    client.create(path, data, makepath=True, sequence=path.endswith("_"))

    return step


def codes_in(answer: Any) -> list[int]:
    """All error codes, wherever they stand."""
    if isinstance(answer, list):
        return [code for one in answer for code in codes_in(one)]
    if not isinstance(answer, Message):
        return []
    found: list[int] = []
    for name in answer.__fields__:
        value = getattr(answer, name)
        found += [value] if name == "error_code" else codes_in(value)
    return found


def assigned(name: str, *brokers: int, **more: Any) -> CreateTopicsRequest:
    """One partition for each of the brokers."""
    rows = [CreatableReplicaAssignment(partition_index=i, broker_ids=[one]) for i, one in enumerate(brokers)]
    return create(new_topic(name, -1, -1, assignments=rows, **more))


def more_partitions(name: str, count: int, *brokers: int) -> CreatePartitionsRequest:
    rows = [CreatePartitionsAssignment(broker_ids=[one]) for one in brokers] or None
    asked = CreatePartitionsTopic(name=name, count=count, assignments=rows)
    return CreatePartitionsRequest(topics=[asked], timeout_ms=10_000)


def replaced(kind: int, name: str, **config: str) -> AlterConfigsRequest:
    rows = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
    return AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)])


def topic_of_2_7(partitions: dict[str, list[int]]) -> dict[str, Any]:
    return {"version": 2, "partitions": partitions, "adding_replicas": {}, "removing_replicas": {}}


def reassignment(*rows: tuple[str, int, int]) -> dict[str, Any]:
    """Topic, partition and its only broker."""
    moves = [{"topic": topic, "partition": partition, "replicas": [broker]} for topic, partition, broker in rows]
    return {"version": 1, "partitions": moves}


def reassigned(topic: str, *brokers: int) -> AlterPartitionReassignmentsRequest:
    """The first partitions of a topic, each to one broker."""
    rows = [ReassignablePartition(partition_index=index, replicas=[broker]) for index, broker in enumerate(brokers)]
    return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=rows)])


def deleted(*names: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=10_000)


def committed_as_of_old(group: str, topic: str, *offsets: int) -> OffsetCommitRequest:
    rows = [OffsetCommitRequestPartition(partition_index=i, committed_offset=one) for i, one in enumerate(offsets)]
    return OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=rows)])


ONE_BROKER: Story = {
    "start": start(0),
    "create": ask(create(new_topic("plain", 2)), 4),
    "create with settings": ask(
        create(new_topic("settled", 1, configs={"retention.ms": "86400000", "cleanup.policy": "compact"})), 4
    ),
    "create by assignment": ask(assigned("placed", 0, 0, 0), 4),
    "create as the broker wants": ask(create(new_topic("default", -1, -1)), 4),
    "create two at once": ask(create(new_topic("first", 1), new_topic("second", 1)), 4),
    "set a setting": ask(change(TOPIC, "plain", ("max.message.bytes", SET, "65536")), 0),
    "add to a setting": ask(change(TOPIC, "settled", ("cleanup.policy", APPEND, "delete")), 0),
    "take a setting away": ask(change(TOPIC, "plain", ("max.message.bytes", DELETE, None)), 0),
    "replace the settings": ask(replaced(TOPIC, "settled", segment_bytes="1048576"), 0),
    "set a broker's setting": ask(change(BROKER, "0", ("log.retention.ms", SET, "3600000")), 0),
    "set one of all brokers": ask(change(BROKER, "", ("log.segment.bytes", SET, "536870912")), 0),
    "take the broker's away": ask(change(BROKER, "0", ("log.retention.ms", DELETE, None)), 0),
    "more partitions": ask(more_partitions("plain", 4), 1),
    "more partitions by assignment": ask(more_partitions("placed", 5, 0, 0), 1),
    "a producer's id": ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 1),
    "a coordinator": ask(FindCoordinatorRequest(key="group", key_type=0), 1),
    "an offset of old": ask(committed_as_of_old("old", "plain", 17, 4), 0),
    "another offset of old": ask(committed_as_of_old("old", "plain", 18), 0),
    "delete": ask(deleted("plain"), 1),
    "delete one with settings": ask(deleted("settled", "first"), 1),
    "create again": ask(create(new_topic("plain", 1)), 4),
    "stop": stop(0),
    "start again": start(0),
    "stop again": stop(0),
}  # fmt: skip

TWO_BROKERS: Story = {  # Kafka takes changes from clients on the controller only
    "start": start(0),
    "another starts": start(1),
    "create on both": ask(assigned("both", 0, 1, 0, 1), 4),
    "create on the other": ask(assigned("other", 1), 4),
    "the other stops": stop(1),
    "create meanwhile": ask(assigned("meanwhile", 0), 4),
    "set a setting meanwhile": ask(change(TOPIC, "both", ("retention.ms", SET, "86400000")), 0),
    "the other returns": start(1),
    "more partitions on the other": ask(more_partitions("both", 5, 1), 1),
    "the controller stops": stop(0),
    "delete what the other has": ask(deleted("other"), 1, 1),
    "the first returns": start(0),
    "delete what both have": ask(deleted("both"), 1, 1),
    "a producer's id": ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 1),
    "the first stops": stop(0),
    "the other stops too": stop(1),
}

OLD_TOOLS: Story = {
    "a topic is there before any broker": write(
        ("/config/topics/early", {"version": 1, "config": {}}),
        ("/brokers/topics/early", {"version": 1, "partitions": {"0": [0]}}),
    ),
    "start": start(0),
    "create as of 2.7": write(
        ("/config/topics/t", {"version": 1, "config": {"retention.ms": "3600000"}}),
        ("/brokers/topics/t", topic_of_2_7({"0": [0], "1": [0]})),
    ),
    "create as of 0.8": write(("/brokers/topics/old", {"version": 1, "partitions": {"1": [0], "0": [0]}})),
    "create on brokers that are away": write(("/brokers/topics/away", topic_of_2_7({"0": [7, 8], "1": [8, 0]}))),
    "more partitions as of 2.7": write(("/brokers/topics/t", topic_of_2_7({"0": [0], "1": [0], "2": [0]}))),
    "change a setting": write(
        ("/config/topics/t", {"version": 1, "config": {"retention.ms": "7200000"}}),
        ("/config/changes/config_change_", {"version": 2, "entity_path": "topics/t"}),
    ),
    "change a setting as of 0.8": write(
        ("/config/topics/old", {"version": 1, "config": {"segment.bytes": "1048576"}}),
        ("/config/changes/config_change_", {"version": 1, "entity_type": "topics", "entity_name": "old"}),
    ),
    "settings of others": write(
        ("/config/clients/a%20client", {"version": 1, "config": {"producer_byte_rate": "1024"}}),
        ("/config/users/<default>/clients/<default>", {"version": 1, "config": {"consumer_byte_rate": "1024"}}),
        ("/config/changes/config_change_", {"version": 2, "entity_path": "clients/a%20client"}),
        ("/config/changes/config_change_", {"version": 2, "entity_path": "users/<default>/clients/<default>"}),
    ),
    "elect the preferred ones": write(
        (
            "/admin/preferred_replica_election",
            {"version": 1, "partitions": [{"topic": "t", "partition": 0}, {"topic": "none", "partition": 0}]},
        )
    ),
    "delete": write(("/admin/delete_topics/old", None)),
    "delete what is not there": write(("/admin/delete_topics/none", None)),
    "create it again": write(("/brokers/topics/old", topic_of_2_7({"0": [0]}))),
    "stop": stop(0),
    "delete meanwhile": write(("/admin/delete_topics/t", None)),
    "create meanwhile": write(("/brokers/topics/meanwhile", topic_of_2_7({"0": [0]}))),
    "start again": start(0),
    "stop again": stop(0),
}

REASSIGNED: Story = {  # to where they are: kafkalite's brokers do not copy records
    "start": start(0),
    "create": ask(assigned("t", 0, 0), 4),
    "reassign as of 2.7": write(("/admin/reassign_partitions", reassignment(("t", 0, 0), ("t", 1, 0)))),
    "reassign what is not there": write(("/admin/reassign_partitions", reassignment(("none", 0, 0), ("t", 9, 0)))),
    "reassign": ask(reassigned("t", 0), 0),
    "elect the preferred ones": write(
        ("/admin/preferred_replica_election", {"version": 1, "partitions": [{"topic": "t", "partition": 1}]})
    ),
    "stop": stop(0),
}

STORIES = {"one_broker": ONE_BROKER, "two_brokers": TWO_BROKERS, "old_tools": OLD_TOOLS, "reassigned": REASSIGNED}


def is_at_rest(tree: Tree) -> bool:
    """Whether nobody has anything left to do: what was asked for is done, and partitions are led where they can be."""
    live = {int(path.rpartition("/")[2]) for path in tree if path.startswith("/brokers/ids/")}
    if not live:
        return "/controller" not in tree
    if "/controller" not in tree or tree["/controller"].data["brokerid"] not in live:
        return False
    if any(path.startswith(IN_HAND) for path in tree):
        return False
    for path, node in tree.items():
        parts = path.split("/")
        if parts[1:3] == ["brokers", "topics"] and len(parts) == 4:
            for number, replicas in node.data["partitions"].items():
                state = tree.get(f"{path}/partitions/{number}/state")
                leader = NO_LEADER if state is None else state.data["leader"]
                if leader not in (live & set(replicas) or {NO_LEADER}):
                    return False
    return True
