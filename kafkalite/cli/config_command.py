"""`kafkalite config`: settings of topics and brokers; without a broker, server.properties with every setting.

Also the settings that `kafkalite serve` uses.
Source: org.apache.kafka.tools.ConfigCommand.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from kafkalite.cli.command_config import add_bootstrap_server, add_command_config, add_timeout, security_of
from kafkalite.common.errors import ConfigError
from kafkalite.common.options import settings_of_flag
from kafkalite.common.output import complain, print_rows, say
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.properties import annotated, read_environment, read_properties

_COLUMNS = ("setting", "value", "source", "read-only")
_EXAMPLE = "retention.ms=1h"


def own_config(config: str | None, environment: Mapping[str, str]) -> BrokerConfig:
    """The configuration from this file, if it is given, and from the environment. Raises ConfigError."""
    properties = read_properties(config) if config else {}
    properties.update(read_environment(environment))
    return BrokerConfig.load(properties)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of `kafkalite config`."""
    command.description = (
        "Show the settings of a topic or a broker with the source of each value, or change them. "
        "Without --topic and --broker: print server.properties with every setting."
    )
    place = command.add_mutually_exclusive_group()
    place.add_argument("--topic", metavar="TOPIC", help="the settings of this topic")
    place.add_argument("--broker", metavar="ID", help="the settings of this broker; a change for all is of ID all")
    command.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="such as retention.ms=7d; may be repeated"
    )
    command.add_argument(
        "--delete", action="append", default=[], metavar="KEY", help="return to the default; may be repeated"
    )
    command.add_argument("--all", action="store_true", help="show default values, too")
    add_bootstrap_server(command)
    add_command_config(command)
    command.add_argument("--json", action="store_true", help="one JSON object a line")
    add_timeout(command, 10.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError, Unanswered."""
    if options.topic is None and options.broker is None:
        if options.set or options.delete:
            raise ConfigError("--set and --delete need --topic or --broker")
        print(annotated(BrokerConfig.settings), end="")
        return 0
    return _of_cluster(options)


def _of_cluster(options: argparse.Namespace) -> int:
    from kafkalite.client.cluster_client import ClusterClient, require_topics
    from kafkalite.client.described_configs import BROKER_RESOURCE, describe_settings
    from kafkalite.client.topic_changes import alter_configs
    from kafkalite.protocol.messages.configs import TOPIC_RESOURCE

    with ClusterClient(options.bootstrap_server, options.timeout, security_of(options)) as cluster:
        if options.topic is not None:
            require_topics([options.topic], cluster.topics, cluster.address)
            kind, name = TOPIC_RESOURCE, options.topic
        else:
            kind, name = BROKER_RESOURCE, "" if options.broker == "all" else options.broker
            if name and name not in {str(each) for each in cluster.brokers}:
                raise ConfigError(f"--broker {name}: there is no such broker in {cluster.address}")
        if options.set or options.delete:
            wanted = settings_of_flag("--set", options.set, _EXAMPLE)
            if refusals := alter_configs(cluster, name, wanted, options.delete, resource_type=kind):
                return complain(*refusals)
            say(f"settings of {name or 'all brokers'} altered")
            return 0
        if not name:
            raise ConfigError("--broker all is for --set and --delete; name one broker to show its settings")
        rows = [one for one in describe_settings(cluster, kind, name) if options.all or one.source != "default"]
    if not rows and not options.json:
        say("all settings have their default values; --all shows them")
        return 0
    print_rows(_COLUMNS, rows, as_json=options.json, left=(0, 1, 2))
    return 0
