"""The watches of all sessions: which of them a change notifies.

    mode        set by                        notifies of the path's                 ends
    once        getData, exists               creation, change, deletion             with the first event
    once        getChildren                   new and deleted children, deletion     with the first event
    persistent  addWatch                      all of these                           when it is removed
    recursive   addWatch                      creation, change, deletion of the      when it is removed
                                              path and of all paths below it

All of them end with the session's connection.
Source: org.apache.zookeeper.server.watch.WatchManager, WatchStats; DataTree (triggerWatch).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Generic, TypeVar

from kafkalite.zk.server.znode_tree import CHILDREN_CHANGED, CREATED, DELETED, Event, parent_of

ONCE, PERSISTENT, RECURSIVE = 1, 2, 4

T = TypeVar("T")

Notification = tuple[int, str]
"""The kind of an event and its path, as a client gets them."""


class WatchTable(Generic[T]):
    """Watchers by path, each with its modes."""

    def __init__(self) -> None:
        self.count = 0
        self._watchers: dict[str, dict[T, int]] = {}
        self._paths: dict[T, set[str]] = {}
        self._recursive_count = 0

    @property
    def path_count(self) -> int:
        return len(self._watchers)

    def add(self, path: str, watcher: T, mode: int) -> None:
        watchers = self._watchers.setdefault(path, {})
        self._set(path, watcher, watchers.get(watcher, 0), watchers.get(watcher, 0) | mode)

    def remove(self, path: str, watcher: T, modes: int) -> bool:
        """Whether the watcher had one of `modes` there."""
        before = self.modes(path, watcher)
        self._set(path, watcher, before, before & ~modes)
        return bool(before & modes)

    def modes(self, path: str, watcher: T) -> int:
        return self._watchers.get(path, {}).get(watcher, 0)

    def drop(self, watcher: T) -> None:
        """Remove all that it has."""
        for path in list(self._paths.get(watcher, ())):
            self._set(path, watcher, self.modes(path, watcher), 0)

    def trigger(self, path: str) -> list[T]:
        """The watchers of a change at `path`, those of paths above it included if they are recursive."""
        found: dict[T, None] = {}
        for watcher, modes in list(self._watchers.get(path, {}).items()):
            found[watcher] = None
            self._set(path, watcher, modes, modes & ~ONCE)
        while self._recursive_count and path != "/":
            path = parent_of(path)
            for watcher, modes in self._watchers.get(path, {}).items():
                if modes & RECURSIVE:
                    found[watcher] = None
        return list(found)

    def _set(self, path: str, watcher: T, before: int, after: int) -> None:
        self.count += (after != 0) - (before != 0)
        self._recursive_count += bool(after & RECURSIVE) - bool(before & RECURSIVE)
        if after:
            self._watchers[path][watcher] = after
            self._paths.setdefault(watcher, set()).add(path)
        elif before:
            watchers, paths = self._watchers[path], self._paths[watcher]
            del watchers[watcher]
            paths.remove(path)
            if not paths:
                del self._paths[watcher]
            if not watchers:
                del self._watchers[path]


class Watches(Generic[T]):
    """`data` and `children`: a recursive watch is in the first only."""

    def __init__(self) -> None:
        self.data: WatchTable[T] = WatchTable()
        self.children: WatchTable[T] = WatchTable()

    @property
    def count(self) -> int:
        return self.data.count + self.children.count

    def add(self, path: str, watcher: T, mode: int) -> None:
        """Add a watch by addWatch. `mode`: PERSISTENT or RECURSIVE."""
        self.data.add(path, watcher, mode)
        if mode == PERSISTENT:
            self.children.add(path, watcher, mode)

    def drop(self, watcher: T) -> None:
        self.data.drop(watcher)
        self.children.drop(watcher)

    def notifications(self, event: Event) -> Iterator[tuple[T, Notification, Event]]:
        """Each watcher with its notification of the event, in the order in which they are sent. Watches that end with
        it are removed."""
        path = event.path
        seen: Collection[T] = ()
        for watcher in (seen := self.data.trigger(path)):
            yield watcher, (event.kind, path), event
        if event.kind == DELETED:
            for watcher in self.children.trigger(path):
                if watcher not in seen:
                    yield watcher, (DELETED, path), event
        if event.kind in (CREATED, DELETED):
            parent = parent_of(path)
            of_parent = event._replace(access_list=event.parent_access_list)
            for watcher in self.children.trigger(parent):
                yield watcher, (CHILDREN_CHANGED, parent), of_parent
