"""One broker of several: `kafkalite serve` in a process of its own, from its start to its end.

It gets its settings through a deleted file, so that a password is neither on a disk nor in the list of processes. It
reads from a pipe, its lifeline, whose other end is here, and stops in order when that end is closed. So no broker
outlives the process that started it, however that process ended.

The settings of each broker are derived from those of one:

    broker.id         counted up from the configured one (0)
    listeners         ports counted up from the configured ones; port 0 stays any free one. advertised.listeners and
                      metrics.listener likewise
    log.dirs          a directory `broker<id>` in each that is configured; the first also has `zookeeper`, for our own

The name of such a directory has no dash before its number: with a dash it would be a partition's, if the directory
around it were ever taken for a broker's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import printable
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import ListenerConfig, metrics_listener
from kafkalite.log.storage.file_names import META_PROPERTIES

BROKERS_MAX = 100  # each is a process of 30 MB
OWN_SESSION_TIMEOUT_MS = 6_000  # with a ZooKeeper beside us, where no network is in between (Kafka's default: 18 s)
_PORT_MAX = 65_535
ZOOKEEPER = "zookeeper"
"""The name of the directory of a ZooKeeper of our own. It has no dash, as that of a partition has."""


class BrokerPlan(NamedTuple):
    """One broker: its id and all its settings, as text by Kafka's names. `adopts`: it takes over the data in its
    directories when it is started for the first time."""

    broker_id: int
    properties: Mapping[str, str]
    adopts: bool = False


class ClusterPlan(NamedTuple):
    """`directory` has the lock that all share, `zookeeper_directory` the data of a ZooKeeper of our own. `connect` is
    the ZooKeeper that was named, empty if none was."""

    brokers: tuple[BrokerPlan, ...]
    directory: str
    zookeeper_directory: str
    connect: str


def plan(properties: Mapping[str, str], count: int, *, adopts: bool = False) -> ClusterPlan:
    """Plans `count` brokers from `properties`, which are meant for one. With `adopts` the brokers whose directories
    have data take them over. Raises ConfigError."""
    if not 1 <= count <= BROKERS_MAX:
        raise ConfigError(f"-n {count} must be from 1 to {BROKERS_MAX} brokers")
    config = BrokerConfig.load(properties)
    first_id = max(0, config.broker_id)
    brokers = tuple(BrokerPlan(first_id + i, _properties_of(properties, config, first_id + i, i)) for i in range(count))
    if adopts:
        brokers = tuple(broker._replace(adopts=_has_data(broker)) for broker in brokers)
        if not any(broker.adopts for broker in brokers):
            raise ConfigError(
                f"--adopt: there is nothing to take over in {brokers[0].properties['log.dirs']} and further brokers' "
                f"directories; move that of a single broker to {config.data_dirs[0]}/broker{first_id}"
            )
    _check_ports([BrokerConfig.load(broker.properties) for broker in brokers])
    directory = config.data_dirs[0]
    connect = properties.get("zookeeper.connect", "").strip()
    return ClusterPlan(brokers, directory, os.path.join(directory, ZOOKEEPER), connect)


def plan_alone(properties: Mapping[str, str], *, adopts: bool = False) -> ClusterPlan:
    """Plans one broker with a ZooKeeper of our own beside it, whose data are in a directory of the broker's. The broker
    has its directories, ports and id as if it were alone. Raises ConfigError."""
    config = BrokerConfig.load(properties)
    if properties.get("zookeeper.connect", "").strip():
        raise ConfigError("--zookeeper-listener is for a ZooKeeper of our own, and zookeeper.connect names another")
    check_is_not_of_several(config.data_dirs[0])
    own = {name: text for name, text in properties.items() if name not in ("node.id", "log.dir")}
    own |= {"broker.id": str(max(0, config.broker_id)), "log.dirs": ",".join(config.data_dirs)}
    directory = os.path.join(config.data_dirs[0], ZOOKEEPER)
    return ClusterPlan((BrokerPlan(max(0, config.broker_id), own, adopts),), directory, directory, "")


def with_zookeeper(broker: BrokerPlan, connect: str) -> BrokerPlan:
    """The same broker with a ZooKeeper of our own."""
    own = {"zookeeper.session.timeout.ms": str(OWN_SESSION_TIMEOUT_MS), **broker.properties}
    return broker._replace(properties={**own, "zookeeper.connect": connect})


def check_directory(directory: str) -> None:
    """Raises ConfigError when this is the directory of a single broker, which would seem to have lost its topics."""
    try:
        names = os.listdir(directory)
    except OSError:
        return  # it does not exist yet; or the first write there reports the fault
    if META_PROPERTIES in names and not any(name.startswith("broker") for name in names):
        raise ConfigError(
            f"{directory} holds the data of a single broker; give several brokers another --data-dir. "
            "docs/zookeeper.md says how a single broker becomes one of a cluster"
        )


def check_is_not_of_several(directory: str) -> None:
    """Raises ConfigError when a single broker is given the directory of several, whose topics it would not have."""
    first = next(iter(sorted(Path(directory).glob(f"broker[0-9]*/{META_PROPERTIES}"))), None)
    if first is not None and not os.path.exists(os.path.join(directory, META_PROPERTIES)):
        raise ConfigError(
            f"{directory} holds the data of several brokers, such as {first.parent.name}: start them with -n, or give "
            "a single broker another --data-dir (log.dirs)"
        )


def _has_data(broker: BrokerPlan) -> bool:
    return any(os.path.exists(os.path.join(one, META_PROPERTIES)) for one in broker.properties["log.dirs"].split(","))


def _properties_of(properties: Mapping[str, str], config: BrokerConfig, broker_id: int, step: int) -> dict[str, str]:
    own = {name: text for name, text in properties.items() if name not in ("node.id", "log.dir")}
    own["broker.id"] = str(broker_id)
    own["log.dirs"] = ",".join(os.path.join(directory, f"broker{broker_id}") for directory in config.data_dirs)
    own["listeners"] = _counted_up(config.listeners, step)
    if config.advertised_listeners:
        own["advertised.listeners"] = _counted_up(config.advertised_listeners, step)
    else:
        own.pop("advertised.listeners", None)  # it is empty
    if step:
        own.pop("console.listener", None)  # one console shows them all
    if config.metrics_listener:
        own["metrics.listener"] = _step(metrics_listener(config.metrics_listener), step).address
    return own


def _counted_up(listeners: Sequence[ListenerConfig], step: int) -> str:
    return ",".join(str(_step(listener, step)) for listener in listeners)


def _step(listener: ListenerConfig, step: int) -> ListenerConfig:
    if listener.port + step > _PORT_MAX:
        raise ConfigError(f"listeners: {listener} leaves no ports to count up to; the last one is {_PORT_MAX}")
    return listener._replace(port=listener.port + step if listener.port else 0)


def _check_ports(configs: Sequence[BrokerConfig]) -> None:
    taken: dict[int, int] = {}
    for config in configs:
        used = [*config.listeners, *([metrics_listener(config.metrics_listener)] if config.metrics_listener else [])]
        for port in {listener.port for listener in used} - {0}:
            if port in taken:
                raise ConfigError(
                    f"listeners: with {len(configs)} brokers every port is counted up, and {port} would be used by "
                    f"broker {taken[port]} and by broker {config.broker_id}; leave {len(configs)} ports between two"
                )
            taken[port] = config.broker_id


logger = logging.getLogger(__name__)


class ChildProcess:
    """Started and stopped by one event loop, as often as wanted. `keep_open` are descriptors that the process holds,
    too, such as the lock on the directory. A process that does not stop within `stop_limit_s` is killed."""

    name: str
    stop_limit_s: float

    def __init__(self, keep_open: Sequence[int] = ()) -> None:
        self._keep_open = tuple(keep_open)
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Returns when the process serves. Raises ConfigError, OSError."""
        raise NotImplementedError

    async def ended(self) -> str | None:
        """Waits until the process has ended; returns how. None: in order, after a request to stop."""
        assert self._process is not None
        code = await self._process.wait()
        return None if code == 0 else describe_exit(code)

    async def stop(self) -> None:
        """Stop in order. Does nothing when the process does not run."""
        await self._end(signal.SIGTERM)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        try:
            async with asyncio.timeout(self.stop_limit_s):
                await self._process.wait()
        except TimeoutError:
            limit_s = self.stop_limit_s
            logger.warning("%s (process %d) did not stop within %g s, and is killed", self.name, self.pid, limit_s)
            self.kill()
            await self._process.wait()


def describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {-code} ({name})"


_READY = re.compile(r"kafkalite is ready on (\S+?)(?: and every other .*?)?, data in (.*), cluster (\S+)")


class Ready(NamedTuple):
    """The contents of the line that a broker prints when it is ready."""

    bootstrap: str
    data_dir: str
    cluster_id: str


class BrokerProcess(ChildProcess):
    """A broker with the settings of `plan`. `lifeline` is the end of a pipe that the broker reads from."""

    stop_limit_s = 30.0

    def __init__(self, plan: BrokerPlan, log_level: str, lifeline: int, keep_open: Sequence[int] = ()) -> None:
        super().__init__(keep_open)
        self.plan = plan
        self.name = f"broker {plan.broker_id}"
        self.ready: Ready | None = None
        self._adopts = plan.adopts
        self._log_level = log_level
        self._lifeline = lifeline
        self._output: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Returns when the broker serves. Raises ConfigError if it ends before that (it has printed the reason);
        OSError.
        """
        self.ready = None
        adopting = ("--adopt", self.plan.properties["log.dirs"]) if self._adopts else ()
        import tempfile  # random and shutil come with it, which a single broker needs for nothing else

        with tempfile.TemporaryFile("w+", encoding="utf-8") as settings:
            settings.write(_properties_text(self.plan))
            settings.seek(0)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "kafkalite", "serve", f"/dev/fd/{settings.fileno()}"),
                *("--log-level", self._log_level, "--lifeline", str(self._lifeline), *adopting),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                env=child_environment(),
                start_new_session=True,  # Ctrl-C is for the process that started it, which stops the brokers in order
                pass_fds=(settings.fileno(), self._lifeline, *self._keep_open),
            )
            assert self._process.stdout is not None
            try:
                async for line in self._process.stdout:
                    text = line.decode(errors="replace").rstrip("\n")
                    if found := _READY.match(text):
                        self.ready = Ready(*found.groups())
                        break
                    print(f"{self.name}: {text}", flush=True)
            except BaseException:
                self.kill()
                raise
        if self.ready is None:
            raise ConfigError(f"{self.name} {describe_exit(await self._process.wait())} before it was ready")
        self._adopts = False  # once, and not when it is restarted
        self._output = asyncio.ensure_future(self._print_output(self._process.stdout))

    async def stop(self) -> None:
        await super().stop()
        if self._output is not None:
            await self._output

    async def _print_output(self, stream: asyncio.StreamReader) -> None:
        async for line in stream:
            print(f"{self.name}: {printable(line.decode(errors='replace').rstrip())}", flush=True)


def _properties_text(plan: BrokerPlan) -> str:
    return "".join(f"{_escaped(name)}={_escaped(text)}\n" for name, text in plan.properties.items())


def _escaped(text: str) -> str:
    """The text for a Java properties file: separators and characters beyond ASCII become \\u escapes."""
    units = text.encode("utf-16-be", "surrogatepass")
    numbers = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(n) if 0x30 <= n < 0x7F and chr(n) not in "\\:=" else f"\\u{n:04x}" for n in numbers)


def child_environment() -> dict[str, str]:
    """An environment in which a child finds every module that this process finds. A broker has its settings in its
    plan."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("KAFKA_")}
    paths = [os.path.abspath(path) for path in sys.path]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if os.pathsep not in path)
    return environment
