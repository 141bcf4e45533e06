"""Settings of Kafka's broker that kafkalite has no use for.

They are described as Kafka describes them, since tools expect all of them, and checked as it checks them; the start
warns of those that are set (`known_properties`). A line of the table: name, type, whether it may be changed while the
broker runs, limits, and behind "=" the default; without "=" there is none.

Loaded only when a client asks for the settings of a broker, or when one of them is set.
Source: DescribeConfigs of Apache Kafka 3.9.1, kafka.server.KafkaConfig.
"""

# ruff: noqa: E501
# A setting stays one line.

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kafkalite.common.errors import ConfigError
from kafkalite.config.known_properties import no_effect
from kafkalite.config.listener_settings import PREFIX
from kafkalite.config.settings import ConfigEntry, ConfigSynonym, ConfigType, Setting, quoted

_DOC = "A setting of Kafka's that has no effect here."
_TABLE = """
alter.config.policy.class.name CLASS
alter.log.dirs.replication.quota.window.num INT =11
alter.log.dirs.replication.quota.window.size.seconds INT =1
auto.include.jmx.reporter BOOLEAN =true
background.threads INT dynamic >=1 =10
broker.heartbeat.interval.ms INT =2000
broker.session.timeout.ms INT =9000
client.quota.callback.class CLASS
control.plane.listener.name STRING
controller.listener.names STRING
controller.quorum.append.linger.ms INT =25
controller.quorum.bootstrap.servers LIST =
controller.quorum.election.backoff.max.ms INT =1000
controller.quorum.election.timeout.ms INT =1000
controller.quorum.fetch.timeout.ms INT =2000
controller.quorum.request.timeout.ms INT =2000
controller.quorum.retry.backoff.ms INT =20
controller.quorum.voters LIST =
controller.socket.timeout.ms INT =30000
create.topic.policy.class.name CLASS
delete.records.purgatory.purge.interval.requests INT =1
early.start.listeners STRING
eligible.leader.replicas.enable BOOLEAN =false
fetch.purgatory.purge.interval.requests INT =1000
group.consumer.assignors LIST =org.apache.kafka.coordinator.group.assignor.UniformAssignor,org.apache.kafka.coordinator.group.assignor.RangeAssignor
group.consumer.heartbeat.interval.ms INT =5000
group.consumer.max.heartbeat.interval.ms INT =15000
group.consumer.max.session.timeout.ms INT =60000
group.consumer.max.size INT =2147483647
group.consumer.min.heartbeat.interval.ms INT =5000
group.consumer.min.session.timeout.ms INT =45000
group.consumer.session.timeout.ms INT =45000
group.coordinator.append.linger.ms INT =10
group.coordinator.rebalance.protocols LIST =classic
group.coordinator.threads INT =1
group.share.delivery.count.limit INT =5
group.share.heartbeat.interval.ms INT =5000
group.share.max.groups SHORT =10
group.share.max.heartbeat.interval.ms INT =15000
group.share.max.record.lock.duration.ms INT =60000
group.share.max.session.timeout.ms INT =60000
group.share.max.size SHORT =200
group.share.min.heartbeat.interval.ms INT =5000
group.share.min.record.lock.duration.ms INT =15000
group.share.min.session.timeout.ms INT =45000
group.share.partition.max.record.locks INT =200
group.share.record.lock.duration.ms INT =30000
group.share.session.timeout.ms INT =45000
initial.broker.registration.timeout.ms INT =60000
inter.broker.protocol.version STRING =3.9-IV0
kafka.metrics.polling.interval.secs INT =10
kafka.metrics.reporters LIST =
log.dir.failure.timeout.ms LONG =30000
log.local.retention.bytes LONG dynamic >=-2 =-2
log.local.retention.ms LONG dynamic >=-2 =-2
log.message.format.version STRING =3.0-IV1
max.request.partition.size.limit INT =2000
metadata.log.dir STRING
metadata.log.max.record.bytes.between.snapshots LONG =20971520
metadata.log.max.snapshot.interval.ms LONG =3600000
metadata.log.segment.bytes INT =1073741824
metadata.log.segment.ms LONG =604800000
metadata.max.idle.interval.ms INT =500
metadata.max.retention.bytes LONG =104857600
metadata.max.retention.ms LONG =604800000
metric.reporters LIST dynamic =
metrics.num.samples INT =2
metrics.recording.level STRING =INFO
metrics.sample.window.ms LONG =30000
num.io.threads INT dynamic >=1 =8
process.roles LIST =
producer.purgatory.purge.interval.requests INT =1000
queued.max.requests INT =500
remote.fetch.max.wait.ms INT dynamic >=1 =500
remote.log.index.file.cache.total.size.bytes LONG dynamic >=1 =1073741824
remote.log.manager.copier.thread.pool.size INT =-1
remote.log.manager.copy.max.bytes.per.second LONG dynamic >=1 =9223372036854775807
remote.log.manager.copy.quota.window.num INT =11
remote.log.manager.copy.quota.window.size.seconds INT =1
remote.log.manager.expiration.thread.pool.size INT =-1
remote.log.manager.fetch.max.bytes.per.second LONG dynamic >=1 =9223372036854775807
remote.log.manager.fetch.quota.window.num INT =11
remote.log.manager.fetch.quota.window.size.seconds INT =1
remote.log.manager.task.interval.ms LONG =30000
remote.log.manager.thread.pool.size INT =10
remote.log.metadata.custom.metadata.max.bytes INT =128
remote.log.metadata.manager.class.name STRING =org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager
remote.log.metadata.manager.class.path STRING
remote.log.metadata.manager.impl.prefix STRING =rlmm.config.
remote.log.metadata.manager.listener.name STRING
remote.log.reader.max.pending.tasks INT =100
remote.log.reader.threads INT =10
remote.log.storage.manager.class.name STRING
remote.log.storage.manager.class.path STRING
remote.log.storage.manager.impl.prefix STRING =rsm.config.
remote.log.storage.system.enable BOOLEAN =false
request.timeout.ms INT =30000
sasl.client.callback.handler.class CLASS
sasl.kerberos.ticket.renew.jitter DOUBLE dynamic =0.05
sasl.login.class CLASS
sasl.mechanism.controller.protocol STRING =GSSAPI
security.providers STRING
socket.connection.setup.timeout.max.ms LONG =30000
socket.connection.setup.timeout.ms LONG =10000
ssl.engine.factory.class CLASS dynamic
ssl.keymanager.algorithm STRING dynamic =SunX509
ssl.protocol STRING dynamic =TLSv1.3
ssl.provider STRING dynamic
ssl.secure.random.implementation STRING dynamic
ssl.trustmanager.algorithm STRING dynamic =PKIX
telemetry.max.bytes INT =1048576
zookeeper.metadata.migration.enable BOOLEAN =false
zookeeper.ssl.crl.enable BOOLEAN =false
zookeeper.ssl.ocsp.enable BOOLEAN =false
"""


