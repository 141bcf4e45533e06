"""Properties of Kafka's brokers that `BrokerConfig` does not declare: idle settings, and names that Kafka knows.

Idle settings have no use in kafkalite. They are described as Kafka 3.9.1 describes them, those of groups as Kafka 4.3.0,
since tools expect all of them, and checked as it checks them. A line of their table: name, type, whether it may be
changed while the broker runs, limits, and behind "=" the default; without "=" there is none. The other names are those
that only Kafka 4.1 to 4.3 have, internal ones, and older ones that are still common in files. A start warns of each
that is set, and distinguishes them from misspelt names.

Loaded only when a client asks for the settings of a broker, or when such a property is set.
Source: DescribeConfigs of Apache Kafka 3.9.1; the output of kafka.server.KafkaConfig of 3.9.1, 4.1.0 and 4.3.0.
"""

# ruff: noqa: E501
# A setting stays one line.

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kafkalite.common.errors import ConfigError
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
group.coordinator.append.linger.ms INT >=-1 =-1
group.coordinator.background.threads INT >=1 =2
group.coordinator.cached.buffer.max.bytes INT dynamic >=524288 =1048588
group.coordinator.threads INT >=1 =4
initial.broker.registration.timeout.ms INT =60000
inter.broker.protocol.version STRING =3.9-IV0
kafka.metrics.polling.interval.secs INT =10
kafka.metrics.reporters LIST =
log.dir.failure.timeout.ms LONG =30000
log.local.retention.bytes LONG dynamic >=-2 =-2
log.local.retention.ms LONG dynamic >=-2 =-2
log.message.format.version STRING =3.0-IV1
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
share.coordinator.append.linger.ms INT >=-1 =-1
share.coordinator.cached.buffer.max.bytes INT dynamic >=524288 =1048588
share.coordinator.load.buffer.size INT >=1 =5242880
share.coordinator.state.topic.compression.codec INT =0
share.coordinator.threads INT >=1 =1
share.fetch.purgatory.purge.interval.requests INT =1000
socket.connection.setup.timeout.max.ms LONG =30000
socket.connection.setup.timeout.ms LONG =10000
ssl.engine.factory.class CLASS dynamic
ssl.keymanager.algorithm STRING dynamic =SunX509
ssl.protocol STRING dynamic =TLSv1.3
ssl.provider STRING dynamic
ssl.secure.random.implementation STRING dynamic
ssl.trustmanager.algorithm STRING dynamic =PKIX
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
_OTHER_NAMES = """
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms advertised.host.name advertised.port
config.providers controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.quorum.auto.join.enable controller.quorum.fetch.max.bytes controller.quorum.fetch.snapshot.max.bytes
cordoned.log.dirs follower.fetch.last.tiered.offset.enable group.coordinator.new.enable group.share.enable
group.share.initialize.retry.interval.ms group.share.persister.class.name host.name
internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
log.initial.task.delay.ms metadata.log.segment.min.bytes port quota.consumer.default
quota.producer.default remote.list.offsets.request.timeout.ms remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope
server.max.startup.time.ms transaction.two.phase.commit.enable
unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
zookeeper.metadata.migration.min.batch.size zookeeper.sync.time.ms
"""
KNOWN = frozenset((*IDLE, *_OTHER_NAMES.split()))

# The reason why a property has no effect, by the beginning of its name; the first match counts.
_REASONS = {
    "zookeeper.": "kafkalite's client of ZooKeeper has no such setting",
    "process.roles": "kafkalite is one node that needs no KRaft controller",
    "controller.": "kafkalite is one node that needs no KRaft controller",
    "metadata.": "kafkalite is one node that needs no KRaft metadata log",
    "num.io.threads": "kafkalite answers requests on its network loops",
    "background.threads": "kafkalite does its background work on its own loop",
    "queued.max.requests": "a connection has one request in progress at a time",
    "inter.broker.protocol.version": "kafkalite's brokers have one protocol version",
    "ssl.engine.factory.class": "kafkalite runs no Java classes",
    **dict.fromkeys(
        ("ssl.protocol", "ssl.provider", "ssl.keymanager.", "ssl.trustmanager.", "ssl.secure.random.", "security.prov"),
        "it selects a part of Java's TLS, and kafkalite uses OpenSSL",
    ),
    "auto.include.jmx.reporter": "there is no JMX without a JVM",
}
_PREFIXES = ("remote.log.", "rlmm.config.", "rsm.config.", "sasl.", "zookeeper.")
_OF_JAVA = ("metric.reporters", "ssl.engine.factory.class")


def check_property(name: str, text: str, honoured: Mapping[str, Setting]) -> str:
    """The warning that a property has no effect. Raises ConfigError for a value that Kafka refuses."""
    setting = IDLE.get(name)
    try:
        if setting is not None:
            setting.parse(text)
    except ValueError as fault:
        raise ConfigError(f"{name}={quoted(text)} {fault}") from None
    return no_effect(name, honoured)


def java_refusal(name: str, text: str) -> str | None:
    """The reason why a running broker refuses this dynamic setting; None if it accepts it."""
    return f"{name}={text}: kafkalite runs no Java classes" if name in _OF_JAVA and text else None


def describe_idle(synonyms: Callable[[str], tuple[ConfigSynonym, ...]]) -> list[ConfigEntry]:
    """Every idle setting as DescribeConfigs answers it; `synonyms` gives the sources of its value."""
    entries = []
    for setting in IDLE.values():
        found = synonyms(setting.name)
        value = found[0].value if found else None
        entries.append(ConfigEntry.of(setting, value, found, read_only=not setting.dynamic))
    return entries


def no_effect(name: str, honoured: Iterable[str]) -> str:
    """One line for a property that `BrokerConfig` does not declare: known to Kafka, or unknown with the nearest
    name."""
    if name in KNOWN or name.startswith(_PREFIXES):
        reason = next((reason for beginning, reason in _REASONS.items() if name.startswith(beginning)), None)
        if reason is not None:
            return f"{name} has no effect: {reason}"
        return f"{name} is known to Kafka but kafkalite does not honour it yet"
    nearest = _nearest_name(name, {*KNOWN, *honoured})
    shown = name if name.isprintable() and len(name) <= 120 else ascii(name[:120])
    return f"{shown} is not a property of Kafka" + (f"; did you mean {nearest}?" if nearest else "")


def _nearest_name(name: str, names: Iterable[str]) -> str | None:
    """The most similar of `names`, None if none is similar."""
    from difflib import get_close_matches  # 3 ms to import, needed only for a misspelt property

    found = get_close_matches(name[:120].lower(), sorted(names), n=1, cutoff=0.75)
    return found[0] if found else None
