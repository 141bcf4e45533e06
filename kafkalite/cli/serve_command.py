"""`kafkalite serve`: a broker, or several that are one cluster, until a signal.

Modules that only some starts need are imported there: the broker is to be ready a quarter of a second after the process
started. Some options are for the program that starts it (`starter_contract`).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.cli.console_command import CONSOLE_LISTENER
from kafkalite.cli.starter_contract import ReadyFile, stop_event, watch_parent
from kafkalite.common.errors import ConfigError, StorageError
from kafkalite.common.options import settings_of_flag
from kafkalite.common.output import complain, say
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import LOOPBACK_OF
from kafkalite.config.properties import read_environment, read_properties

if TYPE_CHECKING:
    from kafkalite.cli.console_command import ConsoleProcess
    from kafkalite.server.broker import Broker


_FOR_ONE = ("faults", "fault", "control_token_file", "in_memory", "ready_file", "exit_with_parent")
_ACQUAINTANCE_S_MAX = 3.0
_COLLECTED_AFTER = 10_000
"""New objects, less those that are gone, after which the youngest are collected. A response about 2,000 topics has
6,000 for a moment. With Python's 700 that led to collections of all objects since the start, two thirds of its time."""
_LEVELS = ("debug", "info", "warning", "error")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of `kafkalite serve`."""
    command.description = "Run a broker until SIGTERM or Ctrl-C."
    command.add_argument("config", nargs="?", metavar="server.properties", help="settings, with Kafka's property names")
    command.add_argument("--config", dest="config_option", metavar="FILE", help="the same as server.properties")
    command.add_argument("--data-dir", metavar="DIR", help="the directory of all data (default: ./kafkalite-data)")
    command.add_argument(
        "--adopt",
        metavar="DIR[,DIR]",
        help="take over the data directories of a stopped Apache Kafka: its broker id, cluster and topics",
    )
    _add_arguments_of_several(command)
    command.add_argument(
        "--console",
        action="store_true",
        help=f"serve pages for the browser too, on {CONSOLE_LISTENER} (or console.listener); --override "
        "console.write=true lets users change the cluster",
    )
    command.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    command.add_argument("--port", type=int, help="port to listen on, 0 for any free one (default: 9092)")
    command.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting that wins over file and environment",
    )
    _add_arguments_for_tests(command)
    command.add_argument("--log-level", choices=_LEVELS, default="info", help="what to log on stderr (default: info)")
    command.add_argument("--version", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    for hidden in ("--lifeline", "--await-brokers", "--cpu"):  # see `local_cluster`
        command.add_argument(hidden, type=int, help=argparse.SUPPRESS)


def _core_count(text: str) -> int:
    """The count of --cores; for "auto" the cores that this process may use."""
    if text == "auto":
        from kafkalite.cli.local_cluster.broker_plan import usable_cores

        return usable_cores()
    if not text.isascii() or not text.isdigit() or len(text) > 6:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of cores, or auto")
    return int(text)


def _ports(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 5 and int(part) <= 65535 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} must be ports from 0 to 65535, separated by commas")
    return tuple(map(int, parts))


def _add_arguments_of_several(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        *("-n", "--brokers"),
        type=int,
        metavar="COUNT",
        help="run COUNT brokers as one cluster: ids and ports are counted up, data are in directories below the "
        "configured one; with a small ZooKeeper of their own, unless zookeeper.connect names one",
    )
    command.add_argument(
        "--cores",
        type=_core_count,
        metavar="COUNT|auto",
        help="serve with a broker on each of COUNT cores, as one server: ports are counted up, data are in directories "
        "below the configured one, new topics get COUNT partitions (see docs/scaling.md); the directory of a single "
        "broker is taken over",
    )
    command.add_argument("--ports", type=_ports, metavar="PORT,PORT", help="with --cores: the port of each broker")
    command.add_argument("--pin", action="store_true", help="with --cores: pin each broker to a core of its own")
    command.add_argument(
        "--zookeeper-listener",
        metavar="HOST:PORT",
        help="run a small ZooKeeper beside the broker or brokers, such as on 127.0.0.1:2181, for clients and tools "
        "that need one; its data are in `zookeeper` below the data directory. For this machine only (see "
        "docs/zookeeper.md)",
    )
    command.add_argument(
        "--zookeeper",
        choices=("kafkalite", "apache"),
        help="which ZooKeeper to run with -n or --cores: kafkalite's own (default), or Apache's, which needs Java",
    )
    command.add_argument(
        "--zookeeper-allow-remote",
        action="store_true",
        help="let --zookeeper-listener listen for other machines; anyone who reaches it may change the cluster",
    )


def _add_arguments_for_tests(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--faults",
        metavar="FILE",
        help="for tests of clients: make the faults that the file lists (docs/testing.md), YAML or JSON",
    )
    command.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="FAULT",
        help="for tests of clients: make one fault, such as error,api=PRODUCE,error=NOT_LEADER_OR_FOLLOWER,times=2 "
        "(docs/testing.md); may be given several times",
    )
    command.add_argument(
        "--control-token-file",
        metavar="FILE",
        help="for tests of clients: control faults, clock and data over HTTP on metrics.listener, with the token in "
        "the file (docs/testing.md)",
    )
    command.add_argument(
        "--in-memory",
        action="store_true",
        help="for tests: keep the data in memory, and remove them at the end; few partitions of internal topics, and "
        "groups that form at once, unless settings say otherwise",
    )
    command.add_argument(
        "--ready-file",
        metavar="FILE",
        help="write one line of JSON to this file when clients may connect: bootstrap_servers, port, pid, data_dir, "
        "metrics",
    )
    command.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="stop when the process that has started this one ends, even if it is killed",
    )


def configuration(options: argparse.Namespace, environment: Mapping[str, str]) -> BrokerConfig:
    """File, environment and command line together, the later winning. Raises ConfigError."""
    return BrokerConfig.load(_properties(options, environment))


def _properties(options: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, str]:
    """As `configuration`, as text by Kafka's names."""
    properties = (
        read_properties(options.config_option or options.config) if options.config_option or options.config else {}
    )
    properties.update(read_environment(environment))
    properties |= settings_of_flag("--override", options.override, "log.segment.bytes=1048576")
    if options.data_dir is not None and options.adopt is not None:
        raise ConfigError("--data-dir and --adopt both name the data directories; give one of them")
    if options.console:
        properties.setdefault("console.listener", CONSOLE_LISTENER)
    if options.in_memory:
        _put_in_memory(options, properties)
    if options.data_dir is not None or options.adopt is not None:
        properties.pop("log.dir", None)
        properties["log.dirs"] = options.adopt if options.data_dir is None else options.data_dir
    if options.adopt is not None and options.brokers is None and options.cores is None:
        from kafkalite.server.membership.single_broker import identity

        found = identity(BrokerConfig.load(properties).data_dirs)
        # with ZooKeeper the id comes from there, and the one in the directory may be generated
        is_alone = not properties.get("zookeeper.connect", "").strip()
        if found.broker_id is not None and is_alone and not {"broker.id", "node.id"} & properties.keys():
            properties["broker.id"] = str(found.broker_id)
    if options.port is not None or options.host is not None:
        properties["listeners"] = _one_listener(properties, options.host, options.port)
        properties.pop("advertised.listeners", None)  # it names the address that is replaced here
    return properties


