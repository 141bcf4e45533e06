"""`kafkalite topic spread`: partitions move between brokers until each has its share of bytes and traffic."""

from __future__ import annotations

import argparse

from kafkalite.cli.command_config import seconds
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.partition_spread import Move, measure, placed_alone, plan_moves, reassign
from kafkalite.common.errors import ConfigError
from kafkalite.common.output import complain, say
from kafkalite.common.text import size_text

_SAMPLE_S = 2.0


def add_spread_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("topics", nargs="*", metavar="TOPIC", help="(default: all, internal topics among them)")
    command.add_argument(
        "--brokers",
        type=_broker_ids,
        metavar="ID,ID",
        help="spread over these, and leave no partition on others (default: all brokers)",
    )
    command.add_argument(
        "--sample",
        type=seconds,
        default=_SAMPLE_S,
        metavar="SECONDS",
        help=f"how long the traffic is measured; 0: only bytes count (default: {_SAMPLE_S:g})",
    )
    command.add_argument("--dry-run", action="store_true", help="show the moves, and perform none")


def spread(cluster: ClusterClient, options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError, Unanswered."""
    brokers = options.brokers or sorted(cluster.brokers)
    if absent := set(brokers) - cluster.brokers.keys():
        raise ConfigError(f"--brokers: broker {min(absent)} not found at {cluster.address}")
    wanted = set(options.topics)
    if unknown := wanted - cluster.topics:
        raise ConfigError(f"topic {min(unknown)} not found at {cluster.address}")
    placed = {key: broker for key, broker in placed_alone(cluster).items() if not wanted or key[0] in wanted}
    loads = measure(cluster, options.sample)
    moves = plan_moves(placed, loads, brokers)
    several = sum(len(place.replicas) > 1 for key, place in cluster.places.items() if not wanted or key[0] in wanted)
    if several:
        say(f"{several} partitions with several replicas stay where they are")
    if options.dry_run:
        say(*(f"{_named(move)} would move" for move in moves))
        return 0
    failed = done = moved_bytes = 0
    for move, fault in reassign(cluster, moves, options.timeout):
        if fault is not None:
            failed += 1
            complain(f"{_named(move)}: {fault}")
            continue
        done += 1
        moved_bytes += loads[move.key].size_bytes if move.key in loads else 0
        say(f"{_named(move)} moved")
    say(f"{done} of {len(placed)} partitions moved, {size_text(moved_bytes)}")
    return 1 if failed else 0


def _named(move: Move) -> str:
    return f"{move.key[0]}-{move.key[1]} from broker {move.source} to broker {move.target}"


def _broker_ids(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} must be ids of brokers, separated by commas")
    return sorted({int(part) for part in parts})
