"""A session with ZooKeeper on the event loop: reads, writes and watches that never block.

Only `kazoo_connection` and `kazoo_handler` use kazoo. Their thread passes on answers, changed paths and states of the
connection through `call_soon_threadsafe`, and therefore in the order in which ZooKeeper sent them. So `on_change` is
called for a write before the write returns, and for any change that a read shows before the read returns. Nothing waits
for a connection: without one, reads and writes raise `Unavailable` at once, and those in flight do so when the
connection is lost, at the latest after the session timeout.

    CONNECTED <-> SUSPENDED -> EXPIRED -> CONNECTED with a new session

A server keeps watches in memory, for one connection. The session sets them again after each new connection, before it
reports CONNECTED. Changes in between are not reported, so a listener must read everything again then.
Source: kafka.zookeeper.ZooKeeperClient (states, chroot), kafka.zk.KafkaZkClient (requests).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafkalite.common.errors import ConfigError
from kafkalite.zk.client import wire_requests
from kafkalite.zk.client.kazoo_connection import KazooConnection
from kafkalite.zk.client.operations import (
    UNIMPLEMENTED,
    ConnectionState,
    Create,
    Node,
    NodeExists,
    Operation,
    OperationFailed,
    Unavailable,
    failure,
)
from kafkalite.zk.client.request_queue import Connection, ConnectionLost, RequestQueue, RequestRefused, drop
from kafkalite.zk.client.wire_requests import GET_CHILDREN, GET_DATA, Answer, Request, Write, add_watch, sync
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.znodes.znode_paths import with_parents

logger = logging.getLogger(__name__)

REOPEN_DELAY_S = 1.0  # after the credentials were refused, as Kafka waits
WATCH_RETRY_DELAY_S = 0.1
STEP_RETRY_DELAY_S = 0.1
NOTIFY_INTERVAL_S = 0.005  # 10,000 changed nodes come in 200 pieces instead of 9,000

Found = TypeVar("Found")


class ZooKeeperSession:
    """See the module. `on_change` and `on_state` are called on the loop that runs `start`.

    `on_change` gets the paths below watched trees that were created, changed or deleted, each once per turn of the
    loop, or once per `NOTIFY_INTERVAL_S` if there are many. `on_state` gets each new state, the first CONNECTED during
    `start`.
    """

    def __init__(
        self,
        settings: ZooKeeperConfig,
        *,
        on_change: Callable[[Iterable[str]], None],
        on_state: Callable[[ConnectionState], None],
    ) -> None:
        self.settings = settings
        self._on_change = on_change
        self._on_state = on_state
        self._chroot = settings.chroot
        self._connection: Connection | None = None
        self._requests = RequestQueue(settings.in_flight_max)
        self._connection_count = 0  # a new number whenever the connection comes or goes
        self._watched: list[str] = []
        self._changed_paths: deque[str] = deque()  # filled by the connection thread
        self._notify_is_due = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._was_away = False
        self._is_stopping = False
        self.is_connected = False

    @property
    def session_id(self) -> int:
        """The session id, as in the `ephemeral_owner` of a node; 0 before the first session."""
        return self._connection.session_id if self._connection is not None else 0

    @property
    def session_timeout_ms(self) -> int:
        """The negotiated timeout once connected, which need not be the configured one."""
        return (self._connection or self.settings).session_timeout_ms

    async def start(self) -> None:
        """Connect, and create the chroot. Raises ConfigError, which names the servers, if that fails."""
        connect, limit_ms = self.settings.connect, self.settings.connection_timeout_ms
        self._loop = asyncio.get_running_loop()
        self._first_connection: asyncio.Future[None] = self._loop.create_future()
        try:
            self._open()
            async with asyncio.timeout(limit_ms / 1000):
                await self._first_connection
        except TimeoutError:
            fault = self._connection.last_fault if self._connection is not None else ""
            await self.stop()
            raise ConfigError(
                f"zookeeper.connect={connect}: no ZooKeeper answers there within "
                f"zookeeper.connection.timeout.ms={limit_ms}{f' ({fault})' if fault else ''}: start it, or correct "
                "the setting; without it this broker runs standalone"
            ) from None
        except (ConfigError, OperationFailed) as fault:
            await self.stop()
            raise ConfigError(f"zookeeper.connect={connect}: {fault}") from None
        except BaseException:
            await self.stop()
            raise

    async def retry_until_connected(self, step: Callable[[], Awaitable[Found]]) -> Found:
        """Repeat `step` whenever the connection is lost during it, for as long as a start waits for ZooKeeper. Raises
        the errors of `step`; Unavailable only after that time.
        Source: kafka.zk.KafkaZkClient.retryRequestUntilConnected."""
        deadline_s: float | None = None
        while True:
            try:
                return await step()
            except Unavailable:
                now_s = self._loop.time()
                deadline_s = deadline_s or now_s + self.settings.connection_timeout_ms / 1000
                if now_s >= deadline_s or self._is_stopping:
                    raise
            await asyncio.sleep(STEP_RETRY_DELAY_S)

    async def stop(self) -> None:
        """End the session and its threads. Its ephemeral nodes are deleted at once if a server can be reached."""
        self._is_stopping = True
        self._lose()
        for task in self._tasks:
            task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._closed(connection)

    # -- reading and writing

    async def read(self, paths: Sequence[str]) -> list[Node | None]:
        """The node at each path, None where there is none. Raises Unavailable, NotAllowed."""
        return await self._read_bulk(paths, GET_DATA)

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The names below each path, in no order; None where there is no node. Raises Unavailable, NotAllowed."""
        return await self._read_bulk(paths, GET_CHILDREN)

    async def write(self, operations: Sequence[Operation]) -> list[str]:
        """Perform all operations or none. Returns for each operation the path that it created, else "".

        Raises OperationFailed (NodeExists, NoNode, BadVersion, NotEmpty, ...), which names the operation, and
        Unavailable, after which it is unknown whether they were done. ZooKeeper takes no more than 1 MiB at a time.
        """
        if not operations:
            return []
        self._check_connected()
        write = Write(operations, self._chroot, self.settings.set_acl)
        answer = await self._ask(write.request, operations[0].path)
        self._notify_now()
        return write.created(answer)

    async def sync(self) -> None:
        """Wait until the server has all changes up to this moment. Within one session reads never go back, but the
        server of a new session may lag behind earlier reads. `on_change` has been called for these changes by then.
        Raises Unavailable."""
        self._check_connected()
        await self._ask(sync(self._chroot), "/")
        self._notify_now()

    async def make_paths(self, paths: Sequence[str]) -> None:
        """Create the nodes at these paths, and their parents, without data, unless they exist."""
        every = with_parents(paths)
        for path, node in zip(every, await self.read(every), strict=True):
            if node is None:
                with suppress(NodeExists):  # another broker starts too
                    await self.write([Create(path)])

    async def watch_tree(self, path: str) -> None:
        """Call `on_change` for this node and all nodes below it from now on, with later connections, too. Raises
        Unavailable; the watch is set with the next connection then."""
        if path not in self._watched:
            self._watched.append(path)
        self._check_connected()
        await self._ask(add_watch(path, self._chroot), path)

    async def _read_bulk(self, paths: Sequence[str], kind: int) -> list[Any]:
        self._check_connected()
        result: list[Any] = []
        under_way: deque[tuple[Sequence[str], asyncio.Future[Answer]]] = deque()

        async def take() -> None:
            batch, future = under_way[0]
            result.extend(wire_requests.read_results(batch, await self._answer(future, batch[0])))
            under_way.popleft()
            await asyncio.sleep(0)  # the next answer may have arrived already; other tasks get a turn

        try:
            for batch in wire_requests.read_batches(paths):
                if len(under_way) == self.settings.in_flight_max:  # later requests are not encoded yet
                    await take()
                under_way.append((batch, self._requests.submit(wire_requests.read_request(batch, self._chroot, kind))))
            while under_way:
                await take()
        finally:
            for _, future in under_way:
                drop(future)
        self._notify_now()
        return result

    async def _ask(self, request: Request, path: str) -> Answer:
        return await self._answer(self._requests.submit(request), path)

    async def _answer(self, future: asyncio.Future[Answer], path: str) -> Answer:
        """Raises OperationFailed for `path`, Unavailable."""
        try:
            async with asyncio.timeout(self.session_timeout_ms / 1000):
                return await future
        except RequestRefused as refused:
            raise failure(refused.code, path) from None
        except (TimeoutError, ConnectionLost):
            raise self._unavailable() from None

    def _check_connected(self) -> None:
        if not self.is_connected:
            raise self._unavailable()

    def _unavailable(self) -> Unavailable:
        return Unavailable(f"no connection to ZooKeeper at {self.settings.servers}")

    # -- from the connection thread

    def _open(self) -> None:
        connection: Connection

        def on_state(state: ConnectionState) -> None:
            self._call_soon(self._state_changed, connection, state)

        def on_watch_event(path: str) -> None:
            self._changed_paths.append(path)
            if not self._notify_is_due:
                self._notify_is_due = True
                self._call_soon(self._notify)

        def on_end() -> None:
            self._call_soon(self._ended, connection)

        dial = self.settings.dial or KazooConnection
        connection = self._connection = dial(
            self.settings, on_state=on_state, on_watch_event=on_watch_event, on_end=on_end
        )
        connection.open()

    def _call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: no caller waits
            self._loop.call_soon_threadsafe(function, *arguments)

    def _notify(self) -> None:
        """Notifies of the first change at once, then of further changes together, every few milliseconds."""
        self._notify_is_due = False  # first: this or a later call notifies of paths that the thread adds meanwhile
        if self._notify_now():
            self._notify_is_due = True
            self._loop.call_later(NOTIFY_INTERVAL_S, self._notify)

    def _notify_now(self) -> bool:
        paths: dict[str, None] = {}
        while self._changed_paths:
            paths[self._changed_paths.popleft()[len(self._chroot) :] or "/"] = None
        if paths and self.is_connected:  # else everything is read again anyway
            self._on_change(list(paths))
        return bool(paths)

    def _state_changed(self, connection: Connection, state: ConnectionState) -> None:
        if connection is not self._connection or self._is_stopping:
            return
        if state is ConnectionState.CONNECTED:
            self._connection_count += 1
            self._requests.use(connection)
            self._spawn(self._connected(self._connection_count))
            return
        was_connected = self.is_connected
        self._lose()
        if not self._first_connection.done():
            if state is ConnectionState.AUTH_FAILED:
                self._first_connection.set_exception(
                    ConfigError("ZooKeeper refuses the credentials; correct zookeeper.sasl.* or zookeeper.digest")
                )
            return
        servers = self.settings.servers
        if state is ConnectionState.EXPIRED:
            logger.warning("ZooKeeper at %s: the session has expired; opening another", servers)
        elif state is ConnectionState.AUTH_FAILED:
            logger.error("ZooKeeper at %s: the credentials are refused; trying again", servers)
        elif was_connected:
            logger.warning("ZooKeeper at %s: the connection is lost; reconnecting", servers)
        else:
            return  # lost before CONNECTED was reported
        self._was_away = True
        self._on_state(state)

    async def _connected(self, count: int) -> None:
        """Sets the watches of a new connection, then reports CONNECTED, unless the connection is lost by then."""
        while count == self._connection_count and not self.is_connected:
            try:
                await self._set_watches(count)
            except Unavailable:  # lost, and the next connection does it; or slow, and it is tried again
                await asyncio.sleep(WATCH_RETRY_DELAY_S)

    async def _set_watches(self, count: int) -> None:
        is_first = not self._first_connection.done()
        try:
            if is_first:
                await self._make_chroot()
            elif not self._watched:
                logged_in = wire_requests.read_request(["/"], self._chroot)  # answered when kazoo has logged in
                await self._ask(logged_in, "/")
            for path in self._watched:
                await self._ask(add_watch(path, self._chroot), path)
        except (ConfigError, OperationFailed) as fault:
            self._connection_count += 1  # do not retry over this connection
            if is_first and not self._first_connection.done():
                self._first_connection.set_exception(fault)
            else:
                logger.error("ZooKeeper at %s: the watches cannot be set: %s", self.settings.servers, fault)
            return
        if count != self._connection_count:
            return
        self.is_connected = True
        if self._was_away:
            logger.info("ZooKeeper at %s: the connection is back", self.settings.servers)
            self._was_away = False
        self._on_state(ConnectionState.CONNECTED)
        if not self._first_connection.done():
            self._first_connection.set_result(None)

    async def _make_chroot(self) -> None:
        """Creates the chroot, as Kafka does, and checks that the servers have MultiRead."""
        paths = with_parents([self._chroot]) if self._chroot else ["/"]
        try:
            answer = await self._ask(wire_requests.read_request(paths, ""), paths[0])
        except OperationFailed as fault:
            if fault.code != UNIMPLEMENTED:
                raise
            raise ConfigError("it is too old: kafkalite needs ZooKeeper 3.6 or newer") from None
        for path, node in zip(paths, wire_requests.read_results(paths, answer), strict=True):
            if node is None:
                write = Write([Create(path)], "", self.settings.set_acl)
                with suppress(NodeExists):  # another broker starts too
                    write.created(await self._ask(write.request, path))

    def _ended(self, connection: Connection) -> None:
        """Opens a new connection after the thread has ended by itself: credentials were refused, or kazoo failed."""
        if connection is not self._connection or self._is_stopping:
            return
        was_connected = self.is_connected
        self._lose()
        if not self._first_connection.done():
            self._first_connection.set_exception(ConfigError("no connection can be opened; see the log"))
            return
        if was_connected:
            self._was_away = True
            self._on_state(ConnectionState.EXPIRED)
        self._spawn(self._reopen(connection))

    async def _reopen(self, connection: Connection) -> None:
        await asyncio.sleep(REOPEN_DELAY_S)
        await self._closed(connection)
        if not self._is_stopping:
            self._open()

    def _lose(self) -> None:
        """Fails all requests, after the loss of the connection."""
        self.is_connected = False
        self._connection_count += 1
        self._requests.lose()

    async def _closed(self, connection: Connection) -> None:
        done = asyncio.Event()

        def close() -> None:
            connection.close()
            self._call_soon(done.set)

        thread = threading.Thread(target=close, name="kafkalite-zookeeper-close", daemon=True)
        thread.start()
        await done.wait()
        thread.join()  # returns at once

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
