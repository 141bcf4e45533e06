"""`kafkalite topic`: list, create, delete and alter topics; `describe` and `spread` have files of their own."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from kafkalite.cli.command_config import (
    add_commands,
    add_yes,
    is_confirmed,
    security_of,
    whole,
)
from kafkalite.cli.topic_description import add_describe_options, run_describe
from kafkalite.cli.topic_spread import add_spread_options, spread
from kafkalite.client import topic_changes
from kafkalite.client.cluster_client import ClusterClient, PartitionPlace, require_topics
from kafkalite.common.errors import ConfigError
from kafkalite.common.names import INTERNAL_TOPICS, NO_LEADER
from kafkalite.common.options import settings_of_flag
from kafkalite.common.output import complain, print_rows, say

_COUNT = whole(1, 100_000)
_EXAMPLE = "retention.ms=1h"

_DESCRIBE_TEXT = (
    "Show offsets, live records, control records, bytes and segments of every partition, exactly. Live records are "
    "data records at or past the start of the log, those of aborted transactions among them; control records are the "
    "markers of transactions."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The commands of `kafkalite topic`."""
    commands = add_commands(parser, "topic_command", _COMMANDS, 30.0, with_json=False)
    described = commands.add_parser(
        "describe", help="how many records topics hold, exactly", description=_DESCRIBE_TEXT
    )
    add_describe_options(described)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    if options.topic_command == "describe":
        return run_describe(options)
    with ClusterClient(options.bootstrap_server, min(options.timeout, 10.0), security_of(options)) as cluster:
        return _COMMANDS[options.topic_command][0](cluster, options)


# list


def _add_list_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--internal", action="store_true", help="internal topics, such as __consumer_offsets, too")
    command.add_argument("--json", action="store_true", help="one JSON object a line")


_COLUMNS = ("topic", "partitions", "replicas", "under-replicated", "without leader")


def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    rows = [
        _row(topic, [place for _, place in places])
        for topic, places in groupby(sorted(cluster.places.items()), lambda one: one[0][0])
        if options.internal or topic not in INTERNAL_TOPICS
    ]
    print_rows(_COLUMNS, rows, as_json=options.json)
    return 0


def _row(topic: str, places: Sequence[PartitionPlace]) -> tuple[str, int, int, int, int]:
    return (
        topic,
        len(places),
        max(len(place.replicas) for place in places),
        sum(len(place.isr) < len(place.replicas) for place in places),
        sum(place.leader == NO_LEADER for place in places),
    )


# create, delete, alter


def _add_create_options(command: argparse.ArgumentParser) -> None:
    default = topic_changes.BROKERS_DEFAULT
    command.add_argument("topics", nargs="+", metavar="TOPIC")
    command.add_argument("--partitions", type=_COUNT, default=default, metavar="N", help="(default: num.partitions)")
    command.add_argument(
        "--replicas", type=_COUNT, default=default, metavar="N", help="(default: default.replication.factor)"
    )
    _add_config_option(command)
    command.add_argument("--if-not-exists", action="store_true", help="no error if the topic exists")


def _create(cluster: ClusterClient, options: argparse.Namespace) -> int:
    refusals = topic_changes.create_topics(
        cluster,
        options.topics,
        options.timeout,
        partitions=options.partitions,
        replicas=options.replicas,
        configs=settings_of_flag("--config", options.config, _EXAMPLE),
        if_not_exists=options.if_not_exists,
    )
    return _done(refusals, [f"topic {name} created" for name in options.topics])


def _done(refusals: Sequence[str], done: Iterable[str]) -> int:
    """Says what was done and what was refused, each of `done` for a topic of its own. Returns the exit code."""
    refused = {refusal.split()[1] for refusal in refusals}
    say(*[sentence for sentence in done if sentence.split()[1] not in refused])
    return complain(*refusals) if refusals else 0


def _add_delete_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("topics", nargs="+", metavar="TOPIC")
    command.add_argument("--if-exists", action="store_true", help="no error if a topic does not exist")
    add_yes(command)


def _delete(cluster: ClusterClient, options: argparse.Namespace) -> int:
    there = [name for name in options.topics if name in cluster.topics]
    if there and not is_confirmed(options, f"All records of {', '.join(there)} are lost."):
        return 1
    refusals = topic_changes.delete_topics(cluster, options.topics, options.timeout, if_exists=options.if_exists)
    return _done(refusals, [f"topic {name} deleted" for name in options.topics if name in there])


def _add_alter_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument(
        "--partitions", type=_COUNT, metavar="N", help="the new number of partitions; never fewer than now"
    )
    _add_config_option(command)
    command.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="NAME",
        help="return to the broker's value; may be repeated",
    )


def _alter(cluster: ClusterClient, options: argparse.Namespace) -> int:
    configs = settings_of_flag("--config", options.config, _EXAMPLE)
    if options.partitions is None and not configs and not options.delete_config:
        raise ConfigError("nothing to alter; give --partitions, --config or --delete-config")
    require_topics([options.topic], cluster.topics, cluster.address)
    refusals: list[str] = []
    if configs or options.delete_config:
        refusals += topic_changes.alter_configs(cluster, options.topic, configs, options.delete_config)
    if options.partitions is not None and not refusals:
        refusals += topic_changes.add_partitions(cluster, options.topic, options.partitions, options.timeout)
    return _done(refusals, [f"topic {options.topic} altered"])


def _add_config_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the topic, such as retention.ms=7d; may be repeated",
    )


_Perform = Callable[[ClusterClient, argparse.Namespace], int]
_COMMANDS: dict[str, tuple[_Perform, Callable[[argparse.ArgumentParser], None], str]] = {
    "list": (_list, _add_list_options, "the topics, with their partitions and replicas"),
    "create": (_create, _add_create_options, "create topics"),
    "delete": (_delete, _add_delete_options, "delete topics, with all that is in them"),
    "alter": (_alter, _add_alter_options, "add partitions to a topic, or change its settings"),
    "spread": (spread, add_spread_options, "move partitions until each broker has its share of bytes and traffic"),
}
