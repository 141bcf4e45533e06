"""Settings that a group has for itself (resource type 32): over the broker's `group.*` settings, within their bounds.

A value that is out of bounds, since the broker's settings changed after it was set, counts as the nearest bound.
Source: org.apache.kafka.coordinator.group.{GroupConfig, GroupConfigManager} (4.3).
"""

# ruff: noqa: E501
# The table is wide, so that one setting stays one line.

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import java_trim
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.settings import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    Setting,
    Settings,
    boolean,
    integer,
    string,
)

logger = logging.getLogger(__name__)

_DURATION = re.compile(
    r"by_duration:(?P<sign>[-+]?)P(?=[-+T0-9])(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?(?:(?P<seconds>[-+]?[0-9]+)(?:[.,][0-9]{0,9})?S)?)?\Z",
    re.ASCII | re.IGNORECASE,
)
_SECONDS_OF = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


def parse_offset_reset(text: str) -> str:
    text = java_trim(text)
    found = _DURATION.match(text) if len(text) <= 100 else None
    if found is not None:
        seconds = sum(int(found[unit] or 0) * factor for unit, factor in _SECONDS_OF.items())
        if (seconds <= 0) if found["sign"] == "-" else (seconds >= 0):
            return text
    if text not in ("earliest", "latest"):
        raise ValueError("must be earliest, latest or by_duration: and a duration such as PT1H")
    return text


def begins_at(text: str) -> str | int:
    """The value of share.auto.offset.reset: earliest, latest, or how many ms before now."""
    found = _DURATION.match(text)
    if found is None:
        return text
    seconds = sum(int(found[unit] or 0) * factor for unit, factor in _SECONDS_OF.items())
    return abs(seconds) * 1_000


