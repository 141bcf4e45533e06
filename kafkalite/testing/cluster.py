"""Several brokers and a ZooKeeper in this process: a temporary cluster that a test starts and disturbs.

    with Cluster(3) as cluster:                     # ready when the block is entered
        ...                                         # any Kafka client, with cluster.bootstrap_servers
        cluster.kill(cluster.leader_of("orders", 0))
        cluster.wait_for_leader("orders", 0)

    async with Cluster(3) as cluster:               # the same, with coroutines
        await cluster.kill(0)

Each broker has an event loop in a thread of its own and a data directory of its own; they talk over sockets, as
anywhere. Their ZooKeeper is `InMemoryZooKeeper`. Numbers of brokers are their ids, from 0 on.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from kafkalite.common.clock import monotonic_s
from kafkalite.common.forks import HomeProcess
from kafkalite.common.names import NO_LEADER
from kafkalite.server.broker import setting_text
from kafkalite.testing.cluster_broker import ClusterBroker
from kafkalite.testing.data_directory import throwaway_place
from kafkalite.testing.records.stored_record import check_integer
from kafkalite.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.testing.share_groups import ClusterShareGroup

P = ParamSpec("P")
R = TypeVar("R")

TIMEOUT_S = 30.0
_POLL_S = 0.003
_SNAPSHOT = "zookeeper.snapshot"
_REPLICAS_MAX = 3

# A temporary cluster needs neither fifty partitions of an internal topic nor three seconds for a group.
SETTINGS: dict[str, Any] = {
    "zookeeper_connect": "in-memory",
    "zookeeper_session_timeout_ms": 6_000,
    "controlled_shutdown_retry_backoff_ms": 100,
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 3,
    "transaction_state_log_num_partitions": 3,
}


class Cluster:
    """See the module. `settings` are of all brokers, named like the arguments of `kafkalite.Broker`; broker ids,
    addresses and data directories are the cluster's own. `own` has settings of single brokers, by their numbers.

    With `data_dir` the data stay there, and a later cluster with the same one continues with them; otherwise they
    are in memory if there is room, else in a temporary directory, and are deleted. `brokers` are all brokers,
    `zookeeper` is shared by them. Methods that name a broker raise IndexError for an unknown one.
    """

    def __init__(
        self,
        count: int = 3,
        *,
        data_dir: str | Path | None = None,
        own: Mapping[int, Mapping[str, Any]] | None = None,
        **settings: Any,
    ) -> None:
        check_integer("count", count)
        if count < 1:
            raise ValueError("a cluster has at least one broker")
        self.zookeeper = InMemoryZooKeeper()
        self.brokers: tuple[ClusterBroker, ...] = ()
        self._home = HomeProcess()
        self._count = count
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._data_dir = Path()
        self._settings = {**SETTINGS, **settings}
        self._own = own or {}
        self._pause = threading.Event()  # never set: it paces the waits

    @property
    def bootstrap_servers(self) -> str:
        """host:port,... of all brokers, also stopped ones."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers)

    @property
    def running(self) -> list[int]:
        """The running brokers."""
        return [broker.broker_id for broker in self.brokers if broker.is_running]

    def __enter__(self) -> Cluster:
        self._home.require("this cluster")
        self._data_dir = self._given_dir or Path(tempfile.mkdtemp(prefix="kafkalite-cluster-", dir=throwaway_place()))
        self._data_dir.mkdir(parents=True, exist_ok=True)
        snapshot = self._data_dir / _SNAPSHOT
        if snapshot.exists():
            self.zookeeper.load(snapshot.read_bytes())
        self.brokers = tuple(self._new_broker(number) for number in range(self._count))
        try:
            self._start_all()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if not self._home.is_here:
            return
        try:
            _do_all([broker.stop for broker in self.brokers])
        finally:
            self.zookeeper.close()
            if self._given_dir is None:
                shutil.rmtree(self._data_dir, ignore_errors=True)
            else:
                (self._data_dir / _SNAPSHOT).write_bytes(self.zookeeper.dump())

    async def __aenter__(self) -> AsyncCluster:
        starting = asyncio.ensure_future(asyncio.to_thread(self.__enter__))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            await asyncio.wait([starting])  # the thread continues, and its brokers must be stopped
            if starting.exception() is None:
                await self.__aexit__()
            raise
        return AsyncCluster(self)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.__exit__)

    # -- brokers

    def _broker(self, number: int) -> ClusterBroker:
        self._home.require("this cluster")
        if not 0 <= number < len(self.brokers):
            raise IndexError(f"broker {number} not found: they have the numbers 0 to {len(self.brokers) - 1}")
        return self.brokers[number]

    def start(self, number: int) -> None:
        """Start a broker again, and wait until all running ones have it in their metadata. Raises RuntimeError if it
        runs."""
        broker = self._broker(number)
        broker.finish_start(broker.begin_start())
        self._wait_for_members()

    def stop(self, number: int) -> None:
        """Stop a broker in order: it hands its leaderships over. Does nothing when it does not run."""
        self._broker(number).stop()

    def kill(self, number: int, *, session_ends: bool = True) -> None:
        """End a broker as kill -9 would. Its session ends at once, and the others continue without it; otherwise after
        zookeeper.session.timeout.ms, as it would be. Does nothing when it does not run."""
        broker = self._broker(number)
        broker.kill()
        if session_ends:
            broker.line.expire()

    def lose_session(self, number: int) -> None:
        """End a broker's session with ZooKeeper on the side of the servers. The broker comes back by itself."""
        self._broker(number).line.expire()

    def cut_off(self, number: int) -> None:
        """Cut a broker off from ZooKeeper. Its session ends after zookeeper.session.timeout.ms, unless `mend` is
        called.
        """
        self._broker(number).line.cut()

    def mend(self, number: int) -> None:
        """The end of `cut_off`."""
        self._broker(number).line.mend()

    def pause(self, number: int) -> None:
        """Pause a broker, as SIGSTOP would; its connections stay. Its session ends after
        zookeeper.session.timeout.ms, unless `resume` is called."""
        self._broker(number).pause()

    def resume(self, number: int) -> None:
        """The end of `pause`."""
        self._broker(number).resume()

    # -- partitions

    def create_topic(
        self,
        /,
        name: str,
        partitions: int = 1,
        *,
        replicas: int | None = None,
        timeout_s: float = TIMEOUT_S,
        **settings: Any,
    ) -> None:
        """Create a topic through a running broker, and wait until every partition has a leader and all its replicas.
        Without `replicas` each partition has one on every running broker, at most three. Settings are named like
        Kafka's with underscores. Raises KafkaError, TimeoutError."""
        if not self.running:
            raise RuntimeError("no broker of the cluster runs")
        broker = self.brokers[self.running[0]]
        count = min(len(self.running), _REPLICAS_MAX) if replicas is None else replicas
        overrides = {key.replace("_", "."): setting_text(value) for key, value in settings.items()}
        create = partial(broker.server.topic_admin.create, name, partitions, overrides, replication_factor=count)
        broker.run(create)
        for partition in range(partitions):
            self.wait_for_leader(name, partition, timeout_s=timeout_s)
            self._wait_for_replicas(name, partition, count, timeout_s)

    def _wait_for_replicas(self, topic: str, partition: int, count: int, timeout_s: float) -> None:
        self.wait_until(
            lambda: len(self.isr(topic, partition)) == count,
            lambda: f"{count} in-sync replicas of {topic}-{partition}: {self.state(topic, partition)}",
            timeout_s,
        )

    def state(self, topic: str, partition: int) -> znode_data.StateNode | None:
        """The partition's state in ZooKeeper; None if it has none."""
        with self.zookeeper.lock:
            node = self.zookeeper.tree.node(znode_paths.state(topic, partition))
        return None if node is None else znode_data.parse_state(node.data)

    def leader_of(self, topic: str, partition: int) -> int | None:
        """The broker that leads the partition according to ZooKeeper; None if none does."""
        state = self.state(topic, partition)
        return None if state is None or state.leader == NO_LEADER else state.leader

    def isr(self, topic: str, partition: int) -> frozenset[int]:
        """The in-sync replicas according to ZooKeeper; empty for an unknown partition."""
        state = self.state(topic, partition)
        return frozenset() if state is None else frozenset(state.isr)

    def share_group(self, group: str) -> ClusterShareGroup:
        """The share group of that id, as `Broker.share_group`: each part from the broker that has it."""
        from kafkalite.testing.share_groups import ClusterShareGroup

        return ClusterShareGroup(
            group, lambda: {number: self.brokers[number].share_group(group) for number in self.running}, self.leader_of
        )

    def wait_for_leader(
        self, topic: str, partition: int, *, other_than: Collection[int] = (), timeout_s: float = TIMEOUT_S
    ) -> int:
        """Wait until a running broker leads the partition, and all that reach ZooKeeper have it as the leader. Returns
        it. Raises TimeoutError."""

        leader: int | None = None

        def leads() -> bool:
            nonlocal leader
            leader = self.leader_of(topic, partition)
            return leader is not None and leader not in other_than and self._is_led_by(leader, topic, partition)

        self.wait_until(leads, lambda: f"a leader of {topic}-{partition}: {self.state(topic, partition)}", timeout_s)
        assert leader is not None
        return leader

    def wait_for_isr(
        self, topic: str, partition: int, members: Collection[int], *, timeout_s: float = TIMEOUT_S
    ) -> None:
        """Wait until these are the in-sync replicas. Raises TimeoutError."""
        wanted = frozenset(members)
        self.wait_until(
            lambda: self.isr(topic, partition) == wanted,
            lambda: f"the ISR {set(wanted)} of {topic}-{partition}: {self.state(topic, partition)}",
            timeout_s,
        )

    def wait_until(self, condition: Callable[[], bool], what: Callable[[], str], timeout_s: float = TIMEOUT_S) -> None:
        """Poll until the condition is true. Raises TimeoutError, which names `what`."""
        deadline = monotonic_s() + timeout_s
        while not condition():
            if monotonic_s() > deadline:
                raise TimeoutError(f"waited {timeout_s:g} s for {what()}")
            self._pause.wait(_POLL_S)

    def _is_led_by(self, leader: int, topic: str, partition: int) -> bool:
        connected = [broker for broker in self.brokers if broker.is_connected]
        if not self.brokers[leader].is_running or any(
            (known := broker.server.metadata.topics.get(topic)) is None
            or partition not in known.partitions
            or known.partitions[partition].leader != leader
            for broker in connected
        ):
            return False
        hosted = self.brokers[leader].server.replica_manager.by_name.get(topic)
        return hosted is not None and partition in hosted.partitions

    # -- starting

    def _new_broker(self, number: int) -> ClusterBroker:
        settings = {**self._settings, **self._own.get(number, {})}
        return ClusterBroker(number, self._data_dir / f"broker{number}", self.zookeeper.line(), settings)

    def _start_all(self) -> None:
        starting = [partial(broker.finish_start, broker.begin_start()) for broker in self.brokers]
        _do_all(starting)
        self._wait_for_members()

    def _wait_for_members(self) -> None:
        """Wait until all running brokers that reach ZooKeeper have each other and a controller in their metadata."""
        connected = [broker for broker in self.brokers if broker.is_connected]
        ids = {broker.broker_id for broker in connected}

        def know_each_other() -> bool:
            return all(
                broker.server.metadata.registration_state.is_member
                and ids <= broker.server.metadata.brokers.keys()
                and broker.server.metadata.controller_id in broker.server.metadata.brokers
                for broker in connected
            )

        self.wait_until(know_each_other, lambda: f"brokers {ids} in each other's metadata")


