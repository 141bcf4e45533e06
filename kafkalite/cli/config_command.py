"""`kafkalite config`: server.properties with every setting."""

from __future__ import annotations

import argparse

from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import annotated


def add_arguments(_: argparse.ArgumentParser) -> None:
    """`kafkalite config` has no options."""


def run(_: argparse.Namespace) -> int:
    """Print the file. Returns the exit code."""
    print(annotated(BrokerConfig.settings), end="")
    return 0
