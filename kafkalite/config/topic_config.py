"""A topic's configuration: every setting that kafkalite honours, one line each.

Names, types, defaults and bounds are Kafka 3.9's. A topic's setting has the broker's synonyms as its default: segment.ms
is log.roll.ms, or log.roll.hours when that is not set.
Source: org.apache.kafka.storage.internals.log.LogConfig, ServerTopicConfigSynonyms, kafka.server.ConfigHelper.
"""

# ruff: noqa: E501
# The table is wide, so that one setting stays one line.

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.config.setting_checks import parse_gzip_level, parse_throttled_replicas
from kafkalite.config.settings import (
    LONG_MAX,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Setting,
    Settings,
    boolean,
    double,
    integer,
    long,
    quoted,
    string,
    words,
)

logger = logging.getLogger(__name__)

_DAY_MS = 86_400_000
_MIB = 1 << 20
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
RECORD_VALIDATIONS = ("none", "frames", "records")


def _idle(type: ConfigType, default: Any, broker: str = "") -> Setting:
    return Setting(type, default, "A setting of Kafka's that has no effect here.", at_least=-2, broker=broker)


# They are accepted, because tools set them.
_IDLE_TOPIC_SETTINGS = {
    "local.retention.bytes": _idle(ConfigType.LONG, -2, "log.local.retention.bytes"),
    "local.retention.ms": _idle(ConfigType.LONG, -2, "log.local.retention.ms"),
    "message.format.version": _idle(ConfigType.STRING, "3.0-IV1", "log.message.format.version"),
    "remote.log.copy.disable": _idle(ConfigType.BOOLEAN, False),
    "remote.log.delete.on.disable": _idle(ConfigType.BOOLEAN, False),
    "remote.storage.enable": _idle(ConfigType.BOOLEAN, False),
}
for _name, _setting in _IDLE_TOPIC_SETTINGS.items():
    _setting.name = _name


class TopicDefaults(Protocol):
    """The defaults that a broker gives to a topic's configuration."""

    def topic_default(self, setting: Setting) -> Any: ...

    def synonyms(self, name: str) -> tuple[ConfigSynonym, ...]: ...


MIN_ISR = "min.insync.replicas"