def _in_thread(method: Callable[Concatenate[Cluster, P], R]) -> Callable[Concatenate[AsyncCluster, P], Awaitable[R]]:
    """The same method as a coroutine, with its docstring: it runs in a thread."""

    @wraps(method)
    async def call(self: AsyncCluster, /, *arguments: P.args, **named: P.kwargs) -> R:
        return await asyncio.to_thread(method, self.blocking, *arguments, **named)

    return call


class AsyncCluster:
    """A `Cluster` for coroutines: its methods that wait do so in a thread. `blocking` is the cluster itself."""

    def __init__(self, blocking: Cluster) -> None:
        self.blocking = blocking
        self.leader_of = blocking.leader_of
        self.isr = blocking.isr
        self.share_group = blocking.share_group
        self.lose_session = blocking.lose_session
        self.cut_off = blocking.cut_off
        self.mend = blocking.mend
        self.pause = blocking.pause
        self.resume = blocking.resume

    @property
    def brokers(self) -> tuple[ClusterBroker, ...]:
        return self.blocking.brokers

    @property
    def bootstrap_servers(self) -> str:
        return self.blocking.bootstrap_servers

    start = _in_thread(Cluster.start)
    stop = _in_thread(Cluster.stop)
    kill = _in_thread(Cluster.kill)
    create_topic = _in_thread(Cluster.create_topic)
    wait_for_leader = _in_thread(Cluster.wait_for_leader)
    wait_for_isr = _in_thread(Cluster.wait_for_isr)


def _do_all(actions: Sequence[Callable[[], None]]) -> None:
    """Do each of them, and then raise the first error if there was one."""
    faults: list[Exception] = []
    for action in actions:
        try:
            action()
        except Exception as fault:
            faults.append(fault)
    if faults:
        raise faults[0]
