"""Settings of groups (resource type 32) and subscriptions to metrics of clients (16), and what has settings."""

from __future__ import annotations

from typing import Any

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.idle_settings import IDLE
from kafkalite.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)
from tests.compatibility.differential.engine import Explained, Teller, in_versions_of_4_3, once_in_4_3

BROKER, METRICS, GROUP = 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
TIMEOUT = "consumer.session.timeout.ms"
INTERVAL = "consumer.heartbeat.interval.ms"

NO_SUCH_OPERATION = Explained(
    "an operation of IncrementalAlterConfigs that does not exist is refused with INVALID_REQUEST",
    "Kafka fails with UNKNOWN_SERVER_ERROR",
    "responses.*.error_code",
    "responses.*.error_message",
)


OF_GROUPS = [
    name
    for name in sorted({*BrokerConfig.by_name, *IDLE})
    if name.startswith(("group.", "share.", "offsets."))
    and not name.endswith((".min.isr", ".replication.factor", ".required.acks"))
]
"""Settings of a broker about groups; the reference has fewer replicas than a broker by itself, and Kafka 4 has no
offsets.commit.required.acks."""


def describe(kind: int, *names: str, keys: list[str] | None = None) -> DescribeConfigsRequest:
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys) for name in names
        ],
        include_synonyms=True,
    )


def change(
    kind: int, resource: str, *entries: tuple[str, int, str | None], validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    configs = [IncrementalAlterableConfig(name=name, config_operation=how, value=value) for name, how, value in entries]
    one = IncrementalAlterConfigsResource(resource_type=kind, resource_name=resource, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[one], validate_only=validate_only)


def replace(kind: int, resource: str, **values: str | None) -> AlterConfigsRequest:
    configs = [AlterableConfig(name=name.replace("_", "."), value=value) for name, value in values.items()]
    one = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=configs)
    return AlterConfigsRequest(resources=[one])


def settled(t: Teller, kind: int, name: str, label: str, key: str, value: str) -> None:
    """Describe a resource when its broker has heard of the change."""

    def is_there(answer: object) -> bool:
        (result,) = answer.results  # type: ignore[attr-defined]
        return any(one.name == key and one.value == value for one in result.configs)

    t.ask(label, describe(kind, name), 4, until=is_there)


@in_versions_of_4_3(1, 3, 4)
def of_a_group(t: Teller) -> None:
    name = t.name("g")
    t.ask("none of its own", describe(GROUP, name))
    t.ask("set", change(GROUP, name, (TIMEOUT, SET, " 50000 ")), 1)
    settled(t, GROUP, name, "one of its own", TIMEOUT, "50000")
    t.ask("one key", describe(GROUP, name, keys=[TIMEOUT, "nope"]))
    t.ask("replaced", replace(GROUP, name, share_isolation_level="read_committed"), 2)
    settled(t, GROUP, name, "another of its own", "share.isolation.level", "read_committed")
    t.ask("deleted", change(GROUP, name, ("share.isolation.level", DELETE, None)), 1)
    settled(t, GROUP, name, "none again", "share.isolation.level", "read_uncommitted")


@once_in_4_3
def of_a_broker(t: Teller) -> None:
    t.ask("about groups", describe(BROKER, "1", keys=OF_GROUPS), 4)


@once_in_4_3
def values_of_a_group(t: Teller) -> None:
    name = t.name("g")
    for key, value in (
        (TIMEOUT, "100"),
        (TIMEOUT, "70000"),
        (TIMEOUT, "x"),
        (TIMEOUT, ""),
        (TIMEOUT, "-1"),
        (TIMEOUT, "99999999999"),
        (INTERVAL, "1"),
        (INTERVAL, "60000"),
        ("consumer.assignment.interval.ms", "99999"),
        ("consumer.assignment.interval.ms", "-1"),
        ("nope", "1"),
        ("share.auto.offset.reset", "by_duration:PT1H"),
        ("share.auto.offset.reset", "by_duration:pt1h"),
        ("share.auto.offset.reset", "by_duration:P1DT2H3M4.5S"),
        ("share.auto.offset.reset", "by_duration:-PT1H"),
        ("share.auto.offset.reset", "by_duration:PT1H-61M"),
        ("share.auto.offset.reset", "by_duration:PT"),
        ("share.auto.offset.reset", "LATEST"),
        ("share.auto.offset.reset", " latest "),
        ("share.isolation.level", "X"),
        ("share.record.lock.duration.ms", "5"),
        ("share.record.lock.duration.ms", "70000"),
        ("share.delivery.count.limit", "99"),
        ("share.partition.max.record.locks", "5"),
        ("share.renew.acknowledge.enable", "maybe"),
        ("share.session.timeout.ms", "1"),
        ("share.heartbeat.interval.ms", "99999"),
        ("streams.num.standby.replicas", "7"),
        ("streams.initial.rebalance.delay.ms", "-2"),
        ("streams.session.timeout.ms", "99999"),
    ):
        t.ask(f"{key}={value!r}", change(GROUP, name, (key, SET, value), validate_only=True), 1)
    t.ask("several", change(GROUP, name, (TIMEOUT, SET, "1"), (INTERVAL, SET, "1"), validate_only=True), 1)
    t.ask("one unknown", change(GROUP, name, (TIMEOUT, SET, "x"), ("zz", SET, "1"), validate_only=True), 1)


