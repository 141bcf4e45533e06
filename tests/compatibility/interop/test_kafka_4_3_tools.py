"""Kafka 4.3's tools for features, settings of groups and client metrics, at kafkalite."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_tools import JavaTools

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Java"
CLIENT = "kafka-clients and its tools"


@pytest.fixture
def tools(broker: BrokerProcess, tools_4_3: Callable[[str], JavaTools]) -> JavaTools:
    return tools_4_3(broker.bootstrap)


def level(tools: JavaTools, feature: str) -> int:
    described = tools("FeatureCommand", "describe")
    found = re.search(rf"Feature: {feature}\s.*FinalizedVersionLevel: (\d+)", described)
    assert found, described
    return int(found[1])


def test_features(tools: JavaTools, proved: Callable[[str, str, str], None], broker: BrokerProcess) -> None:
    proved(
        CLIENT,
        tools.version,
        "kafka-features: describe, downgrade, upgrade, refusals; kafka-metadata-quorum is refused",
    )
    assert level(tools, "group.version") == 1 and level(tools, "transaction.version") == 2
    tools("FeatureCommand", "downgrade", "--feature", "group.version=0")
    assert level(tools, "group.version") == 0
    broker.restart()
    assert level(tools, "group.version") == 0
    tools("FeatureCommand", "upgrade", "--feature", "group.version=1")
    assert level(tools, "group.version") == 1
    refused = tools("FeatureCommand", "upgrade", "--feature", "group.version=2", check=False)
    assert "Could not upgrade" in refused, refused
    refused = tools("MetadataQuorumCommand", "describe", "--status", check=False)
    assert "no Raft quorum" in refused, refused


def test_settings_of_groups_and_metrics(tools: JavaTools, proved: Callable[[str, str, str], None]) -> None:
    proved(CLIENT, tools.version, "kafka-configs of groups; kafka-client-metrics: alter, describe, list, delete")
    group = ["--entity-type", "groups", "--entity-name", "g 1"]
    tools("ConfigCommand", *group, "--alter", "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tools("ConfigCommand", *group, "--describe")
    assert "g 1" in tools("ConfigCommand", "--entity-type", "groups", "--describe")
    refused = tools("ConfigCommand", *group, "--alter", "--add-config", "consumer.session.timeout.ms=1", check=False)
    assert "must be greater than or equal to group.consumer.min.session.timeout.ms" in refused
    tools("ConfigCommand", *group, "--alter", "--delete-config", "consumer.session.timeout.ms")
    assert "=50000" not in tools("ConfigCommand", *group, "--describe")

    metrics = ["--name", "basic"]
    tools("ClientMetricsCommand", "--alter", *metrics, "--metrics", "org.apache.kafka.", "--interval", 1000)
    described = tools("ClientMetricsCommand", "--describe", *metrics)
    assert "metrics=org.apache.kafka." in described and "interval.ms=1000" in described
    assert tools("ClientMetricsCommand", "--list").split() == ["basic"]
    tools("ClientMetricsCommand", "--delete", *metrics)
    assert tools("ClientMetricsCommand", "--list").split() == []
