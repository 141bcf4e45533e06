"""DescribeConfigs: of topics, of the broker, of all brokers, and of what has none."""

from __future__ import annotations

from kafkalite.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions, once

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


def describe(kind: int, name: str, *keys: str, **more: bool) -> DescribeConfigsRequest:
    one = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    return DescribeConfigsRequest(resources=[one], **more)


IS_DEFAULT = Explained(
    "is_default of version 0 says which values are defaults",
    "Kafka 3.9 leaves it false for all of them",
    "results.*.configs.*.is_default",
)
TOLD_IN_VERSION_0 = (IS_DEFAULT,)


@every_version("DescribeConfigs")
def of_a_topic(t: Teller) -> None:
    topic = t.topic(retention_ms=5000, cleanup_policy="compact", min_cleanable_dirty_ratio="0.25", preallocate="FALSE")
    but = TOLD_IN_VERSION_0 if t.v == 0 else ()
    three = describe(TOPIC, topic, "retention.ms", "cleanup.policy", "segment.bytes")
    t.ask("three of its settings", three, but=but)
    t.ask("all", describe(TOPIC, topic), but=but)
    if t.v >= 1:
        t.ask("with synonyms", describe(TOPIC, topic, include_synonyms=True))
    if t.v >= 3:
        t.ask("with documentation", describe(TOPIC, topic, "retention.ms", include_documentation=True))


@in_versions(0, 1, 4)
def odd_keys(t: Teller) -> None:
    topic = t.topic()
    t.ask("unknown", describe(TOPIC, topic, "no.such.thing", "retention.ms"))
    t.ask("twice the same", describe(TOPIC, topic, "retention.ms", "retention.ms"))
    nothing = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=[])
    but = TOLD_IN_VERSION_0 if t.v == 0 else ()
    t.ask("an empty list", DescribeConfigsRequest(resources=[nothing]), but=but)
    t.ask("no resources", DescribeConfigsRequest(resources=[]))


@in_versions(0, 1, 4)
def what_has_no_settings(t: Teller) -> None:
    t.ask("unknown topic", describe(TOPIC, t.name("none")))
    t.ask("topic that cannot be", describe(TOPIC, "d/x"))
    t.ask("topic without a name", describe(TOPIC, ""))
    t.ask("unknown broker", describe(BROKER, "99"))
    t.ask("broker that is no number", describe(BROKER, "x"))
    for kind in (0, 1, 3, 99, -1):
        t.ask(f"kind {kind}", describe(kind, "x"))


BROKER_KEYS = (
    "log.retention.ms", "log.segment.bytes", "num.partitions", "message.max.bytes", "compression.type", "log.dir",
    "auto.create.topics.enable", "log.cleanup.policy", "min.insync.replicas", "group.min.session.timeout.ms",
    "offsets.topic.num.partitions", "num.network.threads", "log.message.timestamp.type", "log.roll.hours",
    "default.replication.factor", "log.cleaner.min.cleanable.ratio", "max.connections", "fetch.max.bytes",
    "log.flush.interval.messages", "group.max.size", "broker.rack", "offset.metadata.max.bytes",
)  # fmt: skip
WHERE_DATA_LIES = Explained(
    "log.dir defaults to ./kafkalite-data",
    "Kafka's default, /tmp/kafka-logs, is lost with the next start of the machine",
    "results.*.configs.log_dir.value",
    "results.*.configs.log_dir.synonyms.*.value",
)


@every_version("DescribeConfigs")
def of_the_broker(t: Teller) -> None:
    keys = BROKER_KEYS
    but = (WHERE_DATA_LIES, *(TOLD_IN_VERSION_0 if t.v == 0 else ()))
    t.ask("some of its settings", describe(BROKER, "1", *keys), but=but)
    if t.v >= 1:
        t.ask("with synonyms", describe(BROKER, "1", *keys, include_synonyms=True), but=but)


@in_versions(0, 4)
def of_all_brokers(t: Teller) -> None:
    t.ask("nothing was changed", describe(BROKER, ""))
    t.ask("with a key", describe(BROKER, "", "num.partitions"))


ONCE_IS_ENOUGH = Explained(
    "a resource that is named twice in a request is described once",
    "clients file the answers by name, and a small request must not bring an answer of megabytes",
    "results.* again.**",
    "results.* again",
)


@once
def several_at_once(t: Teller) -> None:
    topic, other = t.topic(), t.topic("other", retention_ms=77)
    keys = ["retention.ms"]
    wanted = [
        DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=keys)
        for name in (topic, t.name("none"), other)
    ]
    wanted.append(
        DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=["num.partitions"])
    )
    t.ask("topics and a broker", DescribeConfigsRequest(resources=wanted), 4)
    t.ask("one topic twice", DescribeConfigsRequest(resources=[wanted[0], wanted[0]]), 4, but=ONCE_IS_ENOUGH)


NO_LOGGERS = Explained(
    "loggers have no settings to describe",
    "they answer INVALID_REQUEST: levels are set at start",
    "results.*.**",
)
AS_IN_4_3 = Explained(
    "groups and subscriptions to client metrics have all their settings",
    "as in Kafka 4.3; Kafka 3.9 has none of a group without its new coordinator, and none of a subscription by default",
    "results.*.**",
)


@once
def newer_kinds(t: Teller) -> None:
    t.ask("loggers", describe(BROKER_LOGGER, "1", "kafka.server.KafkaApis"), 4, but=NO_LOGGERS)
    t.ask("client metrics", describe(CLIENT_METRICS, "x"), 4, but=AS_IN_4_3)
    t.ask("a group", describe(GROUP, "x"), 4, but=AS_IN_4_3)
