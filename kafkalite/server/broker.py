"""The broker as an object, for programs and for the command line.

    with Broker(data_dir="data", port=0) as broker:         # on an event loop in a thread of its own
    async with Broker(data_dir="data", port=0) as broker:   # in the running loop

A broker in a thread has its event loop there (`LoopThread`). Its parts are in `broker_server`. There is no module-level
state: many brokers live in one process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Future
from functools import wraps
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from kafkalite.common.errors import ConfigError
from kafkalite.common.forks import HomeProcess
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.listeners import PREFIX
from kafkalite.server.broker_server import BrokerServer
from kafkalite.server.host import Host

if TYPE_CHECKING:
    from kafkalite.cleaner.workers.worker_process import StartWorker
    from kafkalite.common.clock import Clock
    from kafkalite.server.membership.single_broker import Adopted
    from kafkalite.zk.client.zookeeper_config import Dial


_END_S = 1.0

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class OnLoop(Protocol[A_co]):
    """An object for other threads: `run` runs a coroutine on the loop that `asynchronous` belongs to."""

    @property
    def asynchronous(self) -> A_co: ...
    def run(self, work: Callable[[], Awaitable[R]]) -> R: ...


@overload
def blocking(method: Callable[Concatenate[A, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[OnLoop[A], P], R]: ...
@overload
def blocking(method: Callable[Concatenate[A, P], R]) -> Callable[Concatenate[OnLoop[A], P], R]: ...
def blocking(method: Callable[..., Any]) -> Callable[..., Any]:
    """The same method for other threads, with its documentation: runs it on the loop, and returns its result."""

    @wraps(method)
    def call(self: OnLoop[Any], *arguments: Any, **named: Any) -> Any:
        async def work() -> Any:
            result = method(self.asynchronous, *arguments, **named)
            return await result if isawaitable(result) else result

        return self.run(work)

    return call


class LoopThread:
    """Runs coroutines for other threads of its process, until it is closed. A forked child has no such thread."""

    def __init__(self) -> None:
        import uvloop

        self.home = HomeProcess()
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kafkalite", daemon=True)
        self._thread.start()

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        """Run the coroutine of `work` there. Raises RuntimeError in a forked child."""
        self.home.require("this broker")
        return asyncio.run_coroutine_threadsafe(work(), self._loop)

    def run(self, work: Callable[[], Any]) -> Any:
        """Run the coroutine of `work` there, wait until it is done and return its result. Raises its exception, or
        RuntimeError if the loop ends before it, and in a forked child."""
        try:
            return self.begin(work).result()
        except CancelledError:
            raise RuntimeError("the broker has ended in the meantime") from None

    def close(self) -> None:
        """Cancel all running work, which releases the threads that wait for it."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(_end_tasks())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


async def _end_tasks() -> None:
    await asyncio.sleep(0)  # calls that other threads have just submitted become tasks
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_END_S)


