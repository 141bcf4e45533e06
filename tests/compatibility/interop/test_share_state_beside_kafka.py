"""Records of `__share_group_state` after the same stories here and at Kafka 4.3.0, as kafka-dump-log decodes them.

The stories are those of `tests/compatibility/differential` about share groups: acknowledgements of every kind, locks
that expire, deleted records, resets, aborted transactions, and the requests of leaders and group coordinators. Each
share partition has the same records in the same order, but for ids and times.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compatibility.differential import brokers
from tests.compatibility.interop.conftest import BrokerProcess
from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.reference_broker import ReferenceBroker

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"
VERSION = "4.3.0"
BROKER_SETTINGS = brokers.SETTINGS | {"auto.create.topics.enable": "false"}
FAMILIES = ("share_groups", "share_records")

_RECORD = re.compile(r"^\| key: (\{.*?\}) payload: (.*)$", re.MULTILINE)
_GROUP = re.compile(r'"groupId":"([^"]*)"')
_TOPIC_ID = re.compile(r'"topicId":"[\w-]{22}"')
_TIME = re.compile(r'"(\w+Timestamp)":\d+')


def live(bootstrap: str) -> None:
    """Tell all stories about share groups, each once in each of its versions."""
    host, _, port = bootstrap.rpartition(":")
    for family in FAMILIES:
        for story in brokers.stories(family).values():
            for version in story.versions:
                brokers.tell((host, int(port)), family, story, version)


def records(tools: JavaTools, data_dir: Path) -> dict[str, list[str]]:
    """Keys and values of each group, in the order of the log, without ids and times."""
    segments = ",".join(map(str, sorted(data_dir.glob("__share_group_state-*/*.log"))))
    decoded = ("--share-group-state-decoder", "--skip-record-metadata", "--files", segments)
    found: dict[str, list[str]] = {}
    for key, value in _RECORD.findall(tools("DumpLogSegments", *decoded, at=None)):
        group = _GROUP.search(key)
        assert group, key
        line = _TIME.sub(r'"\1":N', _TOPIC_ID.sub('"topicId":"ID"', f"{key} {value}"))
        found.setdefault(group[1], []).append(line)
    return found


def test_the_same_records(
    broker: BrokerProcess,
    kafka_4_3: ReferenceBroker,
    tools_4_3: Callable[[str], JavaTools],
    proved: Callable[[str, str, str], None],
) -> None:
    proved("kafka-dump-log", VERSION, "__share_group_state after share groups of every kind: every record as Kafka's")
    found = []
    for each in (broker, kafka_4_3):
        live(each.bootstrap)
        each.stop()
        found.append(records(tools_4_3(""), each.data_dir))
        each.start()
    ours, theirs = found
    assert len(theirs) > 5, theirs
    lines = [[f"{group} {line}" for group in sorted(one) for line in one[group]] for one in (ours, theirs)]
    differing = [line for line in difflib.ndiff(*lines) if not line.startswith("  ")]
    assert not differing, "\n".join(differing)  # - is here, + at Kafka
