"""Requests of kadm and sarama's ClusterAdmin that are not about topics: offsets, log directories, reassignments."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from tests.compatibility.interop.golang import FIRST_BUILD_S, Go, pinned
from tests.compatibility.interop.stories import START_MS, create_topic, encounters, send
from tests.compatibility.interop.strangers import Seen

ECOSYSTEM = "Go"
ASKED = "DescribeLogDirs, AlterPartitionReassignments, ListPartitionReassignments, ElectLeaders, OffsetDelete"
LIBRARIES = {"kadm": "github.com/twmb/franz-go/pkg/kadm", "sarama": "github.com/IBM/sarama"}

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_administrator_looks_round(library: str, broker: Any, proved: Any, need: Any, cache: Any) -> None:
    proved(library, pinned("admin", LIBRARIES[library]), ASKED)
    program = Go(need("go"), cache("go")).build("admin")
    with encounters(broker) as meet:
        encounter = meet([program])
        topic, group = create_topic(encounter.confluent, "looked-at", 1), f"group-{uuid.uuid4().hex[:8]}"
        send(encounter.confluent, topic, [Seen(0, n, START_MS + n, None, b"%d" % n, ()) for n in range(10)])
        encounter.confluent.consumer(group_id=group).commit(offsets=[TopicPartition(topic, 0, 7)], asynchronous=False)
        facts = {fact["step"]: fact["is"] for fact in encounter.stranger.ask(library, topic=topic, group=group)}
    assert "does not exist" in facts.pop("deleted twice").lower()
    assert "replica assignment" in facts.pop("reassigned to nobody").lower().replace("_", " ")
    assert facts == {
        "directories": 1,
        "size": (broker.data_dir / f"{topic}-0" / f"{0:020}.log").stat().st_size,
        "reassignments": 0,
        "preferred": [84, 3],
        "unclean": [84, 3],
        "offsets left": 0,
    }
