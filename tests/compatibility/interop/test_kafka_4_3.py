"""The reference of the new APIs, Apache Kafka 4.3.0, and its tools: what the stories beside it lean on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.reference_broker import ReferenceBroker

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def test_groups_of_both_protocols_are_listed_and_dumped(
    kafka_4_3: ReferenceBroker, tools_4_3: Callable[[str], JavaTools]
) -> None:
    tools = tools_4_3(kafka_4_3.bootstrap)
    tools.create_topic("read", 2)
    tools.produce("read", "a\nb\n")
    for protocol in ("classic", "consumer"):
        words = ["--group", protocol, "--command-property", f"group.protocol={protocol}"]
        assert sorted(tools.consume("read", 2, "--from-beginning", *words)) == ["a", "b"]
    listed = {tuple(line.split()) for line in tools("GroupsCommand", "--list").splitlines()[1:]}
    assert listed == {("classic", "Classic", "consumer"), ("consumer", "Consumer", "consumer")}
    described = tools("ConsumerGroupCommand", "--describe", "--group", "consumer", "--state", "--verbose")
    assert "uniform" in described
    assert "group.version" in tools("FeatureCommand", "describe")
    kafka_4_3.stop()
    segments = sorted(kafka_4_3.data_dir.glob("__consumer_offsets-*/*.log"))
    dumped = tools.dump_offsets(*segments)
    assert '"type":"3"' in dumped or '"type":3' in dumped, dumped
    kafka_4_3.start()
