"""The surroundings of a broker: its clock, disk, sockets and processes, and the cluster that it belongs to.

`BrokerServer` makes all its other parts itself. Tests give it another host: a disk that forgets, no sockets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.storage.io_executor import FlushThreadPool
from kafkalite.network.socket_server import SocketServer
from kafkalite.server.listener_changes import network_limits
from kafkalite.server.membership.single_broker import SingleBroker

if TYPE_CHECKING:
    from kafkalite.cleaner.workers.worker_process import StartWorker
    from kafkalite.common.clock import Clock
    from kafkalite.config.broker_config import BrokerConfig
    from kafkalite.log.directories.log_directories import LogDirectories
    from kafkalite.network.client_connection import Handler
    from kafkalite.network.listener import Listener
    from kafkalite.server.listener_security import ListenerSecurity
    from kafkalite.server.membership.cluster_member import ClusterMember
    from kafkalite.zk.client.zookeeper_config import Dial

_FLUSH_THREADS = 8  # fsyncs that wait together share the disk's journal commits


class Host:
    """The system that the process runs on. `closing` of each method gets the end of the part that is made."""

    def __init__(
        self,
        adopts: bool = False,
        dial_zookeeper: Dial | None = None,
        start_cleaner: StartWorker | None = None,
        in_memory: bool = False,
    ) -> None:
        """`adopts`: the broker takes over the topics of another one's directories. `in_memory`: nothing is flushed."""
        self.start_cleaner = start_cleaner
        self._adopts = adopts
        self._dial_zookeeper = dial_zookeeper
        self._in_memory = in_memory

    def open_logs(
        self, config: BrokerConfig, clock: Clock, wake: Callable[[], object], closing: AsyncExitStack
    ) -> LogManager:
        """The log directories, locked. `wake` is called from other threads when a job on files is done."""
        self._flush_threads = flush_threads = FlushThreadPool(_FLUSH_THREADS, "kafkalite-flush")
        closing.callback(flush_threads.close)
        logs = LogManager(config.data_dirs, clock, config, None if self._in_memory else flush_threads.run, wake=wake)
        closing.callback(logs.close)
        return logs

    def make_member(
        self, config: BrokerConfig, clock: Clock, directories: LogDirectories, security: ListenerSecurity
    ) -> SingleBroker | ClusterMember:
        """The membership in the cluster of zookeeper.connect, or in one of this broker alone."""
        if config.zookeeper_connect is None:
            return SingleBroker(config, directories, adopts=self._adopts, in_memory=self._in_memory)
        from kafkalite.server.membership.cluster_member import ClusterMember  # imports kazoo, which most starts spare

        return ClusterMember(
            config, clock, directories, security.to_broker, adopts=self._adopts, dial_zookeeper=self._dial_zookeeper
        )

    def make_server(
        self, listeners: Sequence[Listener], handler: Handler, config: BrokerConfig, clock: Clock
    ) -> SocketServer:
        return SocketServer(listeners, handler, network_limits(config), clock, processors=config.num_network_threads)

    def end_threads(self) -> None:
        """Wait for the threads that flush."""
        self._flush_threads.close()
