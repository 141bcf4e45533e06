"""The sessions of a ZooKeeper: their requests, watches and timeouts, and the one way in which its nodes change.

A session without a connection, or with one that is silent, ends after its timeout, and its ephemeral nodes are deleted.
It may move to another connection, by its number and password; its watches end with each connection. Every change is a
transaction, which goes to `journal` before anything else happens because of it.
Source: org.apache.zookeeper.server.SessionTrackerImpl, ZooKeeperServer (processConnectRequest), WatchManager.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from kafkalite.common.clock import Clock, Timer
from kafkalite.zk.server import access_lists
from kafkalite.zk.server.access_lists import Identity
from kafkalite.zk.server.refusals import Refused
from kafkalite.zk.server.requests import (
    WRITES,
    Client,
    answer_read,
    answer_refused,
    answer_write,
    read_write,
)
from kafkalite.zk.server.transactions import (
    DeleteNode,
    EndSession,
    OpenSession,
    Operation,
    Transaction,
)
from kafkalite.zk.server.watches import Notification, Watches
from kafkalite.zk.server.znode_tree import ZnodeTree

PASSWORD_BYTES = 16
_LATE_MS = 500

Journal = Callable[[Transaction], None]
"""Takes each transaction in its order."""

Notify = Callable[[int, str], None]
"""Sends a client the kind of an event and its path."""


def _ignore(_: Transaction) -> None:
    """The journal of a ZooKeeper that keeps nothing."""


class Session:
    """One session. `notify` sends its client an event, None without a connection; `identities` are those that the
    connection has proven, and `on_end` ends it with the session. `expiry` runs while the session may expire, at
    `expires_ms` of the monotonic clock."""

    def __init__(self, number: int, timeout_ms: int) -> None:
        self.number = number
        self.timeout_ms = timeout_ms
        self.identities: list[Identity] = []
        self.notify: Notify | None = None
        self.on_end: Callable[[], None] | None = None
        self.expiry: Timer | None = None
        self.expires_ms = 0

    def send_event(self, kind: int, path: str) -> None:
        if self.notify is not None:
            self.notify(kind, path)


class Sessions:
    """All sessions. Belongs to the thread that holds `lock`. While `is_frozen`, no session ends by itself."""

    def __init__(
        self,
        tree: ZnodeTree,
        clock: Clock,
        lock: AbstractContextManager[object] | None = None,
        journal: Journal = _ignore,
    ) -> None:
        self.is_frozen = False
        self.tree = tree
        self.watches: Watches[Client] = Watches()
        self._clock = clock
        self._lock = nullcontext() if lock is None else lock
        self._journal = journal
        self._alive = {number: Session(number, record.timeout_ms) for number, record in tree.sessions.items()}
        self._last = max(self._alive, default=0)
        for session in self._alive.values():
            self.expire_later(session)

    @property
    def numbers(self) -> list[int]:
        return list(self._alive)

    def open(self, timeout_ms: int) -> Session:
        # as the real ones begin with the time, so that it differs from those of an earlier cluster in its files
        self._last = max(self._last + 1, self._clock.wall_ms() << 16)
        session = Session(self._last, timeout_ms)
        self._commit((OpenSession(self._last, timeout_ms, secrets.token_bytes(PASSWORD_BYTES)),), self._last)
        self._alive[self._last] = session
        return session

    def password(self, session: Session) -> bytes:
        return self.tree.sessions[session.number].password

    def resume(self, number: int, password: bytes, timeout_ms: int) -> Session | None:
        """The session, for a client that knows its password, with a new timeout; None if it has ended."""
        session = self._alive.get(number)
        if session is None or not secrets.compare_digest(self.password(session), password):
            return None
        session.timeout_ms = timeout_ms
        return session

    def is_alive(self, session: Session) -> bool:
        return session.number in self._alive

    def attach(self, session: Session, notify: Notify, identities: Sequence[Identity] = ()) -> None:
        """The session has a connection."""
        self.cancel_expiry(session)
        self.watches.drop(session)
        session.notify = notify
        session.identities = list(identities)

    def detach(self, session: Session) -> None:
        """The session's connection is lost; if it was silent before that, the timeout counts from then."""
        self.watches.drop(session)
        session.notify = None
        if session.expiry is None:
            self.expire_later(session)

    def touch(self, session: Session) -> None:
        """The session's connection is not silent at this moment: the whole timeout begins again."""
        session.expires_ms = self._clock.monotonic_ms() + session.timeout_ms
        if session.expiry is None:
            self.expire_later(session)

    def cancel_expiry(self, session: Session) -> None:
        """Stop the session's timeout: its connection is not silent."""
        if session.expiry is not None:
            session.expiry.cancel()
            session.expiry = None

    def expire_later(self, session: Session) -> None:
        """Start the session's timeout, after which it ends."""
        self.cancel_expiry(session)
        if not self.is_frozen and self.is_alive(session):
            session.expires_ms = self._clock.monotonic_ms() + session.timeout_ms
            session.expiry = self._clock.call_later(session.timeout_ms, partial(self._expire, session))

    def _expire(self, session: Session) -> None:
        with self._lock:
            session.expiry = None
            late_ms = self._clock.monotonic_ms() - session.expires_ms
            if late_ms > _LATE_MS and session.notify is not None:
                # this process has stood still: what its clients sent meanwhile waits in the sockets
                session.expires_ms = self._clock.monotonic_ms() + session.timeout_ms // 3
                late_ms = -session.timeout_ms // 3
            if late_ms < 0:  # it has been touched since
                session.expiry = self._clock.call_later(-late_ms, partial(self._expire, session))
            else:
                self.end(session)

    def end(self, session: Session) -> None:
        """End the session now, and delete its ephemeral nodes."""
        with self._lock:
            self.cancel_expiry(session)
            if self._alive.pop(session.number, None) is not None:
                self.watches.drop(session)
                self._commit((EndSession(session.number),), session.number)
                if session.on_end is not None:
                    session.on_end()

    def end_all(self) -> None:
        for session in list(self._alive.values()):
            self.end(session)

    def freeze(self) -> None:
        self.is_frozen = True
        for session in self._alive.values():
            self.cancel_expiry(session)

    def thaw(self) -> None:
        """End `freeze`: each session has its whole timeout again."""
        self.is_frozen = False
        for session in self._alive.values():
            self.expire_later(session)

    def log_in(self, session: Session, credentials: str) -> None:
        """Add the digest identity of `user:password`, as often as a client proves another."""
        identity = access_lists.digest_identity(credentials)
        if identity not in session.identities:
            session.identities.append(identity)

    def serve(self, session: Session, kind: int, body: bytes) -> bytes:
        """Perform a request of a session that is alive. Raises Refused. Watches are notified before it returns."""
        if kind not in WRITES:
            return answer_read(kind, body, self.tree, self.watches, session)
        try:
            write = read_write(kind, body)
        except Refused:
            self._commit((), session.number)
            raise
        try:
            decided = self.tree.decide(write.operations, session.number, session.identities)
        except Refused as refusal:
            self._commit((), session.number)
            if not write.is_multi:
                raise
            return answer_refused(write, refusal)
        notifications = self._apply(decided, session.number)
        answer = answer_write(write, decided, self.tree)
        _send(notifications)
        return answer

    def transact(self, operations: Sequence[Operation]) -> None:
        """Perform operations of this process itself. Raises Refused."""
        with self._lock:
            self._commit(self.tree.decide(operations, 0), 0)

    def delete_empty_containers(self) -> None:
        """Delete each container that has had children and has none, as ZooKeeper does every minute."""
        for path in list(self.tree.empty_containers()):
            self.transact([DeleteNode(path, if_container=True)])

    def _commit(self, operations: tuple[Operation, ...], session: int) -> None:
        _send(self._apply(operations, session))

    def _apply(self, operations: tuple[Operation, ...], session: int) -> list[tuple[Client, Notification]]:
        """Returns the notifications that follow, which are sent behind the transaction and before any answer."""
        transaction = Transaction(self.tree.zxid + 1, self._clock.wall_ms(), session, operations)
        events = self.tree.apply(transaction)
        self._journal(transaction)
        found = []
        for event in events:
            for watcher, notification, at in self.watches.notifications(event):
                try:
                    access_lists.require(at.access_list, access_lists.READ, watcher.identities)
                except Refused:
                    continue
                found.append((watcher, notification))
        return found


def _send(notifications: list[tuple[Client, Notification]]) -> None:
    for watcher, (kind, path) in notifications:
        watcher.send_event(kind, path)