class TopicConfig(Settings):
    """The configuration of one topic: `TopicConfig()` has Kafka's defaults, `build` a broker's and the topic's own."""

    # fmt: off
    cleanup_policy: tuple[str, ...] = words(("delete",), "What happens to old segments: deleted, compacted by key, or both.", one_of=CLEANUP_POLICIES, broker="log.cleanup.policy")
    compression_gzip_level: int = integer("-1", "Level of gzip when the broker compresses; -1 is gzip's own default.", at_least=-1, at_most=9, convert=parse_gzip_level, broker="compression.gzip.level")
    compression_lz4_level: int = integer(9, "Level of lz4 when the broker compresses.", at_least=1, at_most=17, broker="compression.lz4.level")
    compression_type: str = string("producer", "The codec on disk; 'producer' keeps what the producer chose.", one_of=COMPRESSION_TYPES, broker="compression.type")
    compression_zstd_level: int = integer(3, "Level of zstd when the broker compresses.", at_least=-131_072, at_most=22, broker="compression.zstd.level")
    delete_retention_ms: int = long(_DAY_MS, "How long a tombstone stays readable after compaction.", at_least=0, broker="log.cleaner.delete.retention.ms")
    file_delete_delay_ms: int = long(60_000, "How long a removed file stays on disk.", at_least=0, broker="log.segment.delete.delay.ms")
    flush_messages: int = long(LONG_MAX, "Records between two forced fsyncs of the log.", at_least=1, broker="log.flush.interval.messages")
    flush_ms: int = long(LONG_MAX, "Longest time between two forced fsyncs of the log.", at_least=0, broker="log.flush.interval.ms log.flush.scheduler.interval.ms")
    follower_replication_throttled_replicas: tuple[str, ...] = words("", "Replicas that fetch no faster than follower.replication.throttled.rate while not in sync: partition:broker,... or *.", convert=parse_throttled_replicas)
    index_interval_bytes: int = integer(4096, "Bytes of log per entry in the offset index.", at_least=0, broker="log.index.interval.bytes")
    leader_replication_throttled_replicas: tuple[str, ...] = words("", "Replicas that send no faster than leader.replication.throttled.rate to followers not in sync: partition:broker,... or *.", convert=parse_throttled_replicas)
    max_compaction_lag_ms: int = long(LONG_MAX, "A record is compacted at the latest after this time.", at_least=1, broker="log.cleaner.max.compaction.lag.ms")
    max_message_bytes: int = integer(1_048_588, "Largest record batch that is taken.", at_least=0, broker="message.max.bytes")
    message_downconversion_enable: bool = boolean(True, "Rewrite records for consumers of old formats.", broker="log.message.downconversion.enable")
    message_timestamp_after_max_ms: int = long(LONG_MAX, "How far a record's time may lie ahead of the broker's.", at_least=0, broker="log.message.timestamp.after.max.ms")
    message_timestamp_before_max_ms: int = long(LONG_MAX, "How far a record's time may lie behind the broker's.", at_least=0, broker="log.message.timestamp.before.max.ms")
    message_timestamp_difference_max_ms: int = long(LONG_MAX, "Old name for both of the above, used where they are not set.", at_least=0, broker="log.message.timestamp.difference.max.ms")
    message_timestamp_type: str = string("CreateTime", "Whose time a record carries: the producer's or the broker's.", one_of=TIMESTAMP_TYPES, broker="log.message.timestamp.type")
    min_cleanable_dirty_ratio: float = double(0.5, "Compact when more than this share of the log is dirty.", at_least=0, at_most=1, broker="log.cleaner.min.cleanable.ratio")
    min_compaction_lag_ms: int = long(0, "A record is not compacted before this time has passed.", at_least=0, broker="log.cleaner.min.compaction.lag.ms")
    min_insync_replicas: int = integer(1, "In-sync replicas that acks=all needs.", at_least=1, broker="min.insync.replicas")
    preallocate: bool = boolean(False, "Allocate a new segment's file at its full size.", broker="log.preallocate")
    retention_bytes: int = long(-1, "Bytes that a partition may keep; -1 is no limit.", broker="log.retention.bytes")
    retention_ms: int = long(7 * _DAY_MS, "Time that a record is kept; -1 is forever.", at_least=-1, broker="log.retention.ms log.retention.minutes*60000 log.retention.hours*3600000")
    segment_bytes: int = integer(1 << 30, "Size at which a new segment begins.", at_least=14, broker="log.segment.bytes")
    segment_index_bytes: int = integer(10 * _MIB, "Largest size of a segment's index; a full one begins a new segment.", at_least=4, broker="log.index.size.max.bytes")
    segment_jitter_ms: int = long(0, "Random part taken off segment.ms, so that segments do not all roll at once.", at_least=0, broker="log.roll.jitter.ms log.roll.jitter.hours*3600000")
    segment_ms: int = long(7 * _DAY_MS, "Age at which a new segment begins.", at_least=1, broker="log.roll.ms log.roll.hours*3600000")
    unclean_leader_election_enable: bool = boolean(False, "Let a replica that is behind become leader, losing records.", broker="unclean.leader.election.enable")
    # fmt: on

    @classmethod
    def build(cls, overrides: Mapping[str, str], broker: TopicDefaults) -> TopicConfig:
        """The topic's own settings (by Kafka's names) over the broker's. Raises KafkaError(INVALID_CONFIG) saying why."""
        values = {}
        for setting in cls.settings:
            text = overrides.get(setting.name)
            try:
                values[setting.attribute] = broker.topic_default(setting) if text is None else setting.parse(text)
            except ValueError as fault:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG, f"Invalid value {quoted(text or '')} for {setting.name}: {fault}"
                ) from None
        for name in overrides.keys() - cls.by_name.keys():
            _check_idle_topic_setting(name, overrides[name])
        for side in ("message_timestamp_before_max_ms", "message_timestamp_after_max_ms"):
            if values[side] == LONG_MAX:
                values[side] = values["message_timestamp_difference_max_ms"]
        return cls(**values)

    @classmethod
    def check(cls, overrides: Mapping[str, str], broker: TopicDefaults) -> TopicConfig:
        """`build` for a request: settings that exclude each other are refused, too. `build` accepts them for an
        existing topic, since the broker's settings may have changed meanwhile."""
        config = cls.build(overrides, broker)
        conflict = topic_conflict(config.values())
        if conflict:
            raise KafkaError(ErrorCode.INVALID_CONFIG, conflict)
        return config

    @classmethod
    def describe(cls, overrides: Mapping[str, str], broker: TopicDefaults) -> list[ConfigEntry]:
        """Every setting of a topic as DescribeConfigs answers it, with the sources of its value."""
        entries = []
        for setting in cls.settings:
            synonyms = broker.synonyms(setting.broker[0][0]) if setting.broker else ()
            value = broker.topic_default(setting)
            if setting.name in overrides:
                value = setting.parse(overrides[setting.name])
                own = ConfigSynonym(setting.name, setting.format(value), ConfigSource.DYNAMIC_TOPIC_CONFIG)
                synonyms = (own, *synonyms)
            entries.append(ConfigEntry.of(setting, setting.format(value), synonyms, read_only=False))
        for name, setting in _IDLE_TOPIC_SETTINGS.items():
            synonyms = broker.synonyms(setting.broker[0][0]) if setting.broker else ()
            text = synonyms[0].value if synonyms else setting.default_text
            if name in overrides:
                text = overrides[name]
                synonyms = (ConfigSynonym(name, text, ConfigSource.DYNAMIC_TOPIC_CONFIG), *synonyms)
            entries.append(ConfigEntry.of(setting, text, synonyms, read_only=False))
        return entries


