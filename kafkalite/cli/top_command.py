"""`kafkalite top`: topics, groups and brokers of a cluster with their rates, like htop; or one sample as text."""

from __future__ import annotations

import argparse
import sys
import time

from kafkalite.cli.command_config import add_bootstrap_server, add_command_config, add_timeout, seconds, security_of
from kafkalite.cli.top_samples import COLUMNS, TOPICS, VIEWS, Sample, Sampler, cell, in_order, title
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import ConfigError
from kafkalite.common.output import aligned, json_line, print_all

_LEFT = 0, 1  # columns that are names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("view", nargs="?", choices=VIEWS, default=TOPICS, help="(default: topics)")
    parser.add_argument("--interval", type=seconds, default=2.0, metavar="S", help="between two samples (default: 2)")
    parser.add_argument("--once", action="store_true", help="print the numbers of one interval, and end")
    parser.add_argument("--json", action="store_true", help="as --once, one JSON object per line")
    parser.add_argument("--sort", metavar="COLUMN", help="of --once (default: the name)")
    parser.add_argument("--internal", action="store_true", help="internal topics, such as __consumer_offsets, too")
    add_bootstrap_server(parser)
    add_command_config(parser)
    add_timeout(parser, 10.0)


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    if options.interval <= 0:
        raise ConfigError(f"--interval {options.interval:g} must be more than 0")
    columns = COLUMNS[options.view]
    if options.sort is not None and options.sort.replace("-", "_") not in columns:
        raise ConfigError(f"--sort {options.sort}: the columns of {options.view} are {', '.join(columns)}")
    try:
        with ClusterClient(options.bootstrap_server, options.timeout, security_of(options)) as cluster:
            sampler = Sampler(cluster, internal=options.internal)
            if options.once or options.json or not sys.stdout.isatty():
                sampler.take()
                time.sleep(options.interval)
                _print(sampler.take(), options)
                return 0
            _screen()(sampler.take, cluster.address, options.interval, options.view).run()
    except KeyboardInterrupt:
        pass
    return 0


def _screen() -> type:
    try:
        from kafkalite.cli.top_screen import TopScreen  # brings textual, an extra
    except ImportError:
        raise ConfigError("the screen needs the package textual: pip install 'kafkalite[console]'; or --once") from None
    return TopScreen


def _print(sample: Sample, options: argparse.Namespace) -> None:
    columns = COLUMNS[options.view]
    by = (options.sort or columns[0]).replace("-", "_")
    rows = in_order(sample.rows[options.view], by, ascending=by == columns[0])
    if options.json:
        print_all(json_line(row) for row in rows)
        return
    titles = [title(name) for name in columns]
    print_all(aligned([titles, *[[cell(name, row[name]) for name in columns] for row in rows]], _LEFT))
