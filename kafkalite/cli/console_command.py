"""`kafkalite console`: pages and a JSON API over HTTP, for a cluster of kafkalite or of Apache Kafka.

It is a process of its own, and a client like any other: a heavy page costs a broker the requests that it sends. The
packages that it needs are imported here only.
"""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable

from kafkalite.cli.command_config import add_bootstrap_server, add_command_config
from kafkalite.cli.output import say
from kafkalite.cli.serve_command import CONSOLE_LISTENER
from kafkalite.common.errors import ConfigError
from kafkalite.common.log_lines import LogLines
from kafkalite.config.listeners import metrics_listener, parse_metrics_listener
from kafkalite.config.properties import read_properties

NEEDS = "the console needs packages that are not installed: pip install 'kafkalite[console]'"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of `kafkalite console`."""
    command.description = "Show a cluster in the browser, until SIGTERM or Ctrl-C."
    add_bootstrap_server(command, "--bootstrap-server", "--bootstrap")
    add_command_config(command)
    command.add_argument(
        "--listen",
        default=CONSOLE_LISTENER,
        metavar="HOST:PORT",
        help=f"where browsers find it, port 0 for any free one (default: {CONSOLE_LISTENER})",
    )
    command.add_argument("--write", action="store_true", help="let users change topics, groups and records")
    command.add_argument("--properties-from-stdin", action="store_true", help=argparse.SUPPRESS)  # of `kafkalite serve`


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    listener = metrics_listener(parse(options.listen))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    properties = {} if options.command_config is None else read_properties(options.command_config)
    if options.properties_from_stdin:
        properties |= json.loads(sys.stdin.readline())
    try:
        from kafkalite.console.server import ConsoleServer
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{NEEDS} ({missing.name} is missing)") from None
    from kafkalite.cli.main import version

    server = ConsoleServer(
        options.bootstrap_server,
        listener.host,
        listener.port,
        may_write=options.write,
        version=version(),
        properties=properties,
    )
    if options.properties_from_stdin:
        threading.Thread(target=_end_with_parent, args=(server.stop,), name="parent", daemon=True).start()
    may = "may change things" if options.write else "changes nothing (--write)"
    say(f"the console is on http://{server.address}/, asks {options.bootstrap_server}, {may}")
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, lambda *_: server.stop())
    server.run()
    return 0


def parse(text: str) -> str:
    """A checked HOST:PORT. Raises ConfigError."""
    try:
        parsed = parse_metrics_listener(text)
    except ValueError as fault:
        raise ConfigError(f"--listen {text}: {fault}") from None
    if not parsed:
        raise ConfigError("--listen must be HOST:PORT, such as 127.0.0.1:9080")
    return parsed


def _end_with_parent(stop: Callable[[], None]) -> None:
    """Standard input is a pipe that the broker holds open: its end is the broker's."""
    sys.stdin.read()
    stop()
