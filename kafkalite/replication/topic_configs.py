"""The settings that hold for a topic: its own, over the broker's defaults."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from kafkalite.common.errors import KafkaError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig

logger = logging.getLogger(__name__)

_KEEPS_ALL = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


class TopicConfigs:
    """Builds topic configurations. Another broker, a tool, or a later version may have set something that this broker
    does not understand: that is left out."""

    def __init__(self, broker: BrokerConfig) -> None:
        self._broker = broker
        self._defaults: TopicConfig | None = None

    def reconfigure(self, broker: BrokerConfig) -> None:
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
