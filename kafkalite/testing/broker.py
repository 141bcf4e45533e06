"""A broker for tests and programs, as a plain object: `kafkalite.Broker`.

    with Broker() as broker:                        # in memory, on a free port, ready when the block is entered
        broker.create_topic("orders", partitions=3)
        ...                                         # any Kafka client, with broker.bootstrap_servers
        broker.topic("orders").has(key="a", within=5)

    async with Broker() as broker:                  # an AsyncBroker in the running loop: the same, with coroutines

In a `with` block the broker runs on an event loop in a thread of its own, and every method may be called from any other
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kafkalite.server.broker import LoopThread, RunningBroker, blocking
from kafkalite.testing.async_broker import AsyncBroker, AsyncTopicHandle
from kafkalite.testing.broker_clock import BrokerClock

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.server.broker_server import BrokerServer
    from kafkalite.testing.faults.disruptions import UnflushedTail
    from kafkalite.testing.faults.faults import Faults
    from kafkalite.testing.maintenance import GroupDescription
    from kafkalite.testing.requests.request_log import RequestLog
    from kafkalite.testing.share_groups import ShareGroup
    from kafkalite.zk.client.zookeeper_config import Dial

Result = TypeVar("Result")


class Broker(RunningBroker):
    """One broker, ready while entered; `bootstrap_servers` is for the configuration of clients.

    Settings come from `config`, or from keyword arguments named as Kafka's properties with underscores
    (`log_segment_bytes=1 << 20`). Without `port`, or with 0, it uses any free one.

    Without `data_dir` the data are in memory if there is room, else in a temporary directory, and are removed at the
    end. With it they stay there, and a later broker continues with them. Groups form at once, unless
    `group_initial_rebalance_delay_ms` is given. With `adopt` exactly the topics that are found in the directories
    exist, regardless of earlier metadata. Raises ConfigError when it cannot start.
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
        snapshot: str | Path | None = None,
        **settings: object,
    ) -> None:
        self.asynchronous = AsyncBroker(
            config, data_dir=data_dir, host=host, port=port, clock=clock, adopt=adopt, dial_zookeeper=dial_zookeeper,
            snapshot=snapshot, **settings,
        )  # fmt: skip
        self._thread: LoopThread | None = None
        self._has_crashed = False
        self.asynchronous.faults_arguments = self._on_loop, self

    @classmethod
    def from_snapshot(cls, path: str | Path, **settings: Any) -> Broker:
        """A broker whose data begin with a copy of a `snapshot`. `settings` as for any other."""
        return cls(snapshot=path, **settings)

    def __enter__(self) -> Broker:
        self.require_own()
        thread = LoopThread()
        try:
            thread.run(self.asynchronous.start)
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(self, *_: object) -> None:
        if self.asynchronous.is_inherited:
            return
        if self._has_crashed:
            self._has_crashed = False
            self.asynchronous.remove_data()
            return
        thread, self._thread = self._thread, None
        assert thread is not None
        try:
            thread.run(self.asynchronous.stop)
        finally:
            thread.close()

    async def __aenter__(self) -> AsyncBroker:
        return await self.asynchronous.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self.asynchronous.stop()

    def crash(self, *, power_cut: bool = False) -> None:
        """End it as kill -9 would: connections close without an answer, and the files stay as they are. With
        `power_cut` they lose all writes that were not fsynced. `restart` continues with them."""
        self.require_own()
        thread = self._thread
        if thread is None:
            raise RuntimeError("it does not run in a thread of its own: enter it with `with`, and crash it once")
        self._thread, self._has_crashed = None, True
        from kafkalite.testing.faults.disruptions import drop_unsynced_writes, unflushed_tails

        async def find_tails() -> list[UnflushedTail]:
            return unflushed_tails(server)

        server = self.asynchronous.server
        tails = thread.begin(find_tails).result() if power_cut else []
        self.asynchronous.keep_ports()
        try:
            thread.run(self.asynchronous.kill)
        finally:
            thread.close()
            server.end_threads()
        drop_unsynced_writes(tails)

    def restart(self) -> None:
        """Start it again after a crash, on the same port. Raises RuntimeError if it has not crashed, ConfigError."""
        if not self._has_crashed:
            raise RuntimeError("it has not crashed")
        self.__enter__()
        self._has_crashed = False

    # --- what it is

    @property
    def is_running(self) -> bool:
        """Whether it is entered by `with`, and has not crashed."""
        return self._thread is not None

    @property
    def config(self) -> BrokerConfig:
        return self.asynchronous.config

    @property
    def data_dir(self) -> Path:
        """The first of its data directories."""
        return self.asynchronous.data_dir

    def require_own(self) -> None:
        self.asynchronous.require_own()

    def _require(self) -> BrokerServer:
        return self.asynchronous._require()

    @property
    def clock(self) -> BlockingClock:
        """The clock that advances or freezes the broker's time; see `broker_clock`."""
        return BlockingClock(self, self.asynchronous.clock)

    @property
    def requests(self) -> RequestLog:
        """Requests of clients since `requests.start()`, and their answers."""
        return self.asynchronous.requests

    @property
    def faults(self) -> Faults:
        """Errors, delays, broken connections, crashes and more, on demand."""
        return self.asynchronous.faults

    # --- its thread

    def _on_loop(self, function: Callable[[], Result]) -> Result:
        return function() if self._thread is None else self.call(function)

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function on the broker's loop, and return what it returns."""

        async def work() -> Result:
            return function()

        return self.run(work)

    def run(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Run a coroutine of `work` on the broker's loop, and return what it returns. Not from that loop itself. Raises
        RuntimeError if the broker does not run, or ends meanwhile."""
        self.require_own()
        thread = self._thread
        if thread is None:
            raise RuntimeError("this broker is not running in a thread: enter it with `with`")
        result: Result = thread.run(work)
        return result

    # --- topics, records, groups, and the broker's own work, now

    @property
    def topics(self) -> dict[str, int]:
        """The topics with their numbers of partitions, without internal ones."""
        return self.call(lambda: self.asynchronous.topics)

    @property
    def groups(self) -> Mapping[str, GroupDescription]:
        """The groups, by id, with their members and committed offsets."""
        return self.call(lambda: self.asynchronous.groups)

    def share_group(self, group: str) -> ShareGroup:
        """The share group of that id, whether it exists already or not: its members, and the records in flight."""
        from kafkalite.testing.share_groups import ShareGroup

        return ShareGroup(self.asynchronous.share_group(group), self.call)

    def topic(self, name: str) -> TopicHandle:
        """The topic of that name, with assertions, whether it exists already or not."""
        return TopicHandle(self, name)

    def create_topic(self, name: str, partitions: int = 1, **settings: object) -> TopicHandle:
        """As `AsyncBroker.create_topic`; returns the topic."""
        self.run(partial(self.asynchronous.create_topic, name, partitions, **settings))
        return TopicHandle(self, name)

    delete_topic = blocking(AsyncBroker.delete_topic)
    produce = blocking(AsyncBroker.produce)
    records = blocking(AsyncBroker.records)
    wait_for = blocking(AsyncBroker.wait_for)
    wait_until = blocking(AsyncBroker.wait_until)
    lag = blocking(AsyncBroker.lag)
    compact = blocking(AsyncBroker.compact)
    roll = blocking(AsyncBroker.roll)
    expire = blocking(AsyncBroker.expire)
    reset = blocking(AsyncBroker.reset)
    snapshot = blocking(AsyncBroker.snapshot)


class TopicHandle:
    """One topic of a test's broker, which may not exist yet: the broker's methods for it, without its name."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.asynchronous = AsyncTopicHandle(broker.asynchronous, name)
        self.name = name
        self.run = broker.run

    def __repr__(self) -> str:
        return f"TopicHandle({self.name!r})"

    produce = blocking(AsyncTopicHandle.produce)
    records = blocking(AsyncTopicHandle.records)
    wait_for = blocking(AsyncTopicHandle.wait_for)
    has = blocking(AsyncTopicHandle.has)


class BlockingClock:
    """A `BrokerClock` for threads other than its broker's."""

    def __init__(self, broker: Broker, clock: BrokerClock) -> None:
        self.asynchronous = clock
        self.run = broker.run

    @property
    def now(self) -> datetime:
        """The broker's wall clock, in UTC."""
        return self.asynchronous.now

    @property
    def is_frozen(self) -> bool:
        return self.asynchronous.is_frozen

    advance = blocking(BrokerClock.advance)
    freeze = blocking(BrokerClock.freeze)
    resume = blocking(BrokerClock.resume)
    set = blocking(BrokerClock.set)
