"""`kafkalite console`: pages and a JSON API over HTTP, for a cluster of kafkalite or of Apache Kafka.

It is a process of its own, and a client like any other: a heavy page costs a broker the requests that it sends. The
packages that it needs are imported here only. With `kafkalite serve --console` it is a child process of the broker,
which restarts it when it dies. It gets the properties of a Kafka client over its standard input, and ends when that is
closed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkalite.cli.command_config import add_bootstrap_server, add_command_config
from kafkalite.common.errors import ConfigError
from kafkalite.common.heap import bound_heap
from kafkalite.common.log_lines import LogLines
from kafkalite.common.output import say, version
from kafkalite.config.listeners import LOOPBACK_OF, metrics_listener, parse_metrics_listener
from kafkalite.config.properties import read_properties

if TYPE_CHECKING:
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.config.listeners import ListenerConfig

CONSOLE_LISTENER = "127.0.0.1:9080"
NEEDS = "the console needs packages that are not installed: pip install 'kafkalite[console]'"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of `kafkalite console`."""
    command.description = "Show a cluster in the browser, until SIGTERM or Ctrl-C."
    add_bootstrap_server(command)
    add_command_config(command)
    command.add_argument(
        "--listen",
        default=CONSOLE_LISTENER,
        metavar="HOST:PORT",
        help=f"the address of its pages, port 0 for any free one (default: {CONSOLE_LISTENER})",
    )
    command.add_argument(
        "--schema-registry",
        metavar="URL",
        help="decode records by the schemas of this registry (Confluent's API); also schema.registry.url in the file "
        "of --command-config, with basic.auth.user.info",
    )
    command.add_argument(
        "--mirrors",
        metavar="URL[,URL]",
        help="show the mirrors into this cluster: http://HOST:PORT of each `kafkalite mirror --metrics HOST:PORT`",
    )
    command.add_argument(
        "--clusters",
        metavar="FILE.toml",
        help="several clusters in one console, instead of --bootstrap-server: a table for each, with bootstrap and "
        "perhaps properties, schema_registry, mirrors and write",
    )
    command.add_argument("--base-path", default="", metavar="/PATH", help="the path of its pages behind a proxy")
    command.add_argument(
        "--host-name", action="append", default=[], metavar="NAME", help="a name by which browsers reach it, too"
    )
    command.add_argument("--tls-certificate", metavar="FILE", help="serve https: a PEM certificate with its chain")
    command.add_argument("--tls-key", metavar="FILE", help="the key of the certificate")
    command.add_argument("--write", action="store_true", help="let users change topics, groups and records")
    command.add_argument("--properties-from-stdin", action="store_true", help=argparse.SUPPRESS)  # of `kafkalite serve`


def run(options: argparse.Namespace) -> int:
    """Returns the exit code. Raises ConfigError."""
    bound_heap()  # large records come and go
    listener = metrics_listener(parse(options.listen))
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    properties = {} if options.command_config is None else read_properties(options.command_config)
    if options.properties_from_stdin:
        properties |= json.loads(sys.stdin.readline())
    try:
        from kafkalite.console.clusters import ServedCluster, read_clusters
        from kafkalite.console.server import ConsoleServer
    except ModuleNotFoundError as missing:
        raise ConfigError(f"{NEEDS} ({missing.name} is missing)") from None

    one = ServedCluster(options.bootstrap_server, properties, options.write, options.schema_registry)
    clusters = [one._replace(mirrors=options.mirrors)]
    if options.clusters is not None:
        clusters = read_clusters(options.clusters, may_write=options.write, read_properties=read_properties)
    server = ConsoleServer(
        clusters,
        listener.host,
        listener.port,
        version=version(),
        base=options.base_path,
        names=options.host_name,
        certificate=certificate_of(options),
    )
    if options.properties_from_stdin:
        threading.Thread(target=_end_with_parent, args=(server.stop,), name="parent", daemon=True).start()
    may = "may change the cluster" if options.write else "changes nothing (--write)"
    scheme = "http" if options.tls_certificate is None else "https"
    shows = options.bootstrap_server if options.clusters is None else ", ".join(one.name for one in clusters)
    say(f"the console is on {scheme}://{server.address}{options.base_path.rstrip('/')}/, shows {shows}, {may}")
    sys.stdout.flush()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    server.run()
    return 0


