"""The nodes that Apache Kafka leaves in ZooKeeper after each command of a story, kept as JSON.

After the first step only what has changed is kept: a node that is gone is null. Whether a node is ephemeral, and its
access list, stand there where they are not as usual.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support import places
from tests.support.zk.znode_tree import Tree, Znode

FOLDER = places.GOLDEN / "zookeeper"
OPEN = ("world:anyone:rwcda",)


def load(story: str) -> dict[str, Tree]:
    """The whole tree after each step, by the step's name, in order. Empty where nothing was recorded."""
    path = FOLDER / f"{story}.json"
    if not path.exists():
        return {}
    trees: dict[str, Tree] = {}
    tree: dict[str, Znode] = {}
    for step, changes in json.loads(path.read_text()).items():
        tree = dict(tree)
        for where, node in changes.items():
            if node is None:
                del tree[where]
            else:
                tree[where] = Znode(node["data"], node.get("ephemeral", False), tuple(node.get("acl", OPEN)))
        trees[step] = tree
    return trees


def save(story: str, trees: Mapping[str, Tree]) -> None:
    """Write the story's file anew, a line for each node."""
    known: Tree = {}
    steps = []
    for step, tree in trees.items():
        gone = sorted(known.keys() - tree.keys())
        changes: dict[str, Any] = dict.fromkeys(gone)
        changes |= {path: _plain(node) for path, node in tree.items() if known.get(path) != node}
        known = tree
        lines = ",\n".join(f"  {json.dumps(path)}: {json.dumps(node)}" for path, node in changes.items())
        steps.append(f" {json.dumps(step)}: {{\n{lines}\n }}" if lines else f" {json.dumps(step)}: {{}}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{story}.json").write_text("{\n" + ",\n".join(steps) + "\n}\n")


def _plain(node: Znode) -> dict[str, Any]:
    plain: dict[str, Any] = {"data": node.data}
    if node.is_ephemeral:
        plain["ephemeral"] = True
    if node.acl != OPEN:
        plain["acl"] = list(node.acl)
    return plain
