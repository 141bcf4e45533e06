"""The servers' side of a ZooKeeper in memory: its sessions with their ephemeral nodes and watches, and its answers.

Requests are decoded, performed on a tree in memory, and answered in bytes (`zk.client.wire_requests`). Access lists are
skipped: every client may do everything.
A session without a connection ends after its timeout. Its watches end with its connection. Timers fire on a thread of
their own (`ThreadClock`), since this ZooKeeper belongs to no event loop.
Source: org.apache.zookeeper.server.SessionTrackerImpl, WatchManager; zookeeper.jute, MultiOperationRecord,
MultiResponse.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from threading import RLock

from kafkalite.common.clock import Clock, Timer, date_ms, monotonic_ms, monotonic_s
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.testing.zookeeper.znode_tree import Refused, ZnodeTree
from kafkalite.zk.client.operations import UNIMPLEMENTED, Check, Create, Delete, Operation, SetData
from kafkalite.zk.client.wire_requests import (
    ADD_WATCH,
    CHECK,
    CREATE,
    DELETE,
    ERROR,
    GET_CHILDREN,
    GET_DATA,
    INT,
    MULTI,
    MULTI_END,
    MULTI_HEADER,
    MULTI_READ,
    SET_DATA,
    SYNC,
    Request,
    buffer,
    string,
)


class Session:
    """One session. `watched`: the trees that the present connection watches; `notify` sends its client a changed path.
    `expiry` runs while there is no connection, or the connection is silent."""

    def __init__(self, number: int, timeout_ms: int) -> None:
        self.number = number
        self.timeout_ms = timeout_ms
        self.watched: set[str] = set()
        self.notify: Callable[[str], None] | None = None
        self.expiry: Timer | None = None

    def watches(self, path: str) -> bool:
        return any(path == tree or tree == "/" or path.startswith(tree + "/") for tree in self.watched)


class Sessions:
    """All sessions. Belongs to the thread that holds `lock`. While `is_frozen`, no session ends by itself."""

    def __init__(self, tree: ZnodeTree, clock: Clock, lock: RLock) -> None:
        self.is_frozen = False
        self._tree = tree
        self._clock = clock
        self._lock = lock
        self._alive: dict[int, Session] = {}
        self._last = 0

    @property
    def numbers(self) -> list[int]:
        return list(self._alive)

    def open(self, timeout_ms: int) -> Session:
        # as the real ones begin with the time, so that it differs from those of an earlier cluster in its files
        self._last = max(self._last + 1, self._clock.wall_ms() << 16)
        session = self._alive[self._last] = Session(self._last, timeout_ms)
        return session

    def is_alive(self, session: Session) -> bool:
        return session.number in self._alive

    def attach(self, session: Session, notify: Callable[[str], None]) -> None:
        """The session has a connection."""
        self.cancel_expiry(session)
        session.watched.clear()
        session.notify = notify

    def detach(self, session: Session) -> None:
        """The session's connection is lost; if it was silent before that, the timeout counts from then."""
        session.notify = None
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
            session.expiry = self._clock.call_later(session.timeout_ms, partial(self.end, session))

    def end(self, session: Session) -> None:
        """End the session now, and delete its ephemeral nodes."""
        with self._lock:
            self.cancel_expiry(session)
            if self._alive.pop(session.number, None) is not None:
                self._notify(self._tree.end_session(session.number))

    def freeze(self) -> None:
        self.is_frozen = True
        for session in self._alive.values():
            self.cancel_expiry(session)

    def thaw(self) -> None:
        """End `freeze`: each session has its whole timeout again."""
        self.is_frozen = False
        for session in self._alive.values():
            self.expire_later(session)

    def serve(self, session: Session, request: Request) -> bytes:
        """Perform a request of a session that is alive. Raises Refused."""
        answered = answer(request, self._tree, session.number)
        if answered.watched is not None:
            session.watched.add(answered.watched)
        self._notify(answered.changed)
        return answered.data

    def _notify(self, changed: list[str]) -> None:
        for session in list(self._alive.values()):
            if session.notify is not None:
                for path in changed:
                    if session.watches(path):
                        session.notify(path)


logger = logging.getLogger(__name__)