def certificate_of(options: argparse.Namespace) -> tuple[str, str] | None:
    """The files of the certificate and its key; None for http. Raises ConfigError."""
    if (options.tls_certificate is None) != (options.tls_key is None):
        raise ConfigError("--tls-certificate and --tls-key belong together")
    return None if options.tls_certificate is None else (options.tls_certificate, options.tls_key)


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
    """Calls `stop` when standard input ends: it is a pipe that the broker holds open."""
    sys.stdin.read()
    stop()


logger = logging.getLogger("kafkalite.console")

STARTS_MAX, STARTS_S = 5, 60.0
_AGAIN_S = 1.0
_END_S = 5.0
_PREFERRED = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL")


def client_of(config: BrokerConfig, ports: Mapping[str, int]) -> tuple[str, dict[str, str]]:
    """The address that the console connects to, and a client's properties for it: from the file that
    console.command.config names, or for the listener with the simplest security. Raises ConfigError."""
    given = read_properties(config.console_command_config) if config.console_command_config else {}
    wanted = given.get("security.protocol", "").strip().upper()
    candidates: list[ListenerConfig] = [one for one in config.listeners if wanted in ("", one.protocol)]
    if not candidates:
        raise ConfigError(f"console.command.config: no listener of this broker has security.protocol={wanted}")
    listener = min(candidates, key=lambda one: _PREFERRED.index(one.protocol))
    if listener.protocol.endswith("SSL") and not given:
        raise ConfigError(
            "the console needs the certificates that it is to trust: set console.command.config to a file of a "
            "client's properties (ssl.truststore...), or give the broker a listener on 127.0.0.1 without TLS"
        )
    host = LOOPBACK_OF.get(listener.host, listener.host)
    address = listener._replace(host=host, port=ports[listener.name]).address
    return address, {"security.protocol": listener.protocol, **given}


class ConsoleProcess:
    """Runs `command` from `start` to `stop`. `on_line` gets its lines, such as its address."""

    def __init__(
        self,
        command: Sequence[str],
        properties: Mapping[str, str],
        on_line: Callable[[str], None],
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
        again_s: float = _AGAIN_S,
    ) -> None:
        self._command = tuple(command)
        self._properties = json.dumps(dict(properties)).encode() + b"\n"
        self._on_line = on_line
        self._monotonic_s = monotonic_s
        self._again_s = again_s
        self._starts: deque[float] = deque(maxlen=STARTS_MAX)
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, config: BrokerConfig, ports: Mapping[str, int], on_line: Callable[[str], None]) -> ConsoleProcess:
        """The console of a broker with these settings. Raises ConfigError."""
        address, properties = client_of(config, ports)
        command = [sys.executable, "-m", "kafkalite", "console", "--properties-from-stdin"]
        command += ["--bootstrap", address, "--listen", config.console_listener]
        return cls([*command, *(["--write"] if config.console_write else [])], properties, on_line)

    def start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """End it, and wait for its end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _END_S)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _run(self) -> None:
        while True:
            now_s = self._monotonic_s()
            if len(self._starts) == STARTS_MAX and now_s - self._starts[0] < STARTS_S:
                logger.error("the console has ended %d times within %.0f s: it is not restarted", STARTS_MAX, STARTS_S)
                return
            self._starts.append(now_s)
            await self._run_once()
            await asyncio.sleep(self._again_s)

    async def _run_once(self) -> None:
        self._process = process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(self._properties)
        async for line in process.stdout:
            self._on_line(line.decode(errors="replace").rstrip())
        code = await process.wait()
        logger.warning("the console has ended with code %d", code)
