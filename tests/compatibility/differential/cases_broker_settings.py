"""Every setting that Kafka tells of a broker: how it is described, and whether it may be changed while running."""

from __future__ import annotations

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.idle_settings import IDLE
from kafkalite.config.settings import ConfigType, Setting
from kafkalite.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from tests.compatibility.differential.engine import Explained, Teller, once

BROKER, SET, DELETE = 4, 0, 1
OWN = (
    "console.command.config", "console.listener", "console.write", "java.security.auth.login.config",
    "kafkalite.record.validation", "metrics.listener", "producer.id.expiration.check.interval.ms", "zookeeper.digest",
    "zookeeper.sasl.mechanism", "zookeeper.sasl.password", "zookeeper.sasl.username",
)  # fmt: skip
OF_THE_PLACE = (  # given to one of the two alone, by those who start it
    "broker.id", "listeners", "log.cleaner.dedupe.buffer.size", "log.dirs", "node.id", "zookeeper.connect",
    "zookeeper.session.timeout.ms",
)  # fmt: skip
SAMPLES = {
    ConfigType.BOOLEAN: "true", ConfigType.STRING: "x", ConfigType.INT: "7", ConfigType.SHORT: "1",
    ConfigType.LONG: "70000", ConfigType.DOUBLE: "0.5", ConfigType.LIST: "a,b", ConfigType.CLASS: "x.Y",
    ConfigType.PASSWORD: "secret",
}  # fmt: skip


def at(names: tuple[str, ...], what: str) -> tuple[str, ...]:
    return tuple(f"results.*.configs.{name.replace('.', '_')}{what}" for name in names)


TOLD_TOO = Explained(
    "eleven settings more are described",
    "they are kafkalite's own, or internal to Kafka; their values are told to administrators only, as all are",
    *at(OWN, ".**"),
    *at(OWN, ""),
)
GIVEN = Explained(
    "what each of the two brokers is given to run here differs",
    "they have addresses and directories of their own",
    *at(OF_THE_PLACE, ".**"),
)
OTHER_DEFAULTS = Explained(
    "log.dir, socket.send.buffer.bytes and replica.socket.receive.buffer.bytes have other defaults",
    "/tmp/kafka-logs is lost with the next start of the machine; other buffers are faster (docs/performance.md)",
    *at(("log.dir", "socket.send.buffer.bytes", "replica.socket.receive.buffer.bytes"), ".**"),
)
OF_THE_AUTHORIZER = Explained(
    "settings of the authorizer are told",
    "Kafka's broker does not know them, so it hides them as it would a secret",
    *at(("allow.everyone.if.no.acl.found",), ".**"),
)
# compared with 4.3
OF_GROUPS = (
    "group.consumer.",
    "group.coordinator.",
    "group.share.",
    "group.streams.",
    "share.coordinator.",
    "share.fetch.",
)  # compared with 4.3
AS_IN_4_3 = Explained(
    "the settings of the newer protocols of groups are those of Kafka 4.3",
    "Kafka 3.9 has them as a preview, with other defaults",
    *at(tuple(f"{beginning}*" for beginning in OF_GROUPS), ""),
    *at(tuple(f"{beginning}*" for beginning in OF_GROUPS), ".**"),
)


@once
def all_that_there_are(t: Teller) -> None:
    one = DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[one], include_synonyms=True, include_documentation=False)
    t.ask("all", request, 4, but=(TOLD_TOO, GIVEN, OTHER_DEFAULTS, OF_THE_AUTHORIZER, AS_IN_4_3))


def told() -> list[Setting]:
    """The settings of Kafka, by name."""
    every = {each.name: each for each in BrokerConfig.settings if not each.dynamic_only} | dict(IDLE)
    return [every[name] for name in sorted(every) if name not in OWN and not name.startswith(OF_GROUPS)]


def change(broker: str, name: str, value: str | None, operation: int = SET) -> IncrementalAlterConfigsRequest:
    entry = IncrementalAlterableConfig(name=name, config_operation=operation, value=value)
    one = IncrementalAlterConfigsResource(resource_type=BROKER, resource_name=broker, configs=[entry])
    return IncrementalAlterConfigsRequest(resources=[one], validate_only=True)


@once
def each_of_them_changed(t: Teller) -> None:
    """To its default, where there is one: then it is the name alone that decides."""
    for setting in told():
        value = setting.default_text or SAMPLES[setting.type]
        t.ask(f"{setting.name} of this broker", change("1", setting.name, value), 1)
        t.ask(f"{setting.name} of all", change("", setting.name, value), 1)


@once
def values_that_cannot_be(t: Teller) -> None:
    for name, value in (
        ("num.io.threads", "many"),
        ("num.io.threads", "0"),
        ("num.io.threads", "17"),
        ("num.io.threads", "3"),
        ("background.threads", "21"),
        ("num.network.threads", "7"),
        ("num.recovery.threads.per.data.dir", "3"),
        ("num.replica.fetchers", "3"),
        ("log.cleaner.threads", "3"),
        ("metric.reporters", "a.B"),
        ("log.local.retention.ms", "-3"),
        ("ssl.client.auth", "sometimes"),
        ("principal.builder.class", "a.B"),
    ):
        t.ask(f"{name}={value}", change("1", name, value), 1)
    t.ask("deleting one that cannot be set", change("1", "broker.rack", None, DELETE), 1)


NO_SUCH_SETTING = Explained(
    "a setting of a listener that no listener can have is refused",
    "it would never count; Kafka keeps it",
    "responses.*.error_code",
    "responses.*.error_message",
)


@once
def names_that_no_broker_knows(t: Teller) -> None:
    """A plugin's, a topic's, and those of listeners."""
    for name in ("my.plugin", "retention.ms", "listener.name.plaintext.ssl.client.auth"):
        t.ask(f"{name} of this broker", change("1", name, "none"), 1)
        t.ask(f"{name} of all", change("", name, "none"), 1)
    t.ask("of a listener that all may have", change("", "listener.name.plaintext.max.connections", "3"), 1)
    for name, but in (
        ("listener.name.nope.ssl.client.auth", None),
        ("listener.name.plaintext.no.such", NO_SUCH_SETTING),
    ):
        t.ask(name, change("1", name, "none"), 1, but=but)
