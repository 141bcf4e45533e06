"""`kafkalite mirror`: topics of one or several clusters copied to another one, until it is stopped.

    kafkalite mirror --from west=west:9092 --to east:9092 --to-alias east --topics 'orders.*'
    kafkalite mirror --from a=a:9092 --from b=b:9092 --to c:9092 --to-alias c --metrics 127.0.0.1:9465

A copy of `orders` from `west` is `west.orders`, or `orders` with --keep-names. With --preserve-offsets its records have
the offsets of the source, if the target is kafkalite. Several processes with an --instance of
their own share the partitions. Its state is in the target, so it may be killed at any moment and started anywhere.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from typing import TYPE_CHECKING

from kafkalite.cli.command_config import seconds, whole
from kafkalite.client.mirror.naming import GROUPS_EXCLUDED, TOPICS_EXCLUDED
from kafkalite.common.errors import ConfigError
from kafkalite.common.output import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kafkalite.client.mirror.mirror import Mirror
    from kafkalite.client.mirror.settings import Endpoint, MirrorSettings


_NAME = "kafkalite-mirror"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--from",
        dest="sources",
        action="append",
        required=True,
        metavar="ALIAS=HOST:PORT",
        help="a source, with several brokers after commas; may be repeated",
    )
    add("--to", required=True, metavar="HOST:PORT", help="the target, with several brokers after commas")
    add("--to-alias", default="target", metavar="ALIAS", help="the target's name for loops (default: target)")
    add("--topics", default=".*", metavar="REGEX", help="topics to copy, several with commas (default: all)")
    add("--exclude-topics", metavar="REGEX", help=f"topics to leave out (default: {_percent(TOPICS_EXCLUDED)})")
    add("--groups", default=".*", metavar="REGEX", help="groups whose offsets are translated (default: all)")
    add("--exclude-groups", metavar="REGEX", help=f"groups to leave out (default: {_percent(GROUPS_EXCLUDED)})")
    add("--no-groups", action="store_true", help="translate no offsets")
    add("--keep-names", action="store_true", help="copies have the same names as their sources")
    add(
        "--preserve-offsets",
        action="store_true",
        help="copies have the same offsets as their sources; the target must be kafkalite, and the copies new",
    )
    add("--no-settings", action="store_true", help="settings of topics are copied at their creation only")
    add("--acls", action="store_true", help="readers of a topic may read its copy, too")
    add("--replication-factor", type=whole(1, 32767), metavar="N", help="of new topics (default: the target's)")
    add("--name", default=_NAME, help=f"of the group that shares the partitions (default: {_NAME})")
    add("--instance", default="0", metavar="NAME", help="this process among those with the same --name (default: 0)")
    add(
        "--commit-interval",
        type=seconds,
        default=0.02,
        metavar="S",
        help="between transactions while it is behind (default: 0.02)",
    )
    add("--groups-interval", type=seconds, default=5.0, metavar="S", help="between two looks at groups (default: 5)")
    add("--refresh-interval", type=seconds, default=5.0, metavar="S", help="between two looks at topics (default: 5)")
    add("--timeout", type=seconds, default=30.0, metavar="S", help="for an answer of a broker (default: 30)")
    add(
        "--session-timeout", type=seconds, default=30.0, metavar="S",
        help="until the others take the partitions of a process that is gone (default: 30)",
    )  # fmt: skip
    add("--metrics", metavar="HOST:PORT", help="serve /metrics and /health there")
    add(
        "--from-config",
        action="append",
        default=[],
        metavar="ALIAS=FILE",
        help="client properties for a source, such as TLS and SASL; may be repeated",
    )
    add("--command-config", metavar="FILE", help="client properties for the target")  # fmt: skip


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def run(options: argparse.Namespace) -> int:
    """Runs until SIGTERM or SIGINT, and ends after a commit. Raises ConfigError."""
    from kafkalite.client.mirror.mirror import Mirror

    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    settings = _settings(options)
    mirror = Mirror(_sources(options), settings)
    if settings.preserves_offsets:
        _check_target(settings)
    asyncio.run(_serve(mirror, options))
    return 0


def _check_target(settings: MirrorSettings) -> None:
    """Raises ConfigError for a target that is not kafkalite; one that is away is checked later."""
    from kafkalite.client.mirror.preserved_copies import require_kafkalite
    from kafkalite.common.errors import Unanswered

    with contextlib.suppress(Unanswered), settings.target.connect(settings.request_timeout_ms / 1000) as target:
        require_kafkalite(target)


async def _serve(mirror: Mirror, options: argparse.Namespace) -> None:
    from kafkalite.client.mirror.flow_status import health, mirror_metrics
    from kafkalite.common.metrics import CONTENT_TYPE
    from kafkalite.server.metrics_endpoint import MetricsEndpoint

    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with contextlib.AsyncExitStack() as stack:
        if options.metrics:
            host, port = _address(options.metrics)
            metrics = mirror_metrics(mirror.statuses)
            endpoint = MetricsEndpoint(host, port, CONTENT_TYPE, metrics.pieces, lambda: health(mirror.statuses))
            await endpoint.start()
            stack.push_async_callback(endpoint.stop)
            say(f"metrics are on http://{endpoint.address}/metrics")
        mirror.start()
        say(f"copying from {', '.join(one.source for one in mirror.statuses)} to {options.to}")
        sys.stdout.flush()
        await stopping.wait()
        await asyncio.to_thread(mirror.stop)


def _address(text: str) -> tuple[str, int]:
    """Raises ConfigError."""
    from kafkalite.config.listeners import metrics_listener, parse_metrics_listener

    try:
        listener = metrics_listener(parse_metrics_listener(text))
    except ValueError as fault:
        raise ConfigError(f"--metrics {text}: {fault}") from None
    return listener.host, listener.port


def _sources(options: argparse.Namespace) -> Mapping[str, Endpoint]:
    from kafkalite.client.blocking_client import parse_address
    from kafkalite.client.logins import ClientSecurity
    from kafkalite.client.mirror.settings import Endpoint

    addresses = _by_alias("--from", options.sources)
    for given in (*addresses.values(), options.to):
        for address in filter(None, map(str.strip, given.split(","))):
            parse_address(address)
    configs = _by_alias("--from-config", options.from_config)
    for alias in configs:
        if alias not in addresses:
            raise ConfigError(f"--from-config {alias}=...: there is no --from {alias}=...")
    return {
        alias: Endpoint(address, ClientSecurity.of_file(configs[alias]) if alias in configs else None)
        for alias, address in addresses.items()
    }


def _by_alias(option: str, given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        alias, equals, value = text.partition("=")
        if not equals or not alias or not value:
            raise ConfigError(f"{option} {text}: give ALIAS=..., such as west=west.example.com:9092")
        if alias in found:
            raise ConfigError(f"{option} {alias}=... is given twice")
        found[alias] = value
    return found


def _settings(options: argparse.Namespace) -> MirrorSettings:
    from kafkalite.client.logins import ClientSecurity
    from kafkalite.client.mirror.naming import Filter
    from kafkalite.client.mirror.settings import Endpoint, MirrorSettings

    security = ClientSecurity.of_file(options.command_config) if options.command_config else None
    excluded_topics = TOPICS_EXCLUDED if options.exclude_topics is None else options.exclude_topics
    excluded_groups = GROUPS_EXCLUDED if options.exclude_groups is None else options.exclude_groups
    return MirrorSettings(
        Endpoint(options.to, security),
        options.to_alias,
        options.name,
        options.instance,
        Filter(options.topics, excluded_topics),
        Filter(options.groups, excluded_groups),
        options.keep_names,
        options.preserve_offsets,
        options.replication_factor or -1,
        not options.no_settings,
        options.acls,
        not options.no_groups,
        commit_interval_ms=int(options.commit_interval * 1000),
        refresh_interval_ms=int(options.refresh_interval * 1000),
        groups_interval_ms=int(options.groups_interval * 1000),
        request_timeout_ms=int(options.timeout * 1000),
        session_timeout_ms=int(options.session_timeout * 1000),
    )