class _Timer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ThreadClock:
    """The machine's clock. The thread lives as long as a timer is set: after `close` there is none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue: list[tuple[float, int, _Timer]] = []
        self._count = 0
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def wall_ms(self) -> int:
        return date_ms()

    def monotonic_ms(self) -> int:
        return monotonic_ms()

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> _Timer:
        """As `Clock.call_later`, from any thread. After `close` the timer never fires."""
        timer = _Timer(callback)
        with self._changed:
            if not self._is_closed:
                self._count += 1  # equal deadlines fire in the order they were set
                due_s = monotonic_s() + max(0.0, delay_ms) / 1000
                heapq.heappush(self._queue, (due_s, self._count, timer))
                self._changed.notify()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="kafkalite-test-timers", daemon=True)
                    self._thread.start()
        return timer

    def close(self) -> None:
        """Cancel all timers, and wait for the end of the thread. Not called by a timer."""
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            try:
                callback()
            except Exception:
                logger.exception("a timer failed")

    def _next(self) -> Callable[[], None] | None:
        """Waits for the next due timer; None when there is none any more."""
        with self._changed:
            while self._queue:
                due_s, _, timer = self._queue[0]
                wait_s = due_s - monotonic_s()
                if timer.callback is not None and wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                heapq.heappop(self._queue)
                callback, timer.callback = timer.callback, None
                if callback is not None:
                    return callback
            self._thread = None
            return None


WRITES = frozenset({CREATE, DELETE, SET_DATA, MULTI})

_EPHEMERAL, _SEQUENTIAL = 1, 2
_ROLLED_BACK, _NOT_TRIED = 0, -2


class Answered(NamedTuple):
    """The bytes of an answer, the paths that were changed, and the path that is watched from now on."""

    data: bytes
    changed: list[str]
    watched: str | None = None


def answer(request: Request, tree: ZnodeTree, session_id: int) -> Answered:
    """Perform a request. Raises Refused if it is answered with an error as a whole."""
    kind, fields = request.type, _Fields(request.serialize())
    if kind == MULTI:
        return _transact(list(fields.operations()), tree, session_id)
    if kind in WRITES:
        operation = fields.operation(kind)
        created, changed = tree.transact([operation], session_id)
        return Answered(_result(operation, created[0], tree), changed)
    if kind == MULTI_READ:
        return Answered(b"".join([_read(each, path, tree) for each, path in fields.reads()]) + MULTI_END, [])
    if kind == ADD_WATCH:
        return Answered(INT.pack(0), [], fields.string())
    if kind == SYNC:
        return Answered(string(fields.string()), [])
    raise Refused(UNIMPLEMENTED)


def _transact(operations: list[Operation], tree: ZnodeTree, session_id: int) -> Answered:
    parts: list[bytes] = []
    try:
        created, changed = tree.transact(operations, session_id)
    except Refused as refusal:
        for index in range(len(operations)):
            before_or_after = _ROLLED_BACK if index < refusal.index else _NOT_TRIED
            code = refusal.code if index == refusal.index else before_or_after
            parts.append(MULTI_HEADER.pack(ERROR, 0, code) + INT.pack(code))
        return Answered(b"".join(parts) + MULTI_END, [])
    for operation, path in zip(operations, created, strict=True):
        parts.append(MULTI_HEADER.pack(_KINDS[type(operation)], 0, 0) + _result(operation, path, tree))
    return Answered(b"".join(parts) + MULTI_END, changed)


def _result(operation: Operation, created: str, tree: ZnodeTree) -> bytes:
    if isinstance(operation, Create):
        return string(created)
    if isinstance(operation, SetData):  # no reader uses it; the node may be deleted by the same transaction
        return tree.data_and_stat(operation.path if operation.path in tree else "/")[1]
    return b""


def _read(kind: int, path: str, tree: ZnodeTree) -> bytes:
    try:
        if kind == GET_DATA:
            data, stat = tree.data_and_stat(path)
            return MULTI_HEADER.pack(kind, 0, 0) + buffer(data) + stat
        names = tree.children(path)
        return MULTI_HEADER.pack(GET_CHILDREN, 0, 0) + INT.pack(len(names)) + b"".join(map(string, names))
    except Refused as refusal:
        return MULTI_HEADER.pack(ERROR, 0, refusal.code) + INT.pack(refusal.code)


_KINDS: dict[type[Operation], int] = {Create: CREATE, SetData: SET_DATA, Delete: DELETE, Check: CHECK}


class _Fields:
    """Reads the fields of a request's body one after the other."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def operation(self, kind: int) -> Operation:
        path = self.string()
        if kind == CREATE:
            data = self._buffer()
            for _ in range(self._int()):  # the access list
                self._int(), self.string(), self.string()
            flags = self._int()
            return Create(path, data, bool(flags & _EPHEMERAL), bool(flags & _SEQUENTIAL))
        if kind == SET_DATA:
            return SetData(path, self._buffer(), self._int())
        if kind == DELETE:
            return Delete(path, self._int())
        assert kind == CHECK, kind
        return Check(path, self._int())

    def operations(self) -> Iterator[Operation]:
        while (kind := self._next_kind()) is not None:
            yield self.operation(kind)

    def reads(self) -> Iterator[tuple[int, str]]:
        while (kind := self._next_kind()) is not None:
            yield kind, self.string()
            self._at += 1  # whether a watch is wanted

    def string(self) -> str:
        return self._buffer().decode()

    def _next_kind(self) -> int | None:
        kind, done, _ = MULTI_HEADER.unpack_from(self._body, self._at)
        self._at += MULTI_HEADER.size
        return None if done else int(kind)

    def _int(self) -> int:
        (number,) = INT.unpack_from(self._body, self._at)
        self._at += INT.size
        return int(number)

    def _buffer(self) -> bytes:
        size = max(0, self._int())
        self._at += size
        return self._body[self._at - size : self._at]
