"""A fetch session as the one who fetches sees it: a request names only the partitions whose parameters have changed.

The leader keeps what it was told, and goes on fetching that. So this end must know at any time what the leader holds:
`_held` is what it has after the request that was sent last. When that is not sure (no answer came, or the answer does
not fit), the next request names all partitions and opens a new session.
Source: org.apache.kafka.clients.FetchSessionHandler, org.apache.kafka.common.requests.FetchMetadata, KIP-227.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkalite.replication.replica.follower_replica import Fetch

NO_SESSION = 0
INITIAL_EPOCH = 0
_EPOCH_MAX = 0x7FFFFFFF

Key = tuple[bytes, int]
"""A partition: the id of its topic, as it travels, and its index."""


class SessionRequest(NamedTuple):
    """The part of a fetch request that is about its session. With INITIAL_EPOCH `named` are all partitions."""

    session_id: int
    session_epoch: int
    named: dict[Key, Fetch]
    forgotten: list[Key]


class FetchSession:
    """`want` and `forget` say what the next request is to fetch. Partitions that changed last are named last, so that
    none starves behind a busy one."""

    __slots__ = ("_changed", "_epoch", "_held", "_wanted", "session_id")

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[Key, Fetch] = {}
        self._held: dict[Key, Fetch] = {}
        self._changed: dict[Key, None] = {}  # what is wanted may differ from what is held

    def __len__(self) -> int:
        """The number of partitions that the next request fetches."""
        return len(self._wanted)

    def want(self, key: Key, fetch: Fetch) -> None:
        """Fetch the partition from now on with these parameters."""
        if self._wanted.get(key) != fetch:
            self._wanted.pop(key, None)
            self._wanted[key] = fetch
            self._changed[key] = None

    def forget(self, key: Key) -> None:
        """Fetch the partition no more, until it is wanted again."""
        if self._wanted.pop(key, None) is not None:
            self._changed[key] = None

    def sent(self, key: Key) -> Fetch | None:
        """The parameters of the request that was sent last; None if it does not fetch the partition."""
        return self._held.get(key)

    def next_request(self) -> SessionRequest:
        """The request to be sent now; it counts as sent."""
        wanted, held = self._wanted, self._held
        if self._epoch == INITIAL_EPOCH:
            self._held = dict(wanted)
            self._changed.clear()
            return SessionRequest(self.session_id, INITIAL_EPOCH, self._held, [])
        named: dict[Key, Fetch] = {}
        forgotten: list[Key] = []
        for key in self._changed:
            fetch = wanted.get(key)
            if fetch is None:
                if held.pop(key, None) is not None:
                    forgotten.append(key)
            elif held.get(key) != fetch:
                held[key] = named[key] = fetch
        self._changed.clear()
        return SessionRequest(self.session_id, self._epoch, named, forgotten)

    def on_answer(self, session_id: int) -> None:
        """The request was answered without an error. NO_SESSION: the leader keeps none."""
        if session_id == NO_SESSION or (self._epoch != INITIAL_EPOCH and session_id != self.session_id):
            self.session_id, self._epoch = NO_SESSION, INITIAL_EPOCH
        else:
            self.session_id = session_id
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def restart(self, *, closes: bool = True) -> None:
        """The next request opens a new session and, with `closes`, ends the present one: the leader may have it."""
        self._epoch = INITIAL_EPOCH
        if not closes:
            self.session_id = NO_SESSION