def of_topic(name: str, doc: str = "") -> Any:
    """The broker's side of a topic's setting, which has its type, default and bounds, and may change at run time."""
    setting = TopicConfig.by_name[name]
    limits = {limit: getattr(setting, limit) for limit in ("at_least", "at_most", "one_of", "convert")}
    default = setting.default_text if setting.convert else setting.default
    return Setting(setting.type, default, doc or setting.doc, dynamic=True, **limits)


def _check_idle_topic_setting(name: str, text: str) -> None:
    if name not in _IDLE_TOPIC_SETTINGS:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {quoted(name)}")
    if name.startswith("remote.") and text.strip().lower() != "false":
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} can only be false: there is no tiered storage here")


def topic_conflict(values: Mapping[str, Any]) -> str | None:
    """The conflict between a topic's settings that are each valid by themselves, if there is one."""
    low, high = values["min_compaction_lag_ms"], values["max_compaction_lag_ms"]
    return f"min.compaction.lag.ms ({low}) must not be above max.compaction.lag.ms ({high})" if low > high else None


_KEEPS_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class TopicConfigs:
    """Builds topic configurations. Another broker, a tool, or a later version may have set something that this broker
    does not understand: that is left out."""

    def __init__(self, broker: TopicDefaults) -> None:
        self._broker = broker
        self._defaults: TopicConfig | None = None

    def reconfigure(self, broker: TopicDefaults) -> None:
        """The broker's settings have changed, and with them the defaults of every topic."""
        self._broker = broker
        self._defaults = None

    def check(self, overrides: Mapping[str, str]) -> None:
        """Raises KafkaError(INVALID_CONFIG) unless these can be the settings of a topic."""
        TopicConfig.check(overrides, self._broker)

    def keeping_all(self) -> TopicConfig:
        """The settings for the log of a topic whose settings are not known yet: no deletion and no compaction."""
        return TopicConfig.build(_KEEPS_ALL, self._broker)

    def build(self, topic: str, overrides: Mapping[str, str]) -> TopicConfig:
        if not overrides:  # most topics: 0.1 ms each
            if self._defaults is None:
                self._defaults = TopicConfig.build({}, self._broker)
            return self._defaults
        try:
            return TopicConfig.build(overrides, self._broker)
        except KafkaError as fault:
            logger.warning("a setting of topic %s has no effect here: %s", topic, fault)
        understood = {}
        for name, value in overrides.items():
            with suppress(KafkaError):
                TopicConfig.build({name: value}, self._broker)
                understood[name] = value
        return TopicConfig.build(understood, self._broker)
