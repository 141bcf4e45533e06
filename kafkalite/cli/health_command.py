"""`kafkalite health`: whether a broker answers, as an exit code, for the health checks of containers and supervisors.

Without --bootstrap-server it asks the broker that `kafkalite serve` would run with the same file and environment.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from kafkalite.cli.output import complain
from kafkalite.client.blocking_client import BlockingClient, Unanswered
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import read_environment, read_properties
from kafkalite.protocol.messages.metadata import MetadataRequest

_EVERY_ADDRESS = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}
_VERSION = 9


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of `kafkalite health`."""
    command.description = "Ask a broker whether it serves. The exit code is 0 if it does."
    command.add_argument("config", nargs="?", metavar="server.properties", help="the settings of the broker")
    command.add_argument(
        *("--bootstrap-server", "--bootstrap"),
        metavar="HOST:PORT",
        help="the broker to ask (default: the first listener of the settings and of KAFKA_LISTENERS)",
    )
    command.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="(default: 5)")


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    address = options.bootstrap_server or own_address(options.config, os.environ)
    try:
        with BlockingClient(address, options.timeout) as client:
            answer = client.ask(MetadataRequest(topics=[]), _VERSION)
    except Unanswered as error:
        return complain(str(error))
    if not answer.brokers:
        return complain(f"{address} answers, and knows no broker that is up, not even itself")
    print(f"{address} serves, one of {len(answer.brokers)} in cluster {answer.cluster_id}")
    return 0


def own_address(config: str | None, environment: Mapping[str, str]) -> str:
    """host:port of the first listener. Raises ConfigError."""
    properties = read_properties(config) if config else {}
    properties.update(read_environment(environment))
    listener = BrokerConfig.load(properties).listeners[0]
    host = _EVERY_ADDRESS.get(listener.host, listener.host)
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"
