"""Connections to a cluster for one user: borrowed by a request, returned after it, opened again if lost.

A `ClusterClient` serves one thread at a time. The metadata of a borrowed one are at most a moment old.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from kafkalite.client.broker_reports import KnowsBrokers
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.group_rows import Row, group_rows
from kafkalite.common.errors import Unanswered
from kafkalite.console.brokers.inventory import InventoryCache
from kafkalite.console.request.parameters import too_many

if TYPE_CHECKING:
    from kafkalite.client.logins import ClientSecurity

CLIENTS_MAX = 24
_IDLE_MAX = 6
_METADATA_AGE_S = 0.25
_ASK_S = 15.0
_GROUPS_AGE_S = 3.0


class GroupsCache:
    """The rows of all groups of a user's cluster, refreshed by the reader that finds them too old."""

    def __init__(self, pool: KnowsBrokers, monotonic_s: Callable[[], float]) -> None:
        self._pool = pool
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._rows: list[Row] = []
        self._made_s = float("-inf")

    def get(self, cluster: ClusterClient) -> list[Row]:
        """Raises Unanswered."""
        with self._lock:
            if self._monotonic_s() - self._made_s > _GROUPS_AGE_S:
                self._rows = group_rows(cluster, self._pool)
                self._made_s = self._monotonic_s()
            return self._rows

    def forget(self) -> None:
        self._made_s = float("-inf")


_FORGOTTEN_MS = 60_000


class FirstSeen:
    """The time at which each of some facts was first seen; one that is not seen for a minute is forgotten."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self._lock = threading.Lock()
        self._seen: dict[Hashable, tuple[int, int]] = {}  # first, last

    def of(self, facts: Iterable[Hashable]) -> list[int]:
        """The time in ms of each of the facts, which are true now."""
        now_ms = self._wall_ms()
        with self._lock:
            known = {fact: times for fact, times in self._seen.items() if times[1] >= now_ms - _FORGOTTEN_MS}
            found = []
            for fact in facts:
                first_ms = known.get(fact, (now_ms, 0))[0]
                known[fact] = first_ms, now_ms
                found.append(first_ms)
            self._seen = known
        return found


class BrokerPool(KnowsBrokers):
    """`bootstrap` and `security` as for a ClusterClient."""

    def __init__(
        self,
        bootstrap: str,
        security: ClientSecurity | None,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.bootstrap = bootstrap
        self.inventory = InventoryCache(self.borrow, self, monotonic_s)
        self.groups = GroupsCache(self, monotonic_s)
        self.first_seen = FirstSeen(lambda: int(time.time() * 1000))
        self._changed_s = float("-inf")
        self._security = security
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._idle: list[tuple[ClusterClient, float]] = []
        self._borrowed = 0
        self._closed = False

    @contextlib.contextmanager
    def borrow(self, *, fresh: bool = False) -> Iterator[ClusterClient]:
        """A client for the time of the block. With `fresh` its metadata are refreshed now. Raises Unanswered, ApiError
        if too many are in use."""
        client, asked_s = self._take(fresh)
        try:
            yield client
        finally:
            self._give_back(client, asked_s)

    def check(self) -> None:
        """Raises Unanswered if the cluster cannot be reached, or refuses the login."""
        with self.borrow():
            pass

    def changed(self) -> None:
        """Drops all cached rows: topics or groups have changed."""
        self._changed_s = self._monotonic_s()
        self.inventory.forget()
        self.groups.forget()

    def close(self) -> None:
        with self._lock:
            idle, self._idle, self._closed = self._idle, [], True
        for client, _ in idle:
            client.close()

    def _take(self, fresh: bool) -> tuple[ClusterClient, float]:
        with self._lock:
            if self._borrowed >= CLIENTS_MAX:
                raise too_many(f"{CLIENTS_MAX} requests are in progress; try again in a moment")
            self._borrowed += 1
            client, asked_s = self._idle.pop() if self._idle else (None, 0.0)
        try:
            now_s = self._monotonic_s()
            is_old = fresh or now_s - asked_s > _METADATA_AGE_S or asked_s <= self._changed_s
            if client is not None and is_old:
                client = self._renewed(client)
                asked_s = now_s
            if client is None:
                client, asked_s = ClusterClient(self.bootstrap, _ASK_S, self._security).open(), now_s
        except BaseException:
            with self._lock:
                self._borrowed -= 1
            raise
        return client, asked_s

    @staticmethod
    def _renewed(client: ClusterClient) -> ClusterClient | None:
        """The client with fresh metadata; None if its connection was lost meanwhile."""
        try:
            client.refresh()
        except Unanswered:
            client.close()
            return None
        return client

    def _give_back(self, client: ClusterClient, asked_s: float) -> None:
        """Returns a client to the pool, unless its first connection is lost; it opens others again by itself."""
        with self._lock:
            self._borrowed -= 1
            if not client.is_lost and not self._closed and len(self._idle) < _IDLE_MAX:
                self._idle.append((client, asked_s))
                return
        client.close()
