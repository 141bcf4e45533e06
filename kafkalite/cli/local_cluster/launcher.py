"""`kafkalite serve --cores 4`, `-n 3`: several brokers on one machine, and a ZooKeeper of our own if none is named.

Each is a process, a fork of this one where that is possible (`command_process`); this one starts and supervises them,
and serves no client but scrapers of the machine's metrics.

    a broker or our ZooKeeper dies     that is logged, and it is restarted at once, and after many deaths in a minute up
                                       to 30 s apart
    SIGTERM to one broker              it stops and is not restarted, the others continue
    SIGHUP                             one broker after another stops in order, handing over, and is started again
    SIGTERM, Ctrl-C                    the brokers stop in order, in parallel, then our ZooKeeper; a second one kills
    this process dies                  they stop by themselves, when the pipe that each reads from ends
    the same command again             waits for the processes of an earlier one, then finds the same data

Every process of the cluster holds a lock on the directory, and this process alone a second one: so a start can
distinguish a running cluster from one that is about to end.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalite.cli.local_cluster import broker_plan, single_broker_directory
from kafkalite.cli.local_cluster.broker_plan import ClusterPlan
from kafkalite.cli.local_cluster.broker_process import BrokerProcess, ChildProcess
from kafkalite.cli.local_cluster.command_process import CommandStarter, RunCommand
from kafkalite.cli.local_cluster.own_zookeeper import OwnZooKeeper, ZooKeeperChild, ZooKeeperMaker, zookeeper_maker
from kafkalite.cli.local_cluster.supervision import Supervisor
from kafkalite.common.errors import ConfigError
from kafkalite.log.storage.file_names import LOCK
from kafkalite.log.storage.files import Files

if TYPE_CHECKING:
    from kafkalite.cli.local_cluster.machine_metrics import BrokerState
    from kafkalite.server.metrics_endpoint import MetricsEndpoint

logger = logging.getLogger(__name__)

_EARLIER_LIMIT_S = 20.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve_cluster(
    planned: ClusterPlan,
    log_level: str,
    *,
    run_command: RunCommand | None = None,
    zookeeper: str | None = None,
    zookeeper_listener: tuple[str, int] | None = None,
    allow_remote: bool = False,
) -> None:
    """Run the brokers of a plan until a signal, and a ZooKeeper if none is named: `zookeeper` is KAFKALITE or APACHE,
    None for the one whose data are there, or else ours. `run_command`: for children that are forks of this process,
    which may be. Raises ConfigError, OSError."""
    make_zookeeper = None
    if planned.connect:
        if zookeeper is not None or zookeeper_listener is not None:
            raise ConfigError("zookeeper.connect names a ZooKeeper, and --zookeeper or --zookeeper-listener another")
    else:
        directory = Path(planned.zookeeper_directory)
        make_zookeeper = zookeeper_maker(directory, zookeeper, zookeeper_listener, log_level, allow_remote=allow_remote)
    if planned.directory != planned.zookeeper_directory and not planned.moves:
        broker_plan.check_directory(planned.directory)
    with asyncio.Runner() as runner:
        runner.run(_serve(planned, log_level, make_zookeeper, CommandStarter(run_command)))


async def _serve(
    planned: ClusterPlan, log_level: str, make_zookeeper: ZooKeeperMaker | None, commands: CommandStarter
) -> None:
    stop_requested = asyncio.Event()
    cluster: _LocalCluster | None = None
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if stop_requested.is_set():
            if cluster is not None:
                cluster.kill()
            for each in _SIGNALS:
                loop.remove_signal_handler(each)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop_requested.set()

    def on_restart() -> None:
        if cluster is not None and not stop_requested.is_set():
            cluster.restart()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    loop.add_signal_handler(signal.SIGHUP, on_restart)
    waiting = asyncio.ensure_future(stop_requested.wait())
    try:
        with _locked(Path(planned.directory)) as lock, _pipe() as lifeline:
            if not await _wait_for_earlier(lock, planned.directory, waiting):
                return
            if planned.moves:
                single_broker_directory.carry_out(planned.moves, Files())
                logger.info("the data of a single broker are in %s now", planned.moves[0][1])
            cluster = _LocalCluster(planned, log_level, make_zookeeper, commands, lock, lifeline)
            try:
                await cluster.run(waiting)
            finally:
                await cluster.stop()
    finally:
        waiting.cancel()


class _LocalCluster:
    """The ZooKeeper, if it is our own, and the brokers."""

    def __init__(
        self,
        planned: ClusterPlan,
        log_level: str,
        make_zookeeper: ZooKeeperMaker | None,
        commands: CommandStarter,
        lock: int,
        lifeline: int,
    ) -> None:
        self._planned = planned
        self._log_level = log_level
        self._make_zookeeper = make_zookeeper
        self._commands = commands
        self._lock = lock
        self._lifeline = lifeline
        self._zookeeper: ZooKeeperChild | None = None
        self._brokers: list[BrokerProcess] = []
        self._supervisors: list[Supervisor] = []
        self._tasks: list[asyncio.Future[Any]] = []
        self._restarting: asyncio.Future[None] | None = None
        self._metrics: MetricsEndpoint | None = None

    async def run(self, stop_requested: asyncio.Future[Any]) -> None:
        """Returns when a stop is requested or every broker has been stopped. Raises ConfigError if one cannot start."""
        starting: asyncio.Future[Any] = asyncio.ensure_future(self._start())
        await asyncio.wait({starting, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
        if starting.cancelled():
            return
        starting.result()  # raises what went wrong
        self._supervisors = [Supervisor(broker) for broker in self._brokers]
        await self._start_metrics()
        self._report_ready()
        brokers = [asyncio.ensure_future(self._supervise(each)) for each in self._supervisors]
        self._tasks = [*brokers]
        if self._zookeeper is not None:
            self._tasks.append(asyncio.ensure_future(Supervisor(self._zookeeper).run()))
        none_left: asyncio.Future[Any] = asyncio.ensure_future(asyncio.wait(brokers))
        await asyncio.wait({none_left, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
        if none_left.done():
            for supervisor in brokers:
                supervisor.result()
            logger.info("every broker has been stopped")
        none_left.cancel()

    def restart(self) -> None:
        """Restart the brokers in turn, in the background. A request during a restart does nothing."""
        if self._supervisors and (self._restarting is None or self._restarting.done()):
            self._restarting = asyncio.ensure_future(self._restart_in_turn())

    async def _restart_in_turn(self) -> None:
        logger.info("the brokers are restarted one after another")
        self._commands.renounce_forks()  # there may be a new version of the package
        for supervisor in self._supervisors:
            await supervisor.restart()
        logger.info("the brokers were restarted")

    async def stop(self) -> None:
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait({self._restarting})
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._metrics is not None:
            await self._metrics.stop()
        await asyncio.gather(*(broker.stop() for broker in self._brokers))
        if self._zookeeper is not None:
            await self._zookeeper.stop()

    def kill(self) -> None:
        for each in (*self._brokers, self._zookeeper):
            if each is not None:
                each.kill()

    async def _start(self) -> None:
        plans = self._planned.brokers
        first: list[ChildProcess] = []
        if self._make_zookeeper is not None:
            self._zookeeper = self._make_zookeeper(self._commands, self._lifeline, [self._lock])
            if isinstance(self._zookeeper, OwnZooKeeper) and self._zookeeper.listen():
                first.append(self._zookeeper)  # brokers import their modules meanwhile
            else:
                await self._zookeeper.start()
            plans = tuple(broker_plan.with_zookeeper(broker, self._zookeeper.connect) for broker in plans)
        self._brokers = [
            BrokerProcess(
                self._commands,
                each,
                self._log_level,
                self._lifeline,
                [self._lock],
                acquaintances=1 if each.adopts else len(plans),
            )
            for each in plans
        ]
        adopters = [broker for broker in self._brokers if broker.plan.adopts]
        if adopters:  # a broker whose data are taken over also brings the cluster id
            await _together([*first, *adopters])
            first = []
        await _together([*first, *(broker for broker in self._brokers if not broker.plan.adopts)])

    def _report_ready(self) -> None:
        """One line on stdout, like a single broker's."""
        ready = [broker.ready for broker in self._brokers if broker.ready is not None]
        for broker in self._brokers:
            if broker.ready is not None:
                where, data_dir = broker.ready.bootstrap, broker.ready.data_dir
                logger.info("%s (process %d) serves on %s, data in %s", broker.name, broker.pid, where, data_dir)
        path = Path(self._planned.directory)
        if self._planned.directory == self._planned.zookeeper_directory:
            path = path.parent
        place = str(path) if path.is_absolute() else f"./{path}"
        connect = self._planned.connect or (self._zookeeper.connect if self._zookeeper is not None else "")
        print(
            f"kafkalite is ready on {','.join(each.bootstrap for each in ready)}, data in {place}, "
            f"cluster {ready[0].cluster_id}, ZooKeeper {connect}"
            + (f", metrics on {self._metrics.address}" if self._metrics is not None else ""),
            flush=True,
        )

    async def _start_metrics(self) -> None:
        """Raises ConfigError if the address cannot be bound."""
        if self._planned.metrics_listener:
            from kafkalite.cli.local_cluster.machine_metrics import machine_endpoint

            endpoint = machine_endpoint(self._planned.metrics_listener, self._states)
            await endpoint.start()
            self._metrics = endpoint

    def _states(self) -> list[BrokerState]:
        from kafkalite.cli.local_cluster.machine_metrics import BrokerState

        return [
            BrokerState(broker.plan.broker_id, each.is_up, each.restarts, broker.ready and broker.ready.metrics)
            for broker, each in zip(self._brokers, self._supervisors, strict=True)
        ]

    async def _supervise(self, broker: Supervisor) -> None:
        await broker.run()
        logger.info("%s was stopped, and is not restarted", broker.process.name)