def _put_in_memory(options: argparse.Namespace, properties: dict[str, str]) -> None:
    """Raises ConfigError if the command line names data directories, too."""
    if options.data_dir is not None or options.adopt is not None:
        raise ConfigError("--in-memory chooses the data directory; do not name one by --data-dir or --adopt")
    from kafkalite.server.broker import setting_text
    from kafkalite.testing.async_broker import AT_ONCE, NEVER_IDLE, SMALL
    from kafkalite.testing.data_directory import throwaway_path

    properties.pop("log.dir", None)
    properties["log.dirs"] = str(throwaway_path())
    for name, value in {**AT_ONCE, **NEVER_IDLE, **SMALL}.items():
        properties.setdefault(name.replace("_", "."), setting_text(value))


def _one_listener(properties: Mapping[str, str], host: str | None, port: int | None) -> str:
    """The configured listener with another host or port. Raises ConfigError if there are several."""
    listeners = BrokerConfig.load(properties).listeners
    if len(listeners) > 1:
        raise ConfigError("--host and --port are for one listener and there are several; use --override listeners=...")
    if port is not None and not 0 <= port <= 65535:
        raise ConfigError(f"--port {port} must be from 0 to 65535")
    host = listeners[0].host if host is None else host.removeprefix("[").removesuffix("]")
    return str(listeners[0]._replace(host=host, port=listeners[0].port if port is None else port))


