"""A topic's configuration over a broker's."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.settings import INT_MAX, ConfigSource, ConfigType
from kafkalite.config.topic_config import TopicConfig


def load(**properties: object) -> BrokerConfig:
    return BrokerConfig.load({name.replace("_", "."): str(value) for name, value in properties.items()})


def test_a_topics_default_is_the_first_synonym_that_is_set():
    assert TopicConfig.build({}, load(**{"log.retention.hours": 1})).retention_ms == 3_600_000
    assert TopicConfig.build({}, load(**{"log.retention.hours": 1, "log.retention.minutes": 2})).retention_ms == 120_000
    assert TopicConfig.build({}, load(**{"log.retention.minutes": 2, "log.retention.ms": 3})).retention_ms == 3
    assert TopicConfig.build({}, load(**{"log.retention.hours": -1})).retention_ms == -1
    assert TopicConfig.build({"retention.ms": "9"}, load(**{"log.retention.ms": 3})).retention_ms == 9
    assert (
        TopicConfig.build({}, load(**{"log.roll.hours": 2, "log.roll.jitter.hours": 1})).segment_jitter_ms == 3_600_000
    )
    assert TopicConfig.build({}, load(**{"log.flush.scheduler.interval.ms": 7})).flush_ms == 7
    limited = TopicConfig.build(
        {"message.timestamp.difference.max.ms": "5", "message.timestamp.after.max.ms": "6"}, load()
    )
    assert (limited.message_timestamp_before_max_ms, limited.message_timestamp_after_max_ms) == (5, 6)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("retention.ms", "soon", "Invalid value 'soon' for retention.ms: must be an integer of at least -1"),
        ("retention.millis", "5", "Unknown topic config name: 'retention.millis'"),
        (
            "min.insync.replicas",
            "0",
            "Invalid value '0' for min.insync.replicas: must be an integer from 1 to 2147483647",
        ),
        ("remote.storage.enable", "true", "remote.storage.enable can only be false: there is no tiered storage here"),
        ("max.compaction.lag.ms", "1", None),
    ],
)
def test_a_topics_bad_setting_is_refused_with_the_reason(name, value, message):
    with pytest.raises(KafkaError) as caught:
        TopicConfig.check({name: value, "min.compaction.lag.ms": "2"}, load())
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert message is None or caught.value.message == message


def test_settings_of_kafka_that_have_no_effect_are_taken_for_topics():
    given = {"message.format.version": "3.0-IV1", "remote.storage.enable": "false", "local.retention.ms": "-2"}
    assert TopicConfig.build(given, load()) == TopicConfig()


def test_throttled_replicas_are_of_the_topic_alone():
    name = "leader.replication.throttled.replicas"
    (entry,) = (each for each in TopicConfig.describe({}, load()) if each.name == name)
    assert (entry.value, entry.type, entry.source, entry.synonyms) == (
        "",
        ConfigType.LIST,
        ConfigSource.DEFAULT_CONFIG,
        (),
    )
    (entry,) = (each for each in TopicConfig.describe({name: "0:1, 1:2"}, load()) if each.name == name)
    assert (entry.value, entry.source) == ("0:1,1:2", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert TopicConfig.build({name: "*"}, load()).leader_replication_throttled_replicas == ("*",)


def test_describing_tells_where_a_value_comes_from_as_kafka_does():
    static = {"log.retention.ms": "5", "compression.type": "zstd"}
    broker = BrokerConfig.load(static, {"compression.type": "lz4"}, {"compression.type": "gzip"})
    entries = {entry.name: entry for entry in TopicConfig.describe({"cleanup.policy": "compact , delete"}, broker)}
    policy = entries["cleanup.policy"]
    assert (policy.value, policy.source, policy.type) == (
        "compact,delete",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigType.LIST,
    )
    assert [tuple(each) for each in policy.synonyms] == [
        ("cleanup.policy", "compact,delete", 1),
        ("log.cleanup.policy", "delete", 5),
    ]
    assert [tuple(each) for each in entries["retention.ms"].synonyms] == [
        ("log.retention.ms", "5", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert [each.source for each in entries["compression.type"].synonyms] == [2, 3, 4, 5]
    assert entries["compression.type"].value == "lz4"
    # Kafka names no source for segment.ms while only log.roll.hours has a value
    assert (entries["segment.ms"].value, entries["segment.ms"].is_default, entries["segment.ms"].synonyms) == (
        "604800000",
        True,
        (),
    )
    assert not any(entry.read_only or entry.sensitive for entry in entries.values())
    assert len(entries) == len(TopicConfig.settings) + 6, "and those of tiered storage, and the version of the format"
    assert entries["message.format.version"].value == "3.0-IV1"

    of_broker = {entry.name: entry for entry in broker.describe()}
    assert of_broker["listeners"].value == "PLAINTEXT://127.0.0.1:9092" and not of_broker["listeners"].read_only
    assert of_broker["compression.type"].source is ConfigSource.DYNAMIC_BROKER_CONFIG
    assert not of_broker["compression.type"].read_only
    assert of_broker["log.roll.ms"].value is None
    assert of_broker["max.connections"].value == str(INT_MAX)