class RunningBroker:
    """The parts and addresses of a broker, valid while it runs: `_require` gives the parts, or raises RuntimeError."""

    def require_own(self) -> None:
        """Raises RuntimeError if the broker runs in another process, which has forked this one."""
        raise NotImplementedError

    def _require(self) -> BrokerServer:
        raise NotImplementedError

    @property
    def server(self) -> BrokerServer:
        """Its parts. Valid while the broker runs, in its own process."""
        self.require_own()
        return self._require()

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the first listener, as clients dial it. Valid while the broker runs."""
        return self._require().bootstrap_servers()

    @property
    def port(self) -> int:
        """The port of the first listener. Valid while the broker runs."""
        return self._require().first_port()

    @property
    def metrics_address(self) -> str | None:
        """host:port of the metrics endpoint; None if there is none. Valid while the broker runs."""
        endpoint = self._require().metrics
        return None if endpoint is None else endpoint.address

    @property
    def cluster_id(self) -> str:
        return self._require().metadata.cluster_id

    @property
    def adopted(self) -> Adopted | None:
        """The topics that were taken over from another broker at this start; None if there were none."""
        return self._require().adopted


class Broker(RunningBroker):
    """One broker, ready while entered; `bootstrap_servers` is for the configuration of clients.

    Settings come from `config`, or from keyword arguments named as Kafka's properties with underscores
    (`log_segment_bytes=1 << 20`). `port=0` takes any free port. `data_dir` is the first of its data directories, which
    keeps the metadata. With `adopt` exactly the topics that are found in the directories exist, regardless of
    earlier metadata. `dial_zookeeper` makes the connections to ZooKeeper (`kafkalite.testing` has one in this process),
    `start_cleaner` starts workers of the log cleaner, which are processes by default. `in_memory`: the directories are
    on no disk that a write or an fsync would wait for, so that no threads are needed for them.
    Raises ConfigError when it cannot start.
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        data_dir: str | Path | None = None,
        host: str | None = None,
        port: int | None = None,
        clock: Clock | None = None,
        adopt: bool = False,
        dial_zookeeper: Dial | None = None,
        start_cleaner: StartWorker | None = None,
        in_memory: bool = False,
        **settings: object,
    ) -> None:
        if config is None:
            config = _config_from(data_dir, host, port, settings)
        elif settings or data_dir is not None or host is not None or port is not None:
            raise ConfigError("give the broker either config or settings of their own, not both")
        self.config = config
        self.data_dir = Path(config.data_dirs[0])
        self._adopts = adopt
        self._stopping: asyncio.Future[None] | None = None
        self._clock = clock
        self._dial_zookeeper = dial_zookeeper
        self._start_cleaner = start_cleaner
        self._in_memory = in_memory
        self._running: BrokerServer | None = None
        self._home: HomeProcess | None = None  # from a start to a stop in order
        self._thread: LoopThread | None = None

    @property
    def is_inherited(self) -> bool:
        """Whether it was running in another process when that forked this one. Here only its addresses may be read;
        `stop` does nothing.
        """
        return self._home is not None and not self._home.is_here

    def require_own(self) -> None:
        if self._home is not None:
            self._home.require("this broker")

    async def start(self) -> None:
        """Start in the running loop; clients may connect when this returns."""
        self.require_own()
        if self._running is not None:
            raise RuntimeError("this broker is already running")
        host = Host(self._adopts, self._dial_zookeeper, self._start_cleaner, self._in_memory)
        running = BrokerServer(self.config, self._clock, host)
        await running.start()
        self._running, self._home = running, HomeProcess()
        running.failed.add_done_callback(self._on_failure)

    async def stop(self) -> None:
        """Answer the requests in flight, write everything to the disk, release it. Does nothing when stopped, and
        in a forked child."""
        if self.is_inherited:
            return
        running, self._running = self._running, None
        self._home = None
        if running is not None:
            await running.stop()
            running.failed.cancel()
        elif self._stopping is not None:
            await self._stopping

    async def kill(self) -> None:
        """End as after kill -9, for tests; see `BrokerServer.kill`."""
        self.require_own()
        running, self._running = self._require(), None
        await running.kill()

    async def failure(self) -> str:
        """Waits until the last data directory has failed, and the broker stops; returns why."""
        return await asyncio.shield(self._require().failed)

    def _on_failure(self, failed: asyncio.Future[str]) -> None:
        if not failed.cancelled():
            self._stopping = asyncio.ensure_future(self.stop())

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __enter__(self) -> Broker:
        thread = LoopThread()
        try:
            thread.run(self.start)
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_inherited:
            return
        thread, self._thread = self._thread, None
        assert thread is not None
        try:
            thread.run(self.stop)
        finally:
            thread.close()

    def _require(self) -> BrokerServer:
        if self._running is None:
            raise RuntimeError("this broker is not running: enter it with `with` or await start()")
        return self._running


def _config_from(
    data_dir: str | Path | None, host: str | None, port: int | None, settings: Mapping[str, object]
) -> BrokerConfig:
    properties = {name.replace("_", "."): setting_text(value) for name, value in settings.items()}
    for name in properties.keys() - BrokerConfig.by_name.keys():  # in a program a misspelt name is an error
        if name.startswith(PREFIX):
            continue  # `load` refuses invalid values
        from kafkalite.config.idle_settings import no_effect  # 180 names that most starts never need

        raise ConfigError(no_effect(name, BrokerConfig.by_name))
    if data_dir is not None:
        if properties.keys() & {"log.dirs", "log.dir"}:
            raise ConfigError("data_dir and log.dirs name the same: give one of them")
        properties["log.dirs"] = str(data_dir)
    if host is not None or port is not None:
        if "listeners" in properties:
            raise ConfigError("host and port are of the only listener: leave them out, or leave out listeners")
        address = host or "127.0.0.1"
        bracketed = f"[{address}]" if ":" in address else address
        properties["listeners"] = f"PLAINTEXT://{bracketed}:{9092 if port is None else port}"
    return BrokerConfig.load(properties)


def setting_text(value: object) -> str:
    """A setting's value as a properties file has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