def run(options: argparse.Namespace) -> int:
    """`kafkalite serve`. Returns the exit code. Raises ConfigError, StorageError."""
    import gc
    import logging

    from kafkalite.common.log_lines import LogLines

    properties = _properties(options, os.environ)
    config = BrokerConfig.load(properties)
    sender = f"broker {config.broker_id} " if options.lifeline is not None else ""  # several share one stderr
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines(f"%(asctime)s {sender}%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=options.log_level.upper())
    _raise_file_limit()
    if options.cpu is not None:
        os.sched_setaffinity(0, {options.cpu})
    make_broker = _make_broker(options, config)
    ready_file = None if options.ready_file is None else ReadyFile(options.ready_file)
    try:
        if _is_launcher(options):
            gc.enable()
            _serve_cluster(options, properties)
            return 0
        from kafkalite.log.storage.file_names import check_is_not_of_several

        check_is_not_of_several(config.data_dirs[0])
        gc.disable()  # until it serves; `main` did, and a fork has to
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(options, config, make_broker, ready_file))
    except KeyboardInterrupt:  # before the loop took over signals
        return 130
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return complain(f"{place}{error.strerror or error}")
    finally:
        if ready_file is not None:
            ready_file.remove()
    return 0


def _is_launcher(options: argparse.Namespace) -> bool:
    """Whether the brokers run in processes of their own, beside a ZooKeeper."""
    return any(each is not None for each in (options.brokers, options.cores, options.zookeeper_listener))


def _serve_cluster(options: argparse.Namespace, properties: Mapping[str, str]) -> None:
    """Raises ConfigError, OSError."""
    from kafkalite.cli.local_cluster import broker_plan
    from kafkalite.cli.local_cluster.launcher import serve_cluster
    from kafkalite.cli.local_cluster.own_zookeeper import parse_listener

    adopts, text = options.adopt is not None, options.zookeeper_listener
    address = None
    if text is not None:
        address = parse_listener(
            "--zookeeper-listener", text, allow_remote=options.zookeeper_allow_remote, remote="--zookeeper-allow-remote"
        )
    if options.cores is not None:
        cpus = tuple(sorted(os.sched_getaffinity(0))) if options.pin else ()
        cores = broker_plan.Cores(options.cores, options.ports or (), cpus)
        planned = broker_plan.plan_cores(properties, cores, adopts=adopts)
    elif options.brokers is not None:
        planned = broker_plan.plan(properties, options.brokers, adopts=adopts)
    else:
        planned = broker_plan.plan_alone(properties, adopts=adopts)
    serve_cluster(
        planned,
        options.log_level,
        run_command=_run_command,
        zookeeper=options.zookeeper,
        zookeeper_listener=address,
        allow_remote=options.zookeeper_allow_remote,
    )


def _run_command(arguments: Sequence[str]) -> int:
    """Runs `serve` or `zookeeper` with options, in a fork of this process. Returns the exit code."""
    from kafkalite.cli.command_parser import CommandParser
    from kafkalite.cli.exit_code import exit_code

    name, *options = arguments
    parser = CommandParser(prog=f"kafkalite {name}")
    if name == "zookeeper":
        from kafkalite.cli import zookeeper_command

        zookeeper_command.add_arguments(parser)
        return exit_code(lambda: zookeeper_command.run(parser.parse_args(options)))
    add_arguments(parser)
    return exit_code(lambda: run(parser.parse_args(options)))