class GroupConfig(Settings):
    """Values of the lines below for one group."""

    # fmt: off
    consumer_session_timeout_ms: int = integer(45_000, "Session timeout of members.", at_least=1, broker="group.consumer.session.timeout.ms")
    consumer_heartbeat_interval_ms: int = integer(5_000, "Time between the heartbeats of a member.", at_least=1, broker="group.consumer.heartbeat.interval.ms")
    consumer_assignment_interval_ms: int = integer(1_000, "Shortest time between two assignments.", at_least=0, broker="group.consumer.assignment.interval.ms")
    share_session_timeout_ms: int = integer(45_000, "Session timeout of members of a share group.", at_least=1, broker="group.share.session.timeout.ms")
    share_heartbeat_interval_ms: int = integer(5_000, "Time between the heartbeats of a member of a share group.", at_least=1, broker="group.share.heartbeat.interval.ms")
    share_record_lock_duration_ms: int = integer(30_000, "Time for which a member of a share group holds a record.", at_least=1_000, broker="group.share.record.lock.duration.ms")
    share_delivery_count_limit: int = integer(5, "How often a record may be delivered to a share group.", at_least=2, broker="group.share.delivery.count.limit")
    share_partition_max_record_locks: int = integer(2_000, "Records of a partition that members of a share group may hold.", at_least=100, broker="group.share.partition.max.record.locks")
    share_auto_offset_reset: str = string("latest", "Where a share group begins: earliest, latest or by_duration:PnDTnHnMn.nS.", convert=parse_offset_reset)
    share_isolation_level: str = string("read_uncommitted", "Which records a share group gets.", one_of=("read_committed", "read_uncommitted"))
    share_renew_acknowledge_enable: bool = boolean(True, "Whether members of a share group may hold a record longer.")
    share_assignment_interval_ms: int = integer(1_000, "Shortest time between two assignments of a share group.", at_least=0, broker="group.share.assignment.interval.ms")
    streams_session_timeout_ms: int = integer(45_000, "Session timeout of members of a group of Kafka Streams.", at_least=1, broker="group.streams.session.timeout.ms")
    streams_heartbeat_interval_ms: int = integer(5_000, "Time between the heartbeats of such a member.", at_least=1, broker="group.streams.heartbeat.interval.ms")
    streams_num_standby_replicas: int = integer(0, "Standby replicas of each task.", at_least=0, broker="group.streams.num.standby.replicas")
    streams_initial_rebalance_delay_ms: int = integer(3_000, "How long a new group of Kafka Streams waits for more members.", at_least=0, broker="group.streams.initial.rebalance.delay.ms")
    streams_assignment_interval_ms: int = integer(1_000, "Shortest time between two assignments of a group of Kafka Streams.", at_least=0, broker="group.streams.assignment.interval.ms")
    # fmt: on

    @classmethod
    def build(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> GroupConfig:
        """The group's own settings over the broker's. One that is not understood, which a later version may have set,
        is left out."""
        values = {}
        for setting in cls.settings:
            text = overrides.get(setting.name)
            try:
                value = _default(setting, broker) if text is None else setting.parse(text)
            except ValueError as fault:
                logger.warning("a setting of a group has no effect here: %s=%r %s", setting.name, text, fault)
                value = _default(setting, broker)
            if text is not None and setting.name in _BOUNDS:
                low, high = (broker.text_of(bound) for bound in _BOUNDS[setting.name])
                value = min(max(value, int(low or 0)), int(high))
            values[setting.attribute] = value
        return cls(**values)

    @classmethod
    def check(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> None:
        """Raises KafkaError(INVALID_CONFIG) unless these can be the settings of a group."""
        unknown = next((name for name in overrides if name not in cls.by_name), None)
        if unknown is not None:
            raise _refused(f"Unknown group config name: {unknown}")
        values = {}
        for setting in cls.settings:
            text = overrides.get(setting.name)
            try:
                values[setting.name] = _default(setting, broker) if text is None else setting.parse(text)
            except ValueError:
                fault = fault_of(setting, text or "")
                raise _refused(f"Invalid value {text} for configuration {setting.name}: {fault}") from None
        for name, (low, high) in _BOUNDS.items():
            if name in overrides and low and values[name] < int(broker.text_of(low)):
                raise _refused(f"{name} must be greater than or equal to {low}")
            if name in overrides and values[name] > int(broker.text_of(high)):
                raise _refused(f"{name} must be less than or equal to {high}")
        for kind in ("consumer", "share", "streams"):
            timeout, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
            if values[timeout] <= values[interval]:
                raise _refused(f"{timeout} must be greater than {interval}")

    @classmethod
    def describe(cls, overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
        """Every setting of a group as DescribeConfigs answers it, with the sources of its value."""
        return [_entry(setting, overrides.get(setting.name), broker) for setting in cls.settings]


_BOUNDS = {
    f"{kind}.{what}": (f"group.{kind}.min.{what}", f"group.{kind}.max.{what}")
    for kind, names in (
        ("consumer", "heartbeat.interval.ms session.timeout.ms assignment.interval.ms"),
        (
            "share",
            "heartbeat.interval.ms session.timeout.ms record.lock.duration.ms delivery.count.limit "
            "partition.max.record.locks assignment.interval.ms",
        ),
        ("streams", "heartbeat.interval.ms session.timeout.ms num.standby.replicas assignment.interval.ms"),
    )
    for what in names.split()
} | {"streams.num.standby.replicas": ("", "group.streams.max.standby.replicas")}
"""By setting: the broker's settings with its lowest and highest value, in the order in which Kafka compares them."""


def fault_of(setting: Setting, text: str) -> str:
    """The fault of a value that `setting` does not take, in Kafka's words. Source: ConfigDef.parseType, Validator."""
    if setting.name == "share.auto.offset.reset":
        return (
            f"Invalid value `{text}` for configuration {setting.name}. The value must be either 'earliest', 'latest' "
            "or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
    if setting.type is ConfigType.BOOLEAN:
        return "Expected value to be either true or false"
    if setting.one_of:
        return f"String must be one of: {', '.join(setting.one_of)}"
    try:
        number = int(java_trim(text)) if len(text) <= 40 else None
    except ValueError:
        number = None
    if number is None or not -(1 << 31) <= number < 1 << 31:
        return f"Not a number of type {setting.type.name}"
    return f"Value must be at least {setting.at_least}"


def _default(setting: Setting, broker: BrokerConfig) -> Any:
    return setting.parse(broker.text_of(setting.broker[0][0])) if setting.broker else setting.default


def _entry(setting: Setting, override: str | None, broker: BrokerConfig) -> ConfigEntry:
    if setting.broker:
        synonyms = broker.synonyms(setting.broker[0][0])
    else:
        synonyms = (ConfigSynonym(setting.name, setting.default_text, ConfigSource.DEFAULT_CONFIG),)
    value = synonyms[0].value
    if override is not None:
        value = java_trim(override)
        synonyms = (ConfigSynonym(setting.name, value, ConfigSource.GROUP_CONFIG), *synonyms)
    return ConfigEntry.of(setting, value, synonyms, read_only=False)


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)


class GroupConfigs:
    """The settings of each group; kept in step with the metadata and with the broker's settings."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker
        self._defaults = GroupConfig.build({}, broker)
        self._overrides: dict[str, Mapping[str, str]] = {}
        self._own: dict[str, GroupConfig] = {}

    def of(self, group_id: str) -> GroupConfig:
        return self._own.get(group_id, self._defaults)

    def reconfigure(self, broker: BrokerConfig) -> None:
        """The broker's settings have changed, and with them the defaults of every group."""
        self._broker = broker
        self._defaults = GroupConfig.build({}, broker)
        self._own = {group_id: GroupConfig.build(own, broker) for group_id, own in self._overrides.items()}

    def update(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """These are the group's own settings from now on; none: it has the broker's."""
        if overrides:
            self._overrides[group_id] = overrides
            self._own[group_id] = GroupConfig.build(overrides, self._broker)
        else:
            self._overrides.pop(group_id, None)
            self._own.pop(group_id, None)
