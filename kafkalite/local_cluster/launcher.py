"""`kafkalite serve -n 3`: several brokers on one machine, and a ZooKeeper of our own if none is named.

Each is a process; this one begins them, watches them, and serves nobody.

    a broker or our ZooKeeper dies     it is told, and begun again after 1 s, later ones of the kind up to 30 s apart
    a broker is told to stop           (SIGTERM to that process) it stays away, the others go on
    SIGTERM, Ctrl-C                    the brokers stop in order, side by side, then our ZooKeeper; a second one kills
    this process dies                  the same, by themselves: each has a pipe that tells it
    the same command again             waits for what is left of an earlier one, then finds the same data

The lock on the directory is held by every process of the cluster, a second one by this process alone: so a start can
tell a cluster that runs from one that is about to be gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kafkalite.common.errors import ConfigError
from kafkalite.local_cluster.broker_plan import ClusterPlan, check_directory, plan, with_zookeeper
from kafkalite.local_cluster.broker_process import BrokerProcess
from kafkalite.local_cluster.zookeeper_process import ZooKeeperProcess, what_is_missing
from kafkalite.log.storage.file_names import LOCK

logger = logging.getLogger(__name__)

_AGAIN_AFTER_S_MIN = 1.0
_AGAIN_AFTER_S_MAX = 30.0
_LIVED_WELL_S = 60.0  # whoever dies after that much is begun again as if for the first time
_LEFTOVERS_LIMIT_S = 20.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def serve_cluster(properties: Mapping[str, str], count: int, log_level: str, *, adopts: bool = False) -> None:
    """Run `count` brokers until a signal. With `adopts` those whose directories have data take them over, as with
    --adopt for a single one. Raises ConfigError, OSError."""
    planned = plan(properties, count, adopts=adopts)
    missing = None if planned.connect else what_is_missing()
    if missing is not None:
        raise ConfigError(
            "several brokers need a ZooKeeper: name one (--override zookeeper.connect=HOST:2181), or let kafkalite "
            f"run one of its own, for which there is {missing}"
        )
    check_directory(planned.directory)
    with asyncio.Runner() as runner:
        runner.run(_serve(planned, log_level))


async def _serve(planned: ClusterPlan, log_level: str) -> None:
    told_to_stop = asyncio.Event()
    cluster: _Cluster | None = None
    loop = asyncio.get_running_loop()

    def on_signal(number: signal.Signals) -> None:
        if told_to_stop.is_set():
            if cluster is not None:
                cluster.kill()
            for each in _SIGNALS:
                loop.remove_signal_handler(each)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        told_to_stop.set()

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
    waiting = asyncio.ensure_future(told_to_stop.wait())
    try:
        with _locked(Path(planned.directory)) as lock, _pipe() as lifeline:
            if not await _alone(lock, planned.directory, waiting):
                return
            cluster = _Cluster(planned, log_level, lock, lifeline)
            try:
                await cluster.run(waiting)
            finally:
                await cluster.stop()
    finally:
        waiting.cancel()


class _Kept(Protocol):
    """A process that is kept going."""

    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int: ...
    async def start(self) -> None: ...
    async def ended(self) -> str | None: ...
    async def stop(self) -> None: ...
    def kill(self) -> None: ...


class _Cluster:
    """The ZooKeeper, if it is our own, and the brokers."""

    def __init__(self, planned: ClusterPlan, log_level: str, lock: int, lifeline: int) -> None:
        self._planned = planned
        self._log_level = log_level
        self._lock = lock
        self._lifeline = lifeline
        self._zookeeper: ZooKeeperProcess | None = None
        self._members: list[BrokerProcess] = []
        self._keeping: list[asyncio.Future[Any]] = []

    async def run(self, told_to_stop: asyncio.Future[Any]) -> None:
        """Returns when it is told to stop, or every broker was. Raises ConfigError if one cannot start."""
        starting: asyncio.Future[Any] = asyncio.ensure_future(self._start())
        await asyncio.wait({starting, told_to_stop}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.wait({starting})
        if starting.cancelled():
            return
        starting.result()  # raises what went wrong
        self._tell()
        brokers = [asyncio.ensure_future(self._keep(member)) for member in self._members]
        self._keeping = [*brokers]
        if self._zookeeper is not None:
            self._keeping.append(asyncio.ensure_future(_keep(self._zookeeper)))
        none_left: asyncio.Future[Any] = asyncio.ensure_future(asyncio.wait(brokers))
        await asyncio.wait({none_left, told_to_stop}, return_when=asyncio.FIRST_COMPLETED)
        if none_left.done():
            for keeping in brokers:
                keeping.result()
            logger.info("every broker was told to stop")
        none_left.cancel()

    async def stop(self) -> None:
        for task in self._keeping:
            task.cancel()
        if self._keeping:
            await asyncio.wait(self._keeping)
        await asyncio.gather(*(member.stop() for member in self._members))
        if self._zookeeper is not None:
            await self._zookeeper.stop()

    def kill(self) -> None:
        for each in (*self._members, self._zookeeper):
            if each is not None:
                each.kill()

    async def _start(self) -> None:
        plans = self._planned.members
        if not self._planned.connect:
            directory = Path(self._planned.directory) / "zookeeper"
            self._zookeeper = ZooKeeperProcess(directory, keep_open=[self._lock])
            await self._zookeeper.start()
            plans = tuple(with_zookeeper(member, self._zookeeper.connect) for member in plans)
        self._members = [BrokerProcess(each, self._log_level, self._lifeline, [self._lock]) for each in plans]
        for adopts in (True, False):  # whose data are taken over also brings the cluster's id
            await _together([member for member in self._members if member.plan.adopts is adopts])

    def _tell(self) -> None:
        """One line on stdout, like a single broker's."""
        ready = [member.ready for member in self._members if member.ready is not None]
        for member in self._members:
            if member.ready is not None:
                where, place = member.ready.bootstrap, member.ready.place
                logger.info("%s (process %d) serves on %s, data in %s", member.name, member.pid, where, place)
        path = Path(self._planned.directory)
        place = str(path) if path.is_absolute() else f"./{path}"
        connect = self._planned.connect or (self._zookeeper.connect if self._zookeeper is not None else "")
        print(
            f"kafkalite is ready on {','.join(each.bootstrap for each in ready)}, data in {place}, "
            f"cluster {ready[0].cluster_id}, ZooKeeper {connect}",
            flush=True,
        )

    async def _keep(self, member: BrokerProcess) -> None:
        await _keep(member)
        logger.info("%s was told to stop, and stays away", member.name)


