"""A story told to a stage: what stood in ZooKeeper after each step, or how that differs from what should.

Brokers act on their own time. A record is taken when a tree is at rest and says the same twice; a comparison is over as
soon as there are no differences, and gives up on a step after a while.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from kafkalite.server.broker import Broker
from tests.support.wait import DEADLINE_S, until
from tests.support.zk.znode_comparison import ALLOWED, ALLOWED_FROM, Allowed, differences
from tests.support.zk.znode_story import SETTINGS, Stage, Story, is_at_rest
from tests.support.zk.znode_tree import Tree, read_tree, zookeeper_client

REST_S = 0.5  # a Kafka that has been quiet for this long has nothing left to do
IMPATIENCE_S = 1.0  # once something is wrong the rest need not be waited for


class KafkaliteStage:
    """Brokers of ours in threads of this process."""

    def __init__(self, zookeeper: str, home: Path, **settings: Any) -> None:
        self.zookeeper = zookeeper
        self._home = home
        self._settings = {key.replace(".", "_"): value for key, value in SETTINGS.items()} | settings
        self._brokers: dict[int, Broker] = {}

    def start(self, broker_id: int) -> None:
        broker = Broker(
            data_dir=self._home / str(broker_id),
            port=0,
            broker_id=broker_id,
            zookeeper_connect=self.zookeeper,
            **self._settings,
        )
        broker.__enter__()
        self._brokers[broker_id] = broker

    def stop(self, broker_id: int) -> None:
        self._brokers.pop(broker_id).__exit__(None, None, None)

    def address(self, broker_id: int) -> str:
        return f"127.0.0.1:{self._brokers[broker_id].port}"

    def close(self) -> None:
        for broker_id in list(self._brokers):
            self.stop(broker_id)


def record(stage: Stage, story: Story) -> dict[str, Tree]:
    """The tree after each step."""
    trees: dict[str, Tree] = {}
    with zookeeper_client(stage.zookeeper) as client:
        for name, step in story.items():
            step(stage)
            trees[name] = _rested(client, name)
    return trees


def faults(stage: Stage, story: Story, wanted: Mapping[str, Tree]) -> list[str]:
    """The differences from `wanted`, each at the first step where it shows, and ids that have changed."""
    found: list[str] = []
    known: set[str] = set()
    allowed: tuple[Allowed, ...] = ALLOWED
    before: Tree = {}
    with zookeeper_client(stage.zookeeper) as client:
        for name, step in story.items():
            step(stage)
            allowed += ALLOWED_FROM.get(name, ())
            judge = partial(_wrong, wanted[name], ids(before), allowed)
            before = _settled(client, judge, known)
            wrong = judge(before)
            found += [f"{name}: {line}" for line in wrong if line not in known]
            known = set(wrong)
    return found


def _wrong(wanted: Tree, before: Mapping[str, str], allowed: Sequence[Allowed], tree: Tree) -> list[str]:
    now = ids(tree)
    changed = [path for path, one in before.items() if path in wanted and now.get(path) != one]
    return differences(wanted, tree, allowed) + [f"{path} has another id" for path in changed]


def ids(tree: Tree) -> dict[str, str]:
    """Of the cluster and of topics, by path."""
    nodes = {path: node.data for path, node in tree.items() if isinstance(node.data, dict)}
    return {path: data[key] for path, data in nodes.items() for key in ("id", "topic_id") if key in data}


def _rested(client: KazooClient, name: str) -> Tree:
    last: list[Tree] = [{}]
    pause = threading.Event()

    def rests() -> bool:
        tree = read_tree(client)
        before, last[0] = last[0], tree
        if not is_at_rest(tree) or tree != before:
            pause.wait(REST_S)
            return False
        return True

    until(rests, f"ZooKeeper to come to rest after: {name}")
    return last[0]


def _settled(client: KazooClient, judge: Callable[[Tree], list[str]], known: set[str]) -> Tree:
    """The tree when nothing new is wrong with it, or when patience has ended."""
    last: list[Tree] = [{}]

    def settled() -> bool:
        last[0] = read_tree(client)
        return set(judge(last[0])) <= known

    with contextlib.suppress(pytest.fail.Exception):
        until(settled, "the same tree", IMPATIENCE_S if known else DEADLINE_S)
    return last[0]
