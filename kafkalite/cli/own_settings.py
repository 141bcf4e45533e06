"""The settings that `kafkalite serve` would have, for commands that are about that broker."""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_environment, read_properties


def own_config(config: str | None, environment: Mapping[str, str]) -> BrokerConfig:
    """Of this file, if there is one, and of the environment. Raises ConfigError."""
    properties = read_properties(config) if config else {}
    properties.update(read_environment(environment))
    return BrokerConfig.load(properties)
