"""confluent-kafka's AdminClient: topics, partitions, records, configs, the cluster, groups and their offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

SECONDS = 10


def refusal(future: Any) -> int:
    """The error code that an admin future fails with."""
    with pytest.raises(KafkaException) as refused:
        future.result(SECONDS)
    return refused.value.args[0].code()


@pytest.mark.parametrize("kind", list(ElectionType))
def test_an_election_is_not_needed(confluent: Any, topic: str, kind: ElectionType) -> None:
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 9)]
    found = confluent.admin().elect_leaders(kind, asked).result(SECONDS)
    assert {(one.topic, one.partition): error.code() for one, error in found.items()} == {
        (topic, 0): KafkaError.ELECTION_NOT_NEEDED,
        (topic, 9): KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
    everything = confluent.admin().elect_leaders(kind, None).result(SECONDS)
    assert set(everything) == set()


def config_of(admin: Any, kind: Any, name: str) -> dict[str, ConfigEntry]:
    resource = ConfigResource(kind, name)
    return admin.describe_configs([resource])[resource].result(SECONDS)


def test_a_topic_is_created_described_listed_and_deleted(
    confluent: Any, unique: Callable[[str], str], until: Callable[..., Any]
) -> None:
    admin = confluent.admin()
    name = unique("life")
    admin.create_topics([NewTopic(name, 4, 1, config={"retention.ms": "3600000"})])[name].result(SECONDS)

    until(lambda: name in admin.list_topics(timeout=SECONDS).topics, "the topic in the list")
    told = admin.describe_topics(TopicCollection([name]))[name].result(SECONDS)
    assert told.name == name
    assert not told.is_internal
    assert [p.id for p in told.partitions] == [0, 1, 2, 3]
    for partition in told.partitions:
        assert partition.leader is not None
        assert [n.id for n in partition.replicas] == [n.id for n in partition.isr] == [partition.leader.id]
    assert str(told.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA" or told.topic_id is not None
    assert refusal(admin.create_topics([NewTopic(name, 1, 1)])[name]) == KafkaError.TOPIC_ALREADY_EXISTS

    admin.delete_topics([name])[name].result(SECONDS)

    until(lambda: name not in admin.list_topics(timeout=SECONDS).topics, "the topic to be gone")
    assert refusal(admin.delete_topics([name])[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_deleted_topic_comes_back_empty(confluent: Any, topic: str, until: Callable[..., Any]) -> None:
    admin = confluent.admin()
    confluent.send(topic, [{"value": b"old"}] * 3)
    admin.delete_topics([topic])[topic].result(SECONDS)
    until(lambda: topic not in admin.list_topics(timeout=SECONDS).topics, "the topic to be gone")

    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(SECONDS)
    until(lambda: topic in admin.list_topics(timeout=SECONDS).topics, "the topic to be back")

    assert confluent.send(topic, [{"value": b"new"}])[0].offset() == 0
    assert [m.value() for m in confluent.read(topic, 1)] == [b"new"]


def test_validate_only_changes_nothing(confluent: Any, unique: Callable[[str], str], topic: str) -> None:
    admin = confluent.admin()
    name = unique("dry")
    admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(SECONDS)
    admin.create_partitions([NewPartitions(topic, 5)], validate_only=True)[topic].result(SECONDS)
    listed = admin.list_topics(timeout=SECONDS).topics
    assert name not in listed
    assert len(listed[topic].partitions) == 1


def test_partitions_and_replication_by_the_brokers_defaults(
    confluent: Any, unique: Callable[[str], str], until: Callable[..., Any]
) -> None:
    admin = confluent.admin()
    name = unique("default")
    broker = str(next(iter(admin.list_topics(timeout=SECONDS).brokers)))
    default_partitions = int(config_of(admin, ResourceType.BROKER, broker)["num.partitions"].value)

    admin.create_topics([NewTopic(name)])[name].result(SECONDS)

    until(lambda: name in admin.list_topics(timeout=SECONDS).topics, "the topic in the list")
    assert len(admin.list_topics(timeout=SECONDS).topics[name].partitions) == default_partitions


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (("no spaces", 1, 1, {}), KafkaError.TOPIC_EXCEPTION),
        (("..", 1, 1, {}), KafkaError.TOPIC_EXCEPTION),
        (("x" * 250, 1, 1, {}), KafkaError.TOPIC_EXCEPTION),
        (("zero-partitions", 0, 1, {}), KafkaError.INVALID_PARTITIONS),
        (("many-replicas", 1, 99, {}), KafkaError.INVALID_REPLICATION_FACTOR),
        (("bad-value", 1, 1, {"retention.ms": "soon"}), KafkaError.INVALID_CONFIG),
        (("bad-policy", 1, 1, {"cleanup.policy": "burn"}), KafkaError.INVALID_CONFIG),
        (("bad-range", 1, 1, {"segment.bytes": "3"}), KafkaError.INVALID_CONFIG),
        (("bad-key", 1, 1, {"no.such.config": "1"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value[0][:16] if isinstance(value, tuple) else None,
)
def test_an_impossible_topic_is_refused(confluent: Any, wanted: tuple[Any, ...], code: int) -> None:
    name, partitions, replicas, config = wanted
    admin = confluent.admin()
    assert refusal(admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name]) == code
    assert name not in admin.list_topics(timeout=SECONDS).topics


def test_names_that_differ_in_a_dot_and_an_underscore_collide(
    bootstrap: str, create_topic: Callable[..., str], confluent: Any, unique: Callable[[str], str]
) -> None:
    stem = unique("metric").replace("-", "")
    create_topic(bootstrap, f"{stem}.a")
    name, admin = f"{stem}_a", confluent.admin()
    assert refusal(admin.create_topics([NewTopic(name, 1, 1)])[name]) == KafkaError.TOPIC_EXCEPTION


def test_a_topic_gets_more_partitions_and_never_fewer(topic: str, confluent: Any, until: Callable[..., Any]) -> None:
    admin = confluent.admin()
    confluent.send(topic, [{"value": b"0"}])

    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(SECONDS)

    def three_led() -> bool:
        partitions = admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions
        return len(partitions) == 3 and all(p.leader >= 0 for p in partitions.values())

    until(three_led, "three partitions with leaders")
    assert confluent.send(topic, [{"value": b"2", "partition": 2}])[0].offset() == 0
    assert confluent.read(topic, 1)[0].value() == b"0"
    assert refusal(admin.create_partitions([NewPartitions(topic, 3)])[topic]) == KafkaError.INVALID_PARTITIONS
    assert refusal(admin.create_partitions([NewPartitions(topic, 2)])[topic]) == KafkaError.INVALID_PARTITIONS
    nowhere = admin.create_partitions([NewPartitions("nowhere", 2)])["nowhere"]
    assert refusal(nowhere) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_topic_configs_tell_value_and_source(bootstrap: str, create_topic: Callable[..., str], confluent: Any) -> None:
    topic = create_topic(bootstrap, retention_ms=7_200_000, cleanup_policy="compact,delete")
    config = config_of(confluent.admin(), ResourceType.TOPIC, topic)
    assert config["retention.ms"].value == "7200000"
    assert config["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert not config["retention.ms"].is_default
    assert config["cleanup.policy"].value == "compact,delete"
    assert config["segment.bytes"].value == "1073741824"
    assert config["segment.bytes"].is_default
    assert not config["segment.bytes"].is_read_only and not config["segment.bytes"].is_sensitive
    defaults = {
        "compression.type": "producer",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "segment.ms": "604800000",
        "delete.retention.ms": "86400000",
        "min.cleanable.dirty.ratio": "0.5",
        "index.interval.bytes": "4096",
        "unclean.leader.election.enable": "false",
    }
    assert {name: config[name].value for name in defaults} == defaults


def test_configs_are_altered_one_by_one(topic: str, confluent: Any, until: Callable[..., Any]) -> None:
    admin = confluent.admin()

    def alter(*changes: tuple[str, str | None, AlterConfigOpType], validate_only: bool = False) -> Any:
        entries = [ConfigEntry(name, value, incremental_operation=op) for name, value, op in changes]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        return admin.incremental_alter_configs([resource], validate_only=validate_only)[resource]

    def value_is(name: str, value: str) -> None:
        until(lambda: config_of(admin, ResourceType.TOPIC, topic)[name].value == value, f"{name}={value}")

    alter(
        ("retention.ms", "1000000", AlterConfigOpType.SET),
        ("max.message.bytes", "2000", AlterConfigOpType.SET),
        ("cleanup.policy", "compact", AlterConfigOpType.APPEND),
    ).result(SECONDS)
    value_is("retention.ms", "1000000")
    value_is("max.message.bytes", "2000")
    value_is("cleanup.policy", "delete,compact")
    alter(
        ("retention.ms", None, AlterConfigOpType.DELETE), ("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    ).result(SECONDS)
    value_is("retention.ms", "604800000")
    value_is("cleanup.policy", "compact")
    value_is("max.message.bytes", "2000")
    alter(("max.message.bytes", "3000", AlterConfigOpType.SET), validate_only=True).result(SECONDS)
    value_is("max.message.bytes", "2000")
    assert refusal(alter(("retention.ms", "later", AlterConfigOpType.SET))) == KafkaError.INVALID_CONFIG
    assert refusal(alter(("no.such.config", "1", AlterConfigOpType.SET))) == KafkaError.INVALID_CONFIG
    assert refusal(alter(("retention.ms", "1", AlterConfigOpType.APPEND))) == KafkaError.INVALID_CONFIG


def test_the_old_alter_configs_replaces_them_all(topic: str, confluent: Any, until: Callable[..., Any]) -> None:
    admin = confluent.admin()

    def replace(**config: str) -> Any:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=settings)
        with pytest.warns(DeprecationWarning, match="incremental_alter_configs"):
            return admin.alter_configs([resource])[resource]

    def changed() -> dict[str, str]:
        config = config_of(admin, ResourceType.TOPIC, topic)
        return {n: e.value for n, e in config.items() if e.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}

    replace(retention_ms="5000", segment_bytes="1048576").result(SECONDS)
    until(lambda: changed() == {"retention.ms": "5000", "segment.bytes": "1048576"}, "both configs")
    replace(flush_messages="10").result(SECONDS)
    until(lambda: changed() == {"flush.messages": "10"}, "only the last config")
    assert refusal(replace(retention_ms="never")) == KafkaError.INVALID_CONFIG


def test_a_changed_limit_takes_effect(topic: str, confluent: Any, until: Callable[..., Any]) -> None:
    admin = confluent.admin()
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(SECONDS)
    config = "max.message.bytes"
    until(lambda: config_of(admin, ResourceType.TOPIC, topic)[config].value == "1000", f"{config}=1000")
    answers: list[Any] = []
    producer = confluent.producer()
    producer.produce(topic, b"x" * 2000, on_delivery=lambda error, message: answers.append(error))
    producer.flush(SECONDS)
    assert [error.code() for error in answers] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_the_cluster_and_its_broker(bootstrap: str, confluent: Any) -> None:
    admin = confluent.admin()
    cluster = admin.describe_cluster().result(SECONDS)
    assert len(cluster.cluster_id) == 22
    assert cluster.controller is not None
    by_address = {f"{node.host}:{node.port}": node for node in cluster.nodes}
    node = by_address[bootstrap.replace("localhost", "127.0.0.1")]
    metadata = admin.list_topics(timeout=SECONDS)
    assert metadata.cluster_id == cluster.cluster_id
    assert set(metadata.brokers) == {each.id for each in cluster.nodes}
    config = config_of(admin, ResourceType.BROKER, str(node.id))
    assert config["log.segment.bytes"].value == "1073741824"
    assert config["log.segment.bytes"].is_default
    broker_id = config.get("node.id") or config["broker.id"]
    assert broker_id.value == str(node.id)
    assert broker_id.is_read_only


def test_groups_are_listed_described_and_deleted(
    topic: str, confluent: Any, unique: Callable[[str], str], until: Callable[..., Any]
) -> None:
    admin = confluent.admin()
    group = unique("listed")
    consumer = confluent.consumer(group_id=group, client_id="the-only-one")
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.05) or consumer.assignment(), "the member to be assigned")

    def listed(**only: Any) -> dict[str, Any]:
        result = admin.list_consumer_groups(**only).result(SECONDS)
        assert not result.errors
        return {found.group_id: found for found in result.valid}

    assert listed()[group].state == ConsumerGroupState.STABLE
    assert not listed()[group].is_simple_consumer_group
    assert group in listed(states={ConsumerGroupState.STABLE})
    assert group not in listed(states={ConsumerGroupState.EMPTY})
    told = admin.describe_consumer_groups([group])[group].result(SECONDS)
    (member,) = told.members
    assert (member.client_id, member.host) == ("the-only-one", "/127.0.0.1")
    assert member.member_id.startswith("the-only-one-")
    assert member.assignment.topic_partitions == [TopicPartition(topic, 0)]
    assert told.coordinator is not None

    confluent.open.remove(consumer)
    consumer.close()

    until(lambda: listed()[group].state == ConsumerGroupState.EMPTY, "the group to be empty")
    admin.delete_consumer_groups([group])[group].result(SECONDS)
    assert group not in listed()
    assert refusal(admin.delete_consumer_groups([group])[group]) == KafkaError.GROUP_ID_NOT_FOUND
    unknown = admin.describe_consumer_groups([group])[group].result(SECONDS)
    assert (unknown.state, unknown.members) == (ConsumerGroupState.DEAD, [])


def test_group_offsets_are_altered_listed_and_used(topic: str, confluent: Any, unique: Callable[[str], str]) -> None:
    admin = confluent.admin()
    group = unique("moved")
    confluent.send(topic, [{"value": b"%d" % n} for n in range(10)])

    moved = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 7)])])
    assert moved[group].result(SECONDS).topic_partitions[0].error is None

    asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])]
    told = admin.list_consumer_group_offsets(asked)[group].result(SECONDS).topic_partitions
    assert [(p.topic, p.partition, p.offset) for p in told] == [(topic, 0, 7)]
    everything = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(SECONDS)
    assert [(p.topic, p.partition, p.offset) for p in everything.topic_partitions] == [(topic, 0, 7)]
    consumer = confluent.consumer(group_id=group)
    consumer.subscribe([topic])
    assert [m.value() for m in confluent.take(consumer, 3)] == [b"7", b"8", b"9"]
    unknown = [ConsumerGroupTopicPartitions(unique("unknown"), [TopicPartition(topic, 0)])]
    (future,) = admin.list_consumer_group_offsets(unknown).values()
    assert [p.offset for p in future.result(SECONDS).topic_partitions] == [-1001]


def test_records_before_an_offset_are_deleted(topic: str, confluent: Any) -> None:
    admin = confluent.admin()
    confluent.send(topic, [{"value": b"%d" % n} for n in range(20)])
    partition = TopicPartition(topic, 0, 12)

    assert admin.delete_records([partition])[partition].result(SECONDS).low_watermark == 12

    consumer = confluent.consumer()
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS) == (12, 20)
    earliest = TopicPartition(topic, 0)
    assert admin.list_offsets({earliest: OffsetSpec.earliest()})[earliest].result(SECONDS).offset == 12
    consumer.assign([TopicPartition(topic, 0, 3)])  # before the start: auto.offset.reset=earliest
    assert confluent.take(consumer, 1)[0].value() == b"12"
    too_far = TopicPartition(topic, 0, 21)
    assert refusal(admin.delete_records([too_far])[too_far]) == KafkaError.OFFSET_OUT_OF_RANGE
    all_of_it = TopicPartition(topic, 0, -1)
    assert admin.delete_records([all_of_it])[all_of_it].result(SECONDS).low_watermark == 20
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=SECONDS) == (20, 20)
    assert confluent.send(topic, [{"value": b"20"}])[0].offset() == 20
