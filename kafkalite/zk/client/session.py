"""A session with ZooKeeper, as the event loop sees it: reads, writes and watches that never block.

Everything of kazoo ends at `kazoo_door`; from its thread come answers, paths that changed and states of the
connection, all through `call_soon_threadsafe` and therefore in the order in which ZooKeeper sent them: `changed` has
told of a write before the write returns, and of what a read shows before the read returns. While there is no connection
nothing waits: reads and writes raise `Unavailable` at once, and those under way do so when the connection goes, at the
latest after the session timeout.

    CONNECTED <-> SUSPENDED -> EXPIRED -> CONNECTED with a new session

Watches live in a server's memory for one connection. After each new one they are set again, before CONNECTED is told;
what happened meanwhile nobody tells, so whoever listens reads everything again then.
Source: kafka.zookeeper.ZooKeeperClient (states, chroot), kafka.zk.KafkaZkClient (what is asked).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from kafkalite.common.errors import ConfigError
from kafkalite.zk.client import multi_read
from kafkalite.zk.client.kazoo_connection import KazooConnection
from kafkalite.zk.client.operations import (
    UNIMPLEMENTED,
    Connection,
    Create,
    Node,
    NodeExists,
    Operation,
    OperationFailed,
    Unavailable,
    failure,
)
from kafkalite.zk.client.request_queue import Lost, Refused, RequestQueue, drop
from kafkalite.zk.client.wire_requests import GET_CHILDREN, GET_DATA, Answer, Request, Write, add_watch, sync
from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig
from kafkalite.zk.znodes.znode_paths import with_parents

logger = logging.getLogger(__name__)

REOPEN_DELAY_S = 1.0  # after the credentials were refused, as Kafka waits
SETTLE_DELAY_S = 0.1
TELL_INTERVAL_S = 0.005  # 10,000 changed nodes come in 200 pieces instead of 9,000
T = TypeVar("T")


class ZooKeeperSession:
    """See the module. `changed` and `connection` are called on the loop.

    `changed` gets paths below watched trees that were made, changed or removed, each once for all that has come in one
    turn of the loop, or in a flood of them within milliseconds. `connection` gets each new state, CONNECTED for the
    first time within `start`.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settings: ZooKeeperConfig,
        *,
        changed: Callable[[Iterable[str]], None],
        connection: Callable[[Connection], None],
    ) -> None:
        self.settings = settings
        self._loop = loop
        self._changed = changed
        self._connection = connection
        self._chroot = settings.chroot
        self._door: KazooConnection | None = None
        self._in_flight = RequestQueue(loop, settings.in_flight_max)
        self._connection_count = 0  # a new number whenever the connection comes or goes
        self._watched: list[str] = []
        self._heard: deque[str] = deque()  # filled by the connection thread
        self._tell_is_due = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._first: asyncio.Future[None] = loop.create_future()  # of `start`
        self._was_away = False
        self._is_stopping = False
        self.is_connected = False

    @property
    def session_id(self) -> int:
        """As it stands in a node's `ephemeral_owner`; 0 before the first."""
        return self._door.session_id if self._door is not None else 0

    @property
    def session_timeout_ms(self) -> int:
        """What the servers agreed to, which need not be what was asked for."""
        return self._door.session_timeout_ms if self._door is not None else self.settings.session_timeout_ms

    async def start(self) -> None:
        """Connected, and the chroot is there. Raises ConfigError naming the servers when that cannot be."""
        connect, limit_ms = self.settings.connect, self.settings.connection_timeout_ms
        try:
            self._open()
            async with asyncio.timeout(limit_ms / 1000):
                await self._first
        except TimeoutError:
            trouble = self._door.trouble if self._door is not None else ""
            await self.stop()
            raise ConfigError(
                f"zookeeper.connect={connect}: no ZooKeeper answers there within "
                f"zookeeper.connection.timeout.ms={limit_ms}{f' ({trouble})' if trouble else ''}: start it, or correct "
                "the setting; without it this broker is a cluster by itself"
            ) from None
        except (ConfigError, OperationFailed) as fault:
            await self.stop()
            raise ConfigError(f"zookeeper.connect={connect}: {fault}") from None
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End the session: its ephemeral nodes go at once if the servers can be reached. No thread is left."""
        self._is_stopping = True
        self._lose()
        for task in self._tasks:
            task.cancel()
        door, self._door = self._door, None
        if door is not None:
            await self._closed(door)

    # -- reading and writing

    async def read(self, paths: Sequence[str]) -> list[Node | None]:
        """What stands at each path, None where nothing does. Raises Unavailable, NotAllowed."""
        return await self._bulk(paths, GET_DATA, multi_read.nodes)

    async def children(self, paths: Sequence[str]) -> list[list[str] | None]:
        """The names below each path, in no order; None where there is no node. Raises Unavailable, NotAllowed."""
        return await self._bulk(paths, GET_CHILDREN, multi_read.children)

    async def write(self, operations: Sequence[Operation]) -> list[str]:
        """All of these or none; for each the path of what it created, else "".

        Raises OperationFailed (NodeExists, NoNode, BadVersion, NotEmpty, ...), which tells which one it was, and
        Unavailable, after which nobody knows whether it was done. ZooKeeper takes no more than 1 MiB at a time.
        """
        if not operations:
            return []
        self._check_connected()
        write = Write(operations, self._chroot, self.settings.set_acl)
        answer = await self._ask(write.request, operations[0].path)
        self._tell_now()
        return write.created(answer)

    async def sync(self) -> None:
        """What is read from here on is not older than this moment. Within one session nothing goes back, but the
        server of a new one may lag behind what an earlier session has seen. Raises Unavailable."""
        self._check_connected()
        await self._ask(sync(self._chroot), "/")

    async def make_paths(self, paths: Sequence[str]) -> None:
        """See that these nodes and their parents exist; what is missing is made without data."""
        every = with_parents(paths)
        for path, node in zip(every, await self.read(every), strict=True):
            if node is None:
                with suppress(NodeExists):  # another broker starts too
                    await self.write([Create(path)])

    async def watch_tree(self, path: str) -> None:
        """Tell `changed` of this node and all below it from now on, over every connection to come. Raises Unavailable,
        and is set with the next connection all the same."""
        if path not in self._watched:
            self._watched.append(path)
        self._check_connected()
        await self._ask(add_watch(path, self._chroot), path)

    async def _bulk(
        self, paths: Sequence[str], kind: int, parse: Callable[[Sequence[str], Answer], list[T]]
    ) -> list[T]:
        self._check_connected()
        result: list[T] = []
        under_way: deque[tuple[Sequence[str], asyncio.Future[Answer]]] = deque()

        async def take() -> None:
            batch, future = under_way[0]
            result.extend(parse(batch, await self._answer(future, batch[0])))
            under_way.popleft()
            await asyncio.sleep(0)  # the next answer may be there already, and others have something to do, too

        try:
            for batch in multi_read.batches(paths):
                if len(under_way) == self.settings.in_flight_max:  # the requests, too, are made one by one
                    await take()
                under_way.append((batch, self._in_flight.submit(multi_read.read_request(batch, self._chroot, kind))))
            while under_way:
                await take()
        finally:
            for _, future in under_way:
                drop(future)
        self._tell_now()
        return result

    async def _ask(self, request: Request, path: str) -> Answer:
        return await self._answer(self._in_flight.submit(request), path)

    async def _answer(self, future: asyncio.Future[Answer], path: str) -> Answer:
        """Raises OperationFailed for `path`, Unavailable."""
        try:
            async with asyncio.timeout(self.session_timeout_ms / 1000):
                return await future
        except Refused as refused:
            raise failure(refused.code, path) from None
        except (TimeoutError, Lost):
            raise self._unavailable() from None

    def _check_connected(self) -> None:
        if not self.is_connected:
            raise self._unavailable()

    def _unavailable(self) -> Unavailable:
        return Unavailable(f"no connection to ZooKeeper at {self.settings.servers}")

    # -- what comes from the connection thread

    def _open(self) -> None:
        door: KazooConnection

        def state(connection: Connection) -> None:
            self._call_soon(self._state_changed, door, connection)

        def heard(path: str) -> None:
            self._heard.append(path)
            if not self._tell_is_due:
                self._tell_is_due = True
                self._call_soon(self._tell)

        def ended() -> None:
            self._call_soon(self._ended, door)

        door = self._door = KazooConnection(self.settings, state=state, heard=heard, ended=ended)
        door.open()

    def _call_soon(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed, nobody waits any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _tell(self) -> None:
        """The first of a flood of changes is told at once, and from then on what has come in some milliseconds."""
        self._tell_is_due = False  # first: what the thread adds from here on is taken below, or told by another call
        if self._tell_now():
            self._tell_is_due = True
            self._loop.call_later(TELL_INTERVAL_S, self._tell)

    def _tell_now(self) -> bool:
        heard: dict[str, None] = {}
        while self._heard:
            heard[self._heard.popleft()[len(self._chroot) :] or "/"] = None
        if heard and self.is_connected:  # else everything is read again anyway
            self._changed(list(heard))
        return bool(heard)

    def _state_changed(self, door: KazooConnection, state: Connection) -> None:
        if door is not self._door or self._is_stopping:
            return
        if state is Connection.CONNECTED:
            self._connection_count += 1
            self._in_flight.use(door)
            self._spawn(self._connected(self._connection_count))
            return
        was_connected = self.is_connected
        self._lose()
        if not self._first.done():
            if state is Connection.AUTH_FAILED:
                self._first.set_exception(
                    ConfigError("ZooKeeper refuses the credentials; correct zookeeper.sasl.* or zookeeper.digest")
                )
            return
        servers = self.settings.servers
        if state is Connection.EXPIRED:
            logger.warning("ZooKeeper at %s: the session has expired; beginning another", servers)
        elif state is Connection.AUTH_FAILED:
            logger.error("ZooKeeper at %s: the credentials are refused; trying again", servers)
        elif was_connected:
            logger.warning("ZooKeeper at %s: the connection is lost; trying to get it back", servers)
        else:
            return  # lost before it was told of
        self._was_away = True
        self._connection(state)

    async def _connected(self, count: int) -> None:
        """The thread has a connection: set the watches, then say so, unless it is gone again by then."""
        while count == self._connection_count and not self.is_connected:
            try:
                await self._settle_in(count)
            except Unavailable:  # gone, as the loop is about to hear, and the next one does it; or slow, and once more
                await asyncio.sleep(SETTLE_DELAY_S)

    async def _settle_in(self, count: int) -> None:
        is_first = not self._first.done()
        try:
            if is_first:
                await self._make_chroot()
            elif not self._watched:
                await self._ask(multi_read.read_request(["/"], self._chroot), "/")  # kazoo has yet to show credentials
            for path in self._watched:
                await self._ask(add_watch(path, self._chroot), path)
        except (ConfigError, OperationFailed) as fault:
            self._connection_count += 1  # not again over this one
            if is_first and not self._first.done():
                self._first.set_exception(fault)
            else:
                logger.error("ZooKeeper at %s: the watches cannot be set: %s", self.settings.servers, fault)
            return
        if count != self._connection_count:
            return
        self.is_connected = True
        if self._was_away:
            logger.info("ZooKeeper at %s: the connection is back", self.settings.servers)
            self._was_away = False
        self._connection(Connection.CONNECTED)
        if not self._first.done():
            self._first.set_result(None)

    async def _make_chroot(self) -> None:
        """As Kafka does; and see that the servers know how to read in bulk."""
        paths = with_parents([self._chroot]) if self._chroot else ["/"]
        try:
            answer = await self._ask(multi_read.read_request(paths, ""), paths[0])
        except OperationFailed as fault:
            if fault.code != UNIMPLEMENTED:
                raise
            raise ConfigError("it is too old: kafkalite needs ZooKeeper 3.6 or newer") from None
        for path, node in zip(paths, multi_read.nodes(paths, answer), strict=True):
            if node is None:
                write = Write([Create(path)], "", self.settings.set_acl)
                with suppress(NodeExists):  # another broker starts too
                    write.created(await self._ask(write.request, path))

    def _ended(self, door: KazooConnection) -> None:
        """The thread has come to its end by itself: after refused credentials, or a fault of kazoo's."""
        if door is not self._door or self._is_stopping:
            return
        was_connected = self.is_connected
        self._lose()
        if not self._first.done():
            self._first.set_exception(ConfigError("no connection can be made; the log says why"))
            return
        if was_connected:
            self._was_away = True
            self._connection(Connection.EXPIRED)
        self._spawn(self._reopen(door))

    async def _reopen(self, door: KazooConnection) -> None:
        await asyncio.sleep(REOPEN_DELAY_S)
        await self._closed(door)
        if not self._is_stopping:
            self._open()

    def _lose(self) -> None:
        """The connection is gone, and with it all that is under way."""
        self.is_connected = False
        self._connection_count += 1
        self._in_flight.lose()

    async def _closed(self, door: KazooConnection) -> None:
        done = asyncio.Event()

        def close() -> None:
            door.close()
            self._call_soon(done.set)

        thread = threading.Thread(target=close, name="kafkalite-zookeeper-close", daemon=True)
        thread.start()
        await done.wait()
        thread.join()  # it has nothing left to do

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