def _declared(line: str) -> Setting:
    head, has_default, default = line.partition(" =")
    name, type_name, *more = head.split()
    limits = {word[:2]: float(word[2:]) if "." in word else int(word[2:]) for word in more if word[0] in "<>"}
    setting = Setting(
        ConfigType[type_name],
        None,
        _DOC,
        at_least=limits.get(">="),
        at_most=limits.get("<="),
        dynamic="dynamic" in more,
    )
    setting.name = name
    setting.default_text = default if has_default else None
    return setting


IDLE: Mapping[str, Setting] = {each.name: each for each in map(_declared, _TABLE.strip().splitlines())}


class Given(Protocol):
    """The settings of a broker, as far as they were set."""

    explicit: Mapping[str, str]
    dynamic: Mapping[str, str]
    dynamic_default: Mapping[str, str]

    def given(self, *names: str) -> list[ConfigSynonym]: ...

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]: ...


_OF_JAVA = ("metric.reporters", "ssl.engine.factory.class")


def checked(name: str, text: str, honoured: Mapping[str, Setting]) -> str:
    """The warning that a property has no effect. Raises ConfigError for a value that Kafka would not take."""
    setting = IDLE.get(name)
    try:
        if setting is not None:
            setting.parse(text)
    except ValueError as fault:
        raise ConfigError(f"{name}={quoted(text)} {fault}") from None
    return no_effect(name, honoured)


def refusal(name: str, text: str) -> str | None:
    """Why a running broker cannot take it, although it is dynamic."""
    return f"{name}={text}: kafkalite runs no Java classes" if name in _OF_JAVA and text else None


def describe(config: Given, honoured: Mapping[str, Setting]) -> list[ConfigEntry]:
    """All of them, and then the names that were given and that no broker knows: their values are not told, for a plugin
    may keep a secret there. `honoured` are the settings that have an effect."""
    entries = []
    for setting in IDLE.values():
        synonyms = config.synonyms(setting.name)
        value = synonyms[0].value if synonyms else None
        entries.append(ConfigEntry.of(setting, value, synonyms, read_only=not setting.dynamic))
    for name in dict.fromkeys((*config.explicit, *config.dynamic_default, *config.dynamic)):
        if name not in honoured and name not in IDLE and not name.startswith(PREFIX):
            unknown = tuple(one._replace(value=None) for one in config.given(name))
            entries.append(ConfigEntry(name, None, unknown[0].source, True, True, ConfigType.UNKNOWN, "", unknown))
    return entries