@once_in_4_3
def operations(t: Teller) -> None:
    for kind, key, value in ((GROUP, TIMEOUT, "50000"), (METRICS, "metrics", "a"), (METRICS, "interval.ms", "1000")):
        name = t.name(f"{kind}")
        t.ask(f"{key}: append", change(kind, name, (key, APPEND, value)), 1)
        t.ask(f"{key}: subtract", change(kind, name, (key, SUBTRACT, value)), 1)
        t.ask(f"{key}: none such", change(kind, name, (key, 9, value)), 1, but=NO_SUCH_OPERATION)
        t.ask(f"{key}: to null", change(kind, name, (key, SET, None)), 1)
        t.ask(f"{key}: delete", change(kind, name, (key, DELETE, None)), 1)
        t.ask(f"{key}: delete an unknown one", change(kind, name, ("nope", DELETE, None)), 1)
        t.ask(f"{key}: twice", change(kind, name, (key, SET, value), (key, SET, value)), 1)
        t.ask(f"{key}: of no name", change(kind, "", (key, SET, value)), 1)
        t.ask(f"{key}: replace those of no name", replace(kind, "", **{key: value}), 2)
        t.ask(f"{key}: replace by null", replace(kind, name, **{key: None}), 2)
        t.ask(f"{key}: replace by an unknown one", replace(kind, name, nope="1"), 2)
        t.ask(f"{key}: describe those of no name", describe(kind, ""), 4)


@in_versions_of_4_3(1, 4)
def of_metrics(t: Teller) -> None:
    name = t.name("m")
    t.ask("none", describe(METRICS, name))
    entries = (
        ("metrics", SET, "a, b"),
        ("interval.ms", SET, "1000"),
        ("match", SET, "client_id=a.*, client_source_port=9"),
    )
    t.ask("set", change(METRICS, name, *entries), 1)
    settled(t, METRICS, name, "its own", "interval.ms", "1000")
    t.ask("replaced", replace(METRICS, name, metrics="*"), 2)
    settled(t, METRICS, name, "others", "metrics", "*")
    t.ask("deleted", change(METRICS, name, ("metrics", DELETE, None)), 1)
    settled(t, METRICS, name, "none again", "metrics", "")


@once_in_4_3
def values_of_metrics(t: Teller) -> None:
    name = t.name("m")
    for key, value in (
        ("interval.ms", "99"),
        ("interval.ms", "100"),
        ("interval.ms", "3600001"),
        ("interval.ms", "x"),
        ("interval.ms", ""),
        ("match", ""),
        ("match", "client_id"),
        ("match", "client_id="),
        ("match", "=a"),
        ("match", "client_id=["),
        ("match", "client_id=a=b"),
        ("match", "client_id=a,client_id=b"),
        ("match", " client_id = a "),
        ("match", "foo=bar"),
        ("metrics", ""),
        ("metrics", "*"),
        ("nope", "1"),
    ):
        t.ask(f"{key}={value!r}", change(METRICS, name, (key, SET, value), validate_only=True), 1)


@in_versions_of_4_3(0, 1)
def what_has_settings(t: Teller) -> None:
    group, metrics = t.name("a/b g"), t.name("m<default>")
    t.topic()
    t.ask("of a group", change(GROUP, group, (TIMEOUT, SET, "50000")), 1)
    t.ask("of metrics", change(METRICS, metrics, ("metrics", SET, "*")), 1)
    settled(t, GROUP, group, "the group described", TIMEOUT, "50000")
    settled(t, METRICS, metrics, "described", "metrics", "*")
    # Version 0 lists metrics alone. Kafka describes settings from its metadata cache, and lists the resources that its
    # DynamicConfigPublisher has passed on, a moment later.
    listed = {group, metrics} if t.v > 0 else {metrics}
    for kinds in ([], [2], [4], [METRICS], [GROUP], [GROUP, METRICS, GROUP], [0], [1], [3], [-1], [2, 7]):
        if t.v > 0 or not kinds:
            t.ask(
                f"of types {kinds}",
                ListConfigResourcesRequest(resource_types=kinds),
                until=None if kinds else lambda answer: listed <= _names(answer),
            )
    t.ask("no more of the group", change(GROUP, group, (TIMEOUT, DELETE, None)), 1)
    t.ask("no more of metrics", change(METRICS, metrics, ("metrics", DELETE, None)), 1)
    settled(t, GROUP, group, "the group without any", TIMEOUT, "45000")
    settled(t, METRICS, metrics, "none again", "metrics", "")
    t.ask("in the end", ListConfigResourcesRequest(), until=lambda answer: not listed & _names(answer))


def _names(answer: Any) -> set[str]:
    """Names in an answer to ListConfigResources."""
    return {one.resource_name for one in answer.config_resources}
