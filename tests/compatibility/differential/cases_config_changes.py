"""AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.compatibility.differential.asking import APPEND, DELETE, SET, SUBTRACT, TOPIC, change
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once

BROKER = 4


def alter(kind: int, name: str, configs: dict[str, str | None], **more: bool) -> AlterConfigsRequest:
    entries = [AlterableConfig(name=key, value=value) for key, value in configs.items()]
    one = AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)
    return AlterConfigsRequest(resources=[one], **more)


def see(t: Teller, label: str, topic: str, **expected: str) -> None:
    """Note some settings of a topic, when they have become what is expected."""
    keys = ["retention.ms", "cleanup.policy", "segment.bytes", *(key.replace("_", ".") for key in expected)]
    one = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=sorted(set(keys)))

    def arrived(answer: Any) -> bool:
        found = {entry.name: entry.value for entry in answer.results[0].configs}
        return all(found.get(key.replace("_", ".")) == value for key, value in expected.items())

    t.ask(label, DescribeConfigsRequest(resources=[one], include_synonyms=True), 4, until=arrived)


@every_version("AlterConfigs")
def replaced_as_a_whole(t: Teller) -> None:
    topic = t.topic(segment_bytes=2_000_000)
    t.ask("two settings", alter(TOPIC, topic, {"retention.ms": "5000", "cleanup.policy": "compact"}))
    see(t, "the third is back at its default", topic, retention_ms="5000", segment_bytes="1073741824")
    t.ask("only validated", alter(TOPIC, topic, {"retention.ms": "6000"}, validate_only=True))
    see(t, "nothing changed", topic, retention_ms="5000")
    t.ask("none", alter(TOPIC, topic, {}))
    see(t, "all are back", topic, retention_ms="-1")


BAD_VALUES: tuple[dict[str, str | None], ...] = (
    {"no.such.thing": "1"},
    {"retention.ms": "many"},
    {"retention.ms": "-2"},
    {"cleanup.policy": "burn"},
    {"segment.bytes": "1"},
    {"retention.ms": None},
    {"retention.ms": ""},
    {"": "1"},
    {"min.insync.replicas": "0"},
    {"retention.ms": "5000", "no.such.thing": "1"},
    {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
)


@in_versions(0, 2)
def values_that_cannot_be(t: Teller) -> None:
    topic = t.topic()
    for configs in BAD_VALUES:
        t.ask(f"{configs}", alter(TOPIC, topic, configs))
        t.ask(f"{configs}, only validated", alter(TOPIC, topic, configs, validate_only=True))
    see(t, "nothing changed", topic, retention_ms="-1")


@in_versions(0, 2)
def nothing_to_alter(t: Teller) -> None:
    t.ask("unknown topic", alter(TOPIC, t.name("none"), {"retention.ms": "1"}))
    t.ask("topic that cannot be", alter(TOPIC, "d/x", {"retention.ms": "1"}))
    t.ask("topic without a name", alter(TOPIC, "", {"retention.ms": "1"}))
    t.ask("unknown broker", alter(BROKER, "99", {"log.retention.ms": "1"}))
    t.ask("broker that is no number", alter(BROKER, "x", {"log.retention.ms": "1"}))
    for kind in (0, 1, 3, 99):
        t.ask(f"kind {kind}", alter(kind, "x", {"retention.ms": "1"}))
    t.ask("nothing", AlterConfigsRequest(resources=[]))


NEVER_ANSWERED = Explained(
    "a request that names a resource twice is answered, with INVALID_REQUEST for that resource",
    "Kafka's broker fails on it and never answers",
)


@in_versions(0, 2)
def the_same_twice(t: Teller) -> None:
    topic, other = t.topic(), t.topic("other")
    one = AlterConfigsResource(
        resource_type=TOPIC, resource_name=topic, configs=[AlterableConfig(name="retention.ms", value="1")]
    )
    two = AlterConfigsResource(
        resource_type=TOPIC,
        resource_name=other,
        configs=[AlterableConfig(name="retention.ms", value="1"), AlterableConfig(name="retention.ms", value="2")],
    )
    t.ask("a topic", AlterConfigsRequest(resources=[one, one]), but=NEVER_ANSWERED, may_hang=True)
    t.ask("a key", AlterConfigsRequest(resources=[two]), may_hang=True)


@every_version("IncrementalAlterConfigs")
def step_by_step(t: Teller) -> None:
    topic = t.topic(segment_bytes=2_000_000)
    t.ask("set", change(TOPIC, topic, ("retention.ms", SET, "5000")))
    see(t, "after set", topic, retention_ms="5000", segment_bytes="2000000")
    t.ask("append", change(TOPIC, topic, ("cleanup.policy", APPEND, "compact")))
    see(t, "after append", topic, cleanup_policy="delete,compact")
    t.ask("append again", change(TOPIC, topic, ("cleanup.policy", APPEND, "compact")))
    t.ask("subtract", change(TOPIC, topic, ("cleanup.policy", SUBTRACT, "delete"), ("retention.ms", DELETE, None)))
    see(t, "after subtract", topic, cleanup_policy="compact", retention_ms="-1")
    t.ask("only validated", change(TOPIC, topic, ("retention.ms", SET, "7"), validate_only=True))
    t.ask("delete what is not set", change(TOPIC, topic, ("retention.ms", DELETE, None)))
    t.ask("delete with a value", change(TOPIC, topic, ("segment.bytes", DELETE, "ignored")))
    see(t, "at the end", topic, segment_bytes="1073741824", retention_ms="-1")


TOLD_WHY = Explained(
    "an operation that there is not is refused with INVALID_REQUEST",
    "Kafka fails on it with UNKNOWN_SERVER_ERROR",
    "responses.*.error_code",
)


@in_versions(0, 1)
def steps_that_cannot_be(t: Teller) -> None:
    topic = t.topic()
    for key, operation, value in (
        ("retention.ms", APPEND, "1"),
        ("retention.ms", SUBTRACT, "1"),
        ("no.such.thing", SET, "1"),
        ("no.such.thing", DELETE, None),
        ("no.such.thing", APPEND, "1"),
        ("retention.ms", SET, None),
        ("cleanup.policy", APPEND, None),
        ("cleanup.policy", APPEND, "burn"),
        ("cleanup.policy", SUBTRACT, "delete"),
        ("cleanup.policy", SUBTRACT, "compact"),
        ("retention.ms", SET, "many"),
        ("retention.ms", SET, ""),
    ):
        t.ask(f"{key!r} {operation} {value}", change(TOPIC, topic, (key, operation, value)))
    for operation in (4, -1):
        t.ask(f"operation {operation}", change(TOPIC, topic, ("retention.ms", operation, "1")), but=TOLD_WHY)
    t.ask("a setting without a name", change(TOPIC, topic, ("", SET, "1")))
    t.ask("deleting it", change(TOPIC, topic, ("", DELETE, None)))
    twice = (("retention.ms", SET, "1"), ("retention.ms", DELETE, None))
    t.ask("one key twice", change(TOPIC, topic, *twice))
    t.ask("no steps", change(TOPIC, topic))
    t.ask("unknown topic", change(TOPIC, t.name("none"), ("retention.ms", SET, "1")))
    t.ask("unknown kind", change(3, topic, ("retention.ms", SET, "1")))


def see_broker(t: Teller, label: str, name: str, value: str | None, key: str) -> None:
    one = DescribeConfigsResource(resource_type=BROKER, resource_name=name, configuration_keys=[key])

    def arrived(answer: Any) -> bool:
        found = {entry.name: entry.value for entry in answer.results[0].configs}
        return found.get(key) == value

    t.ask(label, DescribeConfigsRequest(resources=[one], include_synonyms=True), 4, until=arrived)


@in_versions(1)
def settings_of_brokers(t: Teller) -> None:
    """Put back at the end: the broker is everybody's."""
    key = "log.cleaner.delete.retention.ms"
    t.ask("for this broker", change(BROKER, "1", (key, SET, "5000")))
    see_broker(t, "it is so", "1", "5000", key)
    t.ask("for all brokers", change(BROKER, "", (key, SET, "6000")))
    see_broker(t, "all brokers", "", "6000", key)
    see_broker(t, "its own wins", "1", "5000", key)
    topic = t.topic()
    one = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=["delete.retention.ms"])
    t.ask("a topic's default follows", DescribeConfigsRequest(resources=[one], include_synonyms=True), 4)
    t.ask("put back", change(BROKER, "1", (key, DELETE, None)))
    see_broker(t, "the one for all holds", "1", "6000", key)
    t.ask("put back for all", change(BROKER, "", (key, DELETE, None)))
    see_broker(t, "as it was", "1", "86400000", key)


@in_versions(1)
def settings_that_brokers_do_not_take(t: Teller) -> None:
    for broker in ("1", ""):
        for key, value in (
            ("num.partitions", "4"),
            ("log.retention.ms", "many"),
            ("message.max.bytes", "-5"),
            ("log.dir", "/x"),
            ("broker.id", "7"),
            ("log.cleaner.min.cleanable.ratio", "2"),
            ("compression.type", "LZ4"),
            ("log.retention.ms", None),
        ):
            t.ask(
                f"{key}={value} for {broker or 'all'}",
                change(BROKER, broker, (key, SET, value), validate_only=True),
            )
    t.ask("unknown broker", change(BROKER, "99", ("log.retention.ms", SET, "1")))
    t.ask("no number", change(BROKER, "x", ("log.retention.ms", SET, "1")))


@once
def names_that_no_broker_knows(t: Teller) -> None:
    entry = ("no.such.thing", SET, "1")
    t.ask("for this broker", change(BROKER, "1", entry, validate_only=True), 1)
    t.ask("for all", change(BROKER, "", entry, validate_only=True), 1)
