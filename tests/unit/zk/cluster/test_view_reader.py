"""The count of deleted topics up to which the view has everything, which writes to nodes of topics check."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from kafkalite.zk.client.operations import Check, Node, Unavailable
from kafkalite.zk.client.session import ZooKeeperSession
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.cluster.view_reader import ViewReader
from kafkalite.zk.znodes import znode_data, znode_paths

T = znode_paths.topic("t")
DELETIONS = znode_paths.TOPIC_DELETIONS


class Nodes:
    """A session that only reads. `on_read` is called before each reading."""

    def __init__(self) -> None:
        self.there: dict[str, Node] = {}
        self.on_read: Callable[[], None] = lambda: None
        self._transaction = 0

    def put(self, path: str, data: bytes = b"", version: int = 0) -> None:
        self._transaction += 1
        before = self.there.get(path)
        created = self._transaction if before is None else before.czxid
        self.there[path] = Node(data, version, self._transaction, created, 0, 0)

    async def read(self, paths: Sequence[str]) -> list[Node | None]:
        self.on_read()
        return [self.there.get(path) for path in paths]

    async def children(self, parents: Sequence[str]) -> list[list[str] | None]:
        return [[path[len(parent) + 1 :] for path in self.there if path.startswith(f"{parent}/")] for parent in parents]


class Scene:
    def __init__(self) -> None:
        self.nodes = Nodes()
        self.view = ClusterView()
        self.reader = ViewReader(cast("ZooKeeperSession", self.nodes), self.view, lambda *_: None, lambda _: None)

    @property
    def count(self) -> int | None:
        """The version of the deletion count that the next write checks; None: it checks nothing."""
        fence: Check | None = next(iter(self.view.deletion_fence), None)
        return None if fence is None else fence.version

    def delete_one(self, count: int) -> None:
        """The last one that was deleted makes so many; whoever watches is told."""
        self.nodes.put(DELETIONS, version=count)
        self.reader.note([DELETIONS])


def told(story: Callable[[Scene], Awaitable[Any]]) -> None:
    async def run() -> None:
        scene = Scene()
        scene.nodes.put(DELETIONS, version=5)
        scene.nodes.put(T, znode_data.topic_json(znode_data.TopicNode({0: (1,)})))
        await scene.reader.read_all()
        await story(scene)

    asyncio.run(run())


def test_a_view_that_has_everything_knows_the_count() -> None:
    async def story(scene: Scene) -> None:
        assert scene.count == 5 and T in scene.view.paths
        scene.delete_one(6)
        assert scene.count == 5
        await scene.reader.refresh()
        assert scene.count == 6
        del scene.nodes.there[DELETIONS]
        await scene.reader.refresh([DELETIONS])
        assert scene.count is None, "somebody has taken it away: nothing can be checked"

    told(story)


def test_after_a_lost_connection_only_reading_everything_tells() -> None:
    async def story(scene: Scene) -> None:
        scene.reader.miss()
        scene.nodes.put(DELETIONS, version=6)  # nobody was told of it, nor of the topic that was deleted
        await scene.reader.refresh([DELETIONS])
        assert scene.count == 5
        scene.nodes.on_read = fail
        with pytest.raises(Unavailable):
            await scene.reader.read_all()
        scene.nodes.on_read = lambda: None
        await scene.reader.refresh([DELETIONS])
        assert scene.count == 5
        await scene.reader.read_all()
        assert scene.count == 6

    def fail() -> None:
        raise Unavailable("the connection is lost again")

    told(story)


def test_a_connection_that_is_lost_while_everything_is_read_has_missed_something() -> None:
    async def story(scene: Scene) -> None:
        scene.nodes.put(DELETIONS, version=6)
        scene.nodes.on_read = scene.reader.miss
        await scene.reader.read_all()
        assert scene.count == 5

    told(story)


def test_changes_without_end_do_not_keep_the_count_back() -> None:
    async def story(scene: Scene) -> None:
        scene.nodes.on_read = lambda: scene.delete_one(scene.nodes.there[DELETIONS].version + 1)
        scene.delete_one(6)
        await scene.reader.refresh()
        last_transaction = scene.reader.last_transaction
        assert scene.count == 5, "the seventh has come meanwhile, and its topic may not have been read"
        await scene.reader.refresh()
        assert scene.count == 7, "all that came before it was read by now, though the eighth has come"
        assert scene.reader.last_transaction == last_transaction

    told(story)
