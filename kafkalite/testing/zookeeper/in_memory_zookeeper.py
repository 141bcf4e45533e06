"""A ZooKeeper in this process, without Java and without sockets, whose clients' connections a test can disturb.

    zookeeper = InMemoryZooKeeper()
    line = zookeeper.line()                                         # of one client
    session = ZooKeeperSession(settings._replace(dial=line.dial), on_change=..., on_state=...)
    line.cut(), line.mend(), line.expire(), line.lose_answers(1)    # as if it happened in between

It replaces kazoo's connection, not the session: requests arrive as the bytes that would go to a server, and the
session's own code handles watches, notifications and errors. So brokers of any number of event loops are one cluster.
Nothing is written to a disk.

Each client's requests, and each client's answers and watch events, stay in their order; the event of a change precedes
any answer that contains it. A client that is cut off keeps its session for the session timeout.

    cut       connections end, and none can be opened                    the client notices it at once
    silent    no message passes                                          the client notices it after 2/3 of the timeout
    expired   the session has ended, and its nodes are gone              the client notices it when it connects next
    abandon   the client's process is gone, and its session stays        there is no client any more

Source: org.apache.zookeeper.server.ZooKeeperServer, SessionTrackerImpl; org.apache.zookeeper.ClientCnxn (states).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from kafkalite.common.forks import HomeProcess
from kafkalite.testing.zookeeper.thread_clock import ThreadClock
from kafkalite.testing.zookeeper.wire import Traffic, Wire
from kafkalite.zk.client.operations import ConnectionState
from kafkalite.zk.server.access_lists import Identity, digest_identity
from kafkalite.zk.server.sessions import Session, Sessions
from kafkalite.zk.server.snapshot import decode_snapshot, encode_snapshot
from kafkalite.zk.server.znode_tree import ZnodeTree

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock, Timer
    from kafkalite.zk.client.request_queue import Reply
    from kafkalite.zk.client.wire_requests import Request
    from kafkalite.zk.client.zookeeper_config import ZooKeeperConfig

RECONNECT_MS = 5  # after a connection has broken; kazoo takes up to 500


class InMemoryZooKeeper:
    """The servers. Its methods, and those of its lines, may be called on any thread.

    With a `clock` all timers, of timeouts and of delays, are that clock's, and everything belongs to its owner's
    thread; without one they run on a thread of their own until `close`. `seed` decides about delays.
    """

    def __init__(self, clock: Clock | None = None, *, seed: int = 0) -> None:
        self._own_clock = None if clock is not None else ThreadClock()
        self.clock: Clock = clock or self._own_clock or ThreadClock()
        self._home = HomeProcess()
        self._lock = threading.RLock()
        self.random = Random(seed)
        self.sessions = Sessions(ZnodeTree(), self.clock, self._lock)
        self.is_serving = True
        self._lines: list[ZooKeeperLine] = []

    @property
    def lock(self) -> threading.RLock:
        """The lock of the whole object. Raises RuntimeError in a forked child: a thread of the parent may hold it."""
        self._home.require("this ZooKeeper")
        return self._lock

    @property
    def tree(self) -> ZnodeTree:
        return self.sessions.tree

    def dump(self) -> bytes:
        """All nodes and sessions, for `load`."""
        with self.lock:
            return encode_snapshot(self.tree)

    def load(self, data: bytes) -> None:
        """Replace all nodes by those of a `dump`, before there are clients. Its sessions end, since their clients are
        gone. Raises Malformed."""
        with self.lock:
            self.sessions = Sessions(decode_snapshot(data), self.clock, self._lock)
            self.sessions.end_all()

    def line(self) -> ZooKeeperLine:
        """A line for one more client."""
        with self.lock:
            self._lines.append(ZooKeeperLine(self))
            return self._lines[-1]

    def stop(self) -> None:
        """Stop serving: no client can reach it, and no session ends meanwhile."""
        with self.lock:
            self.is_serving = False
            self.sessions.freeze()
            for line in self._lines:
                line.break_connection()

    def start(self) -> None:
        """Serve again after `stop`, with the same data; sessions have their whole timeout to reconnect."""
        with self.lock:
            self.is_serving = True
            self.sessions.thaw()
            for line in self._lines:
                line.come_back()

    def close(self) -> None:
        """End for good, without a notification. Does nothing in a forked child."""
        if not self._home.is_here:
            return
        with self.lock:
            self.is_serving = False
            self.sessions.freeze()
        if self._own_clock is not None:
            self._own_clock.close()


class ZooKeeperLine(Traffic):
    """One client's link to the servers, for all its connections, also after a restart of the client."""

    def __init__(self, zookeeper: InMemoryZooKeeper) -> None:
        super().__init__(zookeeper.clock, zookeeper.lock, zookeeper.random)
        self.zookeeper = zookeeper
        self._is_cut = False
        self._connection: InMemoryConnection | None = None

    @property
    def is_open(self) -> bool:
        """Whether a client can connect."""
        return self.zookeeper.is_serving and not self._is_cut and not self.is_silent

    @property
    def session_id(self) -> int:
        """The client's session; 0 if it has none."""
        return self._connection.session_id if self._connection is not None else 0

    def dial(
        self,
        settings: ZooKeeperConfig,
        *,
        on_state: Callable[[ConnectionState], None],
        on_watch_event: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> InMemoryConnection:
        """The `dial` of a ZooKeeperConfig. `on_end` is never called."""
        with self.zookeeper.lock:
            assert self._connection is None or self._connection.is_closed, "one client at a time"
            self._connection = InMemoryConnection(self, settings, on_state, on_watch_event)
            return self._connection

    def cut(self) -> None:
        """End the connection, and refuse new ones."""
        with self.zookeeper.lock:
            self._is_cut = True
            self.break_connection()

    def silence(self) -> None:
        """Hold back all messages, in both directions."""
        with self.zookeeper.lock:
            self.is_silent = True
            if self._connection is not None:
                self._connection.go_silent()

    def mend(self) -> None:
        """The end of `cut`: connections can be opened again."""
        with self.zookeeper.lock:
            self._is_cut = False
            self.come_back()

    def end_silence(self) -> None:
        """The end of `silence`: a connection that has not timed out resumes."""
        with self.zookeeper.lock:
            self.is_silent = False
            if self._connection is not None:
                self._connection.resume()
            self.come_back()

    def expire(self) -> None:
        """End the client's session at the servers, as after its timeout."""
        with self.zookeeper.lock:
            connection = self._connection
            if connection is not None and connection.session is not None:
                self.zookeeper.sessions.end(connection.session)
                if not self.is_silent:
                    connection.hang_up()

    def break_connection(self) -> None:
        """End the connection; the client reconnects unless the line is cut."""
        with self.zookeeper.lock:
            if self._connection is not None:
                self._connection.hang_up()

    def come_back(self) -> None:
        """Connect the client again, if it is not connected."""
        with self.zookeeper.lock:
            if self._connection is not None:
                self._connection.reconnect()

    def abandon(self) -> None:
        """The client's process has ended without closing its session, which ends after its timeout."""
        with self.zookeeper.lock:
            if self._connection is not None:
                self._connection.vanish()


class InMemoryConnection:
    """A client's connection: the `Connection` of a ZooKeeperSession. It reconnects as long as the line is open, with a
    new session if the old one has ended."""

    last_fault = ""

    def __init__(
        self,
        line: ZooKeeperLine,
        settings: ZooKeeperConfig,
        on_state: Callable[[ConnectionState], None],
        on_watch_event: Callable[[str], None],
    ) -> None:
        self.session_timeout_ms = settings.session_timeout_ms
        self.identities = _identities(settings)
        self.session: Session | None = None
        self.is_closed = False
        self._on_watch_event = on_watch_event
        self._line = line
        self._zookeeper = line.zookeeper
        self._on_state = on_state
        self._wire: Wire | None = None
        self._silence: Timer | None = None

    @property
    def session_id(self) -> int:
        return self.session.number if self.session is not None else 0

    def open(self) -> None:
        self.reconnect()

    def submit(self, request: Request, reply: Reply) -> bool:
        with self._zookeeper.lock:
            if self._wire is None:
                return False
            self._wire.send(request, reply)
            return True

    def close(self) -> None:
        with self._zookeeper.lock:
            can_say_so = self._wire is not None and self._line.is_open
            self.vanish()
            if can_say_so and self.session is not None:
                self._zookeeper.sessions.end(self.session)

    # -- for the line

    def reconnect(self) -> None:
        """Connect, if the line is open and there is no connection."""
        with self._zookeeper.lock:
            if self._wire is not None or self.is_closed or not self._line.is_open:
                return
            if self.session is not None and not self._zookeeper.sessions.is_alive(self.session):
                self.session = None
                self._on_state(ConnectionState.EXPIRED)
            if self.session is None:
                self.session = self._zookeeper.sessions.open(self.session_timeout_ms)
            self._wire = Wire(
                self._line,
                self._zookeeper.sessions,
                self.session,
                self.identities,
                self._on_watch_event,
                self.hang_up,
            )
            self._on_state(ConnectionState.CONNECTED)

    def hang_up(self) -> None:
        """End the connection; both sides notice it."""
        if self._wire is None:
            return
        self._end_wire()
        self._on_state(ConnectionState.SUSPENDED)
        self._zookeeper.clock.call_later(RECONNECT_MS, self.reconnect)

    def go_silent(self) -> None:
        if self._wire is not None and self.session is not None and self._silence is None:
            self._zookeeper.sessions.expire_later(self.session)
            self._silence = self._zookeeper.clock.call_later(self.session_timeout_ms * 2 / 3, self._give_up)

    def resume(self) -> None:
        """Resume after the line's silence."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        if self._wire is not None and self.session is not None:
            if not self._zookeeper.sessions.is_alive(self.session):
                self.hang_up()
                return
            self._zookeeper.sessions.cancel_expiry(self.session)
            self._wire.deliver_due()

    def vanish(self) -> None:
        """The client has ended, and gets no more callbacks."""
        self.is_closed = True
        if self._wire is not None:
            self._end_wire()

    def _give_up(self) -> None:
        with self._zookeeper.lock:
            self._silence = None
            self.hang_up()

    def _end_wire(self) -> None:
        wire, self._wire = self._wire, None
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None
        assert wire is not None
        wire.end()


def _identities(settings: ZooKeeperConfig) -> list[Identity]:
    """The identities that a client with these settings proves to a server."""
    found = []
    if settings.digest is not None:
        found.append(digest_identity(settings.digest))
    if settings.sasl is not None and settings.sasl.username is not None:
        found.append(Identity("sasl", settings.sasl.username))
    return found
