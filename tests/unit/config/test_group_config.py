"""The settings of a group: over the broker's and within their bounds, refused in Kafka 4.3's words."""

from __future__ import annotations

import pytest

from kafkalite.common.errors import ConfigError, ErrorCode, KafkaError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.group_config import GroupConfig, GroupConfigs
from kafkalite.config.settings import ConfigSource

TIMEOUT = "consumer.session.timeout.ms"
INTERVAL = "consumer.heartbeat.interval.ms"
WIDE = BrokerConfig.load(
    {
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.max.heartbeat.interval.ms": "60000",
        "group.consumer.min.heartbeat.interval.ms": "100",
    }
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({TIMEOUT: "100"}, f"{TIMEOUT} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        ({TIMEOUT: "70000"}, f"{TIMEOUT} must be less than or equal to group.consumer.max.session.timeout.ms"),
        ({TIMEOUT: "x"}, f"Invalid value x for configuration {TIMEOUT}: Not a number of type INT"),
        ({TIMEOUT: ""}, f"Invalid value  for configuration {TIMEOUT}: Not a number of type INT"),
        ({TIMEOUT: "-1"}, f"Invalid value -1 for configuration {TIMEOUT}: Value must be at least 1"),
        ({TIMEOUT: "x", "zz": "1"}, "Unknown group config name: zz"),
        (
            {TIMEOUT: "1", INTERVAL: "1"},
            f"{INTERVAL} must be greater than or equal to group.consumer.min.heartbeat.interval.ms",
        ),
        (
            {"streams.num.standby.replicas": "7"},
            "streams.num.standby.replicas must be less than or equal to group.streams.max.standby.replicas",
        ),
        (
            {"share.isolation.level": "X"},
            "Invalid value X for configuration share.isolation.level: String must be one of: read_committed, "
            "read_uncommitted",
        ),
        (
            {"share.auto.offset.reset": "by_duration:-PT1H"},
            "Invalid value by_duration:-PT1H for configuration share.auto.offset.reset: Invalid value "
            "`by_duration:-PT1H` for configuration share.auto.offset.reset. The value must be either 'earliest', "
            "'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.",
        ),
        (
            {"share.renew.acknowledge.enable": "maybe"},
            "Invalid value maybe for configuration share.renew.acknowledge.enable: Expected value to be either true "
            "or false",
        ),
    ],
)
def test_a_value_is_refused_in_kafkas_words(settings: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError) as refused:
        GroupConfig.check(settings, BrokerConfig())
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_CONFIG, message)


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    for settings in ({TIMEOUT: "2000"}, {INTERVAL: "50000"}, {TIMEOUT: "2000", INTERVAL: "2000"}):
        with pytest.raises(KafkaError, match="must be greater than consumer"):
            GroupConfig.check(settings, WIDE)
    GroupConfig.check({TIMEOUT: "2000", INTERVAL: "1000"}, WIDE)
    GroupConfig.check({"share.auto.offset.reset": "by_duration:P1DT2H3M4.5S", TIMEOUT: " 50000 "}, BrokerConfig())


def test_a_value_out_of_bounds_counts_as_the_nearest() -> None:
    configs = GroupConfigs(WIDE)
    configs.update("g", {TIMEOUT: "2000", "nope": "1"})
    assert configs.of("g").consumer_session_timeout_ms == 2_000
    assert configs.of("h").consumer_session_timeout_ms == 45_000
    configs.reconfigure(BrokerConfig())
    assert configs.of("g").consumer_session_timeout_ms == 45_000
    configs.update("g", {TIMEOUT: "500000", "share.delivery.count.limit": "x"})
    assert configs.of("g").consumer_session_timeout_ms == 60_000
    assert configs.of("g").share_delivery_count_limit == 5
    configs.update("g", {})
    assert configs.of("g") is configs.of("h")


def test_a_description_names_the_sources_of_a_value() -> None:
    entries = {entry.name: entry for entry in GroupConfig.describe({TIMEOUT: " 50000 "}, WIDE)}
    timeout = entries[TIMEOUT]
    assert (timeout.value, timeout.source, timeout.read_only) == ("50000", ConfigSource.GROUP_CONFIG, False)
    assert [(one.name, one.value) for one in timeout.synonyms] == [(TIMEOUT, "50000"), (f"group.{TIMEOUT}", "45000")]
    assert entries["share.auto.offset.reset"].source is ConfigSource.DEFAULT_CONFIG
    assert entries["share.partition.max.record.locks"].value == "2000"


@pytest.mark.parametrize(
    "settings",
    [
        {"group.consumer.session.timeout.ms": "1000"},
        {"group.consumer.min.heartbeat.interval.ms": "99999"},
        {"group.consumer.assignment.interval.ms": "99999"},
        {"group.consumer.assignors": "sticky"},
        {"group.consumer.assignors": ""},
        {"group.consumer.migration.policy": "x"},
        {"group.coordinator.rebalance.protocols": "consumer"},
        {"group.coordinator.rebalance.protocols": "classic,foo"},
        {"group.consumer.max.heartbeat.interval.ms": "45000", "group.consumer.heartbeat.interval.ms": "45000"},
    ],
)
def test_settings_that_exclude_each_other_do_not_start(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig.load(settings)


def test_assignors_and_policies_have_several_names() -> None:
    package = "org.apache.kafka.coordinator.group.assignor."
    config = BrokerConfig.load(
        {
            "group.consumer.assignors": f"{package}RangeAssignor,uniform, range",
            "group.consumer.migration.policy": "Upgrade",
        }
    )
    assert config.group_consumer_assignors == ("range", "uniform")
    assert config.group_consumer_migration_policy == "upgrade"