async def _together(members: Sequence[BrokerProcess]) -> None:
    """Start all of them side by side, none without the others. Raises ConfigError, OSError."""
    starting = [asyncio.ensure_future(member.start()) for member in members]
    try:
        await asyncio.gather(*starting)
    except BaseException:
        for task in starting:
            task.cancel()
        await asyncio.wait(starting)
        raise


async def _keep(kept: _Kept) -> None:
    """Begin it again whenever it dies. Returns when it has ended in order."""
    again_after_s = _AGAIN_AFTER_S_MIN
    while True:
        since = time.monotonic()
        pid = kept.pid
        how = await kept.ended()
        if how is None:
            return
        if time.monotonic() - since > _LIVED_WELL_S:
            again_after_s = _AGAIN_AFTER_S_MIN
        while True:
            logger.error("%s (process %d) %s; it is begun again in %g s", kept.name, pid, how, again_after_s)
            await asyncio.sleep(again_after_s)
            again_after_s = min(_AGAIN_AFTER_S_MAX, 2 * again_after_s)
            try:
                await kept.start()
            except (ConfigError, OSError) as error:
                how = f"could not start: {error}"
                pid = kept.pid
                continue
            logger.info("%s (process %d) serves again", kept.name, kept.pid)
            break


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


async def _alone(lock: int, directory: str, told_to_stop: asyncio.Future[Any]) -> bool:
    """Wait for processes that an earlier one has left; False if told to stop meanwhile. Raises ConfigError."""
    deadline = time.monotonic() + _LEFTOVERS_LIMIT_S
    has_said_so = False
    while not told_to_stop.done():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # children keep it for as long as one of them lives
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise ConfigError(_in_use(directory)) from None
        if not has_said_so:
            has_said_so = True
            logger.info("waiting for what is left of an earlier cluster in %s", directory)
        await asyncio.wait({told_to_stop}, timeout=0.1)
    return False


def _in_use(directory: Path | str) -> str:
    return f"{directory} is in use: other brokers hold {Path(directory) / LOCK}; stop them, or give another --data-dir"


@contextlib.contextmanager
def _pipe() -> Iterator[int]:
    """The reading end of a pipe that nobody writes to. Its other end is closed at the end, or with this process."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)
