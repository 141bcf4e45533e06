"""`kafkalite config`: prints server.properties with every setting; and the settings that `kafkalite serve` uses."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import annotated, read_environment, read_properties


def own_config(config: str | None, environment: Mapping[str, str]) -> BrokerConfig:
    """The configuration from this file, if it is given, and from the environment. Raises ConfigError."""
    properties = read_properties(config) if config else {}
    properties.update(read_environment(environment))
    return BrokerConfig.load(properties)


def add_arguments(_: argparse.ArgumentParser) -> None:
    """`kafkalite config` has no options."""


def run(_: argparse.Namespace) -> int:
    """Print the file. Returns the exit code."""
    print(annotated(BrokerConfig.settings), end="")
    return 0