async def _together(processes: Sequence[ChildProcess]) -> None:
    """Start all of them in parallel, or none. Raises ConfigError, OSError."""
    starting = [asyncio.ensure_future(process.start()) for process in processes]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for task in starting:
            task.cancel()
        await asyncio.wait(starting)
        raise


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[int]:
    """A descriptor of the directory's lock file, which this process has for itself. Raises ConfigError, OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOCK
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # children have no part in it
        except OSError as error:
            raise ConfigError(_in_use(directory)) from error
        yield lock
    finally:
        os.close(lock)


async def _wait_for_earlier(lock: int, directory: str, stop_requested: asyncio.Future[Any]) -> bool:
    """Wait for processes of an earlier cluster; False if a stop is requested meanwhile. Raises ConfigError."""
    deadline = time.monotonic() + _EARLIER_LIMIT_S
    is_logged = False
    while not stop_requested.done():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # children keep it for as long as one of them lives
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ConfigError(_in_use(directory)) from None
        if not is_logged:
            is_logged = True
            logger.info("waiting for the last processes of an earlier cluster in %s", directory)
        await asyncio.wait({stop_requested}, timeout=0.1)
    return False


def _in_use(directory: Path | str) -> str:
    return f"{directory} is in use: other brokers hold {Path(directory) / LOCK}; stop them, or give another --data-dir"


@contextlib.contextmanager
def _pipe() -> Iterator[int]:
    """The reading end of a pipe without data. Its other end is closed when this process leaves the block, or ends."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)
