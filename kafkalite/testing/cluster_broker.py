"""One broker of a cluster in this process: an event loop in a thread of its own, which can be killed like a process.

A killed broker sends nothing more: its sockets are closed, its files stay as they are, its loop never runs again. The
kill returns after the work of the broker's other threads, so nothing writes to the directory at its next start.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalite.common.clock import SystemClock, date_ms
from kafkalite.common.errors import ConfigError
from kafkalite.server.broker import Broker, LoopThread
from kafkalite.testing.faults.faults import Faults
from kafkalite.testing.requests.interception import Interception

if TYPE_CHECKING:
    from kafkalite.server.broker_server import BrokerServer
    from kafkalite.testing.share_groups import ShareGroup
    from kafkalite.testing.zookeeper.in_memory_zookeeper import ZooKeeperLine

HOST = "127.0.0.1"

Result = TypeVar("Result")


class _ProcessClock(SystemClock):
    """The machine's clock with the date of the process, which a test may have set."""

    __slots__ = ()
    wall_ms = staticmethod(date_ms)


class ClusterBroker:
    """A running or stopped broker. It keeps its port over restarts, if it is still free.

    `line` is its connection to ZooKeeper, `faults` are active while it runs. `settings` are those of its next start,
    named like the arguments of `kafkalite.Broker`.
    """

    def __init__(self, broker_id: int, data_dir: Path, line: ZooKeeperLine, settings: Mapping[str, Any]) -> None:
        self.broker_id = broker_id
        self.data_dir = data_dir
        self.line = line
        self.settings = dict(settings)
        self.port = 0
        self._broker: Broker | None = None
        self._thread: LoopThread | None = None
        self._may_run = threading.Event()
        self._may_run.set()
        self._is_blocked = threading.Event()
        self._interception = Interception()
        self.faults = Faults(self._interception, lambda: self.server, self.call)

    def __repr__(self) -> str:
        return f"ClusterBroker({self.broker_id}, {'running' if self.is_running else 'stopped'})"

    @property
    def is_running(self) -> bool:
        return self._thread is not None

    @property
    def is_connected(self) -> bool:
        """Whether it runs and reaches ZooKeeper."""
        return self._broker is not None and self.line.is_open

    @property
    def is_paused(self) -> bool:
        return not self._may_run.is_set()

    @property
    def bootstrap_servers(self) -> str:
        """host:port, also while it does not run. Valid after its first start."""
        return f"{HOST}:{self.port}"

    @property
    def server(self) -> BrokerServer:
        """The parts of the running broker, which belong to its own thread: others may read them."""
        if self._broker is None:
            raise RuntimeError(f"broker {self.broker_id} is not running")
        return self._broker.server

    def begin_start(self) -> Future[None]:
        """Start it; the future ends when clients may connect. Follow it with `finish_start`."""
        if self._thread is not None:
            raise RuntimeError(f"broker {self.broker_id} is running already")
        self._thread = LoopThread()
        return self._thread.begin(self._start)

    def finish_start(self, starting: Future[None]) -> None:
        """Wait for the end of a start. Raises its error; the broker does not run then."""
        try:
            starting.result()
        except BaseException:
            self._close()
            raise

    def stop(self) -> None:
        """Stop it in order. Does nothing when it does not run."""
        if self._broker is not None and self._thread is not None:
            self._thread.home.require("this broker")
            self.resume()
            self.faults.clear()
            broker, self._broker = self._broker, None
            try:
                self._thread.run(broker.stop)
            finally:
                self._close()

    def kill(self) -> None:
        """End it as kill -9 would; its session with ZooKeeper stays until its timeout. Does nothing when it does not
        run."""
        if self._broker is not None and self._thread is not None:
            server = self._broker.server
            broker, self._broker = self._broker, None
            self.line.abandon()
            self.resume()
            try:
                self._thread.run(broker.kill)
            finally:
                self._close()
                server.end_threads()

    def share_group(self, group: str) -> ShareGroup:
        """The share group as far as this running broker has it: the group if it coordinates it, and the partitions that
        it leads. `Cluster.share_group` has all of it."""
        from kafkalite.testing.share_groups import AsyncShareGroup, ShareGroup

        return ShareGroup(AsyncShareGroup(lambda: self.server, group), self.call)

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function on the thread of the broker, which may change what belongs to it, and return its result."""

        async def called() -> Result:
            return function()

        return self.run(called)

    def run(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run a coroutine of `work` on the thread of the broker, and return its result."""
        if self._thread is None:
            raise RuntimeError(f"broker {self.broker_id} is not running")
        result: Result = self._thread.run(work)
        return result

    def pause(self) -> None:
        """Pause it until `resume`, as SIGSTOP would: connections stay, and it does not answer."""
        if self._thread is not None and not self.is_paused:
            self.line.silence()
            self._may_run.clear()
            self._is_blocked.clear()
            self._thread.begin(self._block)
            self._is_blocked.wait()

    def resume(self) -> None:
        """The end of `pause`. Does nothing when it is not paused."""
        if self.is_paused:
            self.line.end_silence()
            self._may_run.set()

    async def _block(self) -> None:
        self._is_blocked.set()
        self._may_run.wait()

    async def _start(self) -> None:
        broker = self._new_broker(self.port)
        try:
            await broker.start()
        except ConfigError:
            if not self.port:
                raise
            broker = self._new_broker(0)  # the port may be taken
            await broker.start()
        self.port = broker.port
        self._broker = broker
        self.faults.forget_connections()
        self._interception.attach(broker.server.server)

    def _new_broker(self, port: int) -> Broker:
        return Broker(
            data_dir=self.data_dir,
            host=HOST,
            port=port,
            clock=_ProcessClock(asyncio.get_running_loop()),
            dial_zookeeper=self.line.dial,
            broker_id=self.broker_id,
            **self.settings,
        )

    def _close(self) -> None:
        thread, self._thread = self._thread, None
        self._broker = None
        assert thread is not None
        thread.close()
