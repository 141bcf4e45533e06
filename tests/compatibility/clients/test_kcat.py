"""kcat, as people debug with it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any


def test_metadata_names_broker_topic_and_leader(kcat: Any, bootstrap: str, topic: str) -> None:
    told = json.loads(kcat("-L", "-J", "-t", topic))
    brokers = {broker["id"]: broker["name"] for broker in told["brokers"]}
    assert bootstrap.replace("localhost", "127.0.0.1") in brokers.values()
    (found,) = told["topics"]
    assert found["topic"] == topic
    (partition,) = found["partitions"]
    leader = partition["leader"]
    assert leader in brokers
    assert partition == {"partition": 0, "leader": leader, "replicas": [{"id": leader}], "isrs": [{"id": leader}]}


def test_lines_in_lines_out(kcat: Any, topic: str) -> None:
    kcat("-P", "-t", topic, "-p", "0", typed="one\ntwo\nthree\n")
    assert kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q") == "one\ntwo\nthree\n"
    assert kcat("-C", "-t", topic, "-o", "-1", "-e", "-q") == "three\n"
    assert kcat("-C", "-t", topic, "-o", "1", "-c", "1", "-q") == "two\n"
    assert kcat("-C", "-t", topic, "-o", "end", "-e", "-q") == ""


def test_offsets_by_timestamp(kcat: Any, confluent: Any, topic: str) -> None:
    start_ms = int(time.time() * 1000) - 86_400_000
    confluent.send(topic, [{"value": b"x", "timestamp": start_ms + n} for n in range(10)])
    assert kcat("-Q", "-t", f"{topic}:0:{start_ms + 4}").split() == [topic, "[0]", "offset", "4"]
    from_four_to_seven = ("-o", f"s@{start_ms + 4}", "-o", f"e@{start_ms + 7}")
    assert kcat("-C", "-t", topic, *from_four_to_seven, "-f", "%o ", "-q").split() == ["4", "5", "6"]


def test_a_balanced_group_reads_and_the_next_goes_on(kcat: Any, topic: str, unique: Callable[[str], str]) -> None:
    group = unique("kcat")
    first_time = ("-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=100", "-q", "-e")
    kcat("-P", "-t", topic, typed="one\ntwo\n")
    assert kcat("-G", group, *first_time, topic) == "one\ntwo\n"
    kcat("-P", "-t", topic, typed="three\n")
    assert kcat("-G", group, *first_time, topic) == "three\n"


def test_idempotent_and_compressed(kcat: Any, topic: str) -> None:
    lines = "".join(f"{n}\n" for n in range(5000))
    kcat("-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", "-z", "lz4", typed=lines)
    assert kcat("-C", "-t", topic, "-e", "-q") == lines


def test_an_unknown_topic_is_said_to_be_unknown(kcat: Any, unique: Callable[[str], str]) -> None:
    said = kcat("-C", "-t", unique("nowhere"), "-e", "-X", "allow.auto.create.topics=false", check=False)
    assert "Unknown topic" in said