def _make_broker(options: argparse.Namespace, config: BrokerConfig) -> Callable[[], Broker]:
    """The constructor of a plain broker, or of one that tests control. Raises ConfigError."""
    adopts = options.adopt is not None
    if _is_launcher(options) and (given := [name for name in _FOR_ONE if getattr(options, name)]):
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ConfigError(f"{names}: for one broker, not for several (--brokers, --cores, --zookeeper-listener)")
    if options.cores is not None and options.brokers is not None:
        raise ConfigError("--cores and --brokers both say how many brokers run here; give one of them")
    if options.cores is None and (options.ports is not None or options.pin):
        raise ConfigError("--ports and --pin are for --cores")
    is_controlled = options.faults is not None or options.fault or options.control_token_file is not None
    if not is_controlled and not options.in_memory:

        def make() -> Broker:
            from kafkalite.server.broker import Broker

            return Broker(config=config, adopt=adopts)

        return make
    from kafkalite.testing.controlled_broker import ControlledBroker

    return partial(ControlledBroker, config, adopts, options.faults, options.control_token_file, options.fault)


async def _serve(
    options: argparse.Namespace,
    config: BrokerConfig,
    make_broker: Callable[[], Broker],
    ready_file: ReadyFile | None,
) -> None:
    import gc

    stop_wanted = stop_event(options.lifeline)
    if options.exit_with_parent:
        watch_parent(stop_wanted.set)
    broker = make_broker()
    console: ConsoleProcess | None = None
    starting = asyncio.ensure_future(broker.start())
    waiting = asyncio.ensure_future(stop_wanted.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
    if starting.cancelled():
        return
    try:
        starting.result()  # raises the error of the start
        if options.await_brokers is not None:
            await _await_brokers(broker, options.await_brokers)
        if not stop_wanted.is_set():
            _announce(broker, config)
            if ready_file is not None:
                ready_file.write(broker)
            if config.console_listener:
                console = _start_console(broker, config)
            gc.freeze()  # modules and objects of the start live as long as the process: no collection visits them
            gc.set_threshold(_COLLECTED_AFTER, 10, 10)
            gc.enable()
        failing = asyncio.ensure_future(broker.failure())
        await asyncio.wait({waiting, failing}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            raise StorageError(failing.result())
        failing.cancel()
    finally:
        waiting.cancel()
        if ready_file is not None:
            ready_file.remove()
        if console is not None:
            await console.stop()
        await broker.stop()


async def _await_brokers(broker: Broker, count: int) -> None:
    """Waits until the broker knows `count` brokers, so that topics spread over all; not for long if one is missing."""
    metadata, are_all = broker.server.metadata, asyncio.Event()

    def on_change(*_: object) -> None:
        if len(metadata.brokers) >= count:
            are_all.set()

    unlisten = metadata.listen(on_change)
    on_change()
    with suppress(TimeoutError):
        await asyncio.wait_for(are_all.wait(), _ACQUAINTANCE_S_MAX)
    unlisten()


def _start_console(broker: Broker, config: BrokerConfig) -> ConsoleProcess:
    """Raises ConfigError."""
    from kafkalite.cli.console_command import ConsoleProcess

    def print_line(line: str) -> None:
        say(line)
        sys.stdout.flush()

    console = ConsoleProcess.of(config, broker.server.server.ports, print_line)
    console.start()
    return console


def _announce(broker: Broker, config: BrokerConfig) -> None:
    if broker.adopted is not None:
        for line in broker.adopted.lines():
            say(f"taken over: {line}")
    paths = map(Path, config.data_dirs)
    place = " and ".join(str(path) if path.is_absolute() else f"./{path}" for path in paths)
    address = broker.bootstrap_servers
    if config.listeners[0].host in LOOPBACK_OF:
        address += " and every other address of this machine"
    metrics = f", metrics on {broker.metrics_address}" if broker.metrics_address else ""
    say(f"kafkalite is ready on {address}, data in {place}, cluster {broker.cluster_id}{metrics}")
    sys.stdout.flush()


def _raise_file_limit() -> None:
    """Raises the limit of open files as far as the system allows: every segment, index and connection needs one."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return  # the soft limit stays, and it was enough to start
