"""Writes of the settings of users, client ids and IP addresses: quotas, and credentials of SCRAM.

A node below another, /config/users/alice/clients/app, needs its parents. One without settings goes, and with it the
parents that have neither settings nor other children: so Kafka's tools list nobody who has nothing.
Source: kafka.zk.AdminZkClient (changeEntityConfig, tryCleanQuotaNodes).
"""

from __future__ import annotations

from collections.abc import Mapping

from kafkalite.zk.client.operations import Create, Delete, Operation, SetData
from kafkalite.zk.cluster.cluster_view import ClusterView
from kafkalite.zk.znodes import znode_data, znode_paths


def entity_writes(view: ClusterView, path: str, config: Mapping[str, str]) -> list[Operation]:
    """The operations that give the entity at `path`, below /config, these settings. Each is checked against `view`."""
    node_path = f"{znode_paths.CONFIG}/{path}"
    if not config and not _children(view, node_path):
        return _removal(view, node_path)
    node = view.node(node_path)
    data = znode_data.config_json(config)
    if node is not None:
        return [SetData(node_path, data, node.version)]
    parents = [each for each in znode_paths.with_parents([node_path])[:-1] if each not in view.paths]
    return [*(Create(each) for each in parents if _is_below_entities(each)), Create(node_path, data)]


def _removal(view: ClusterView, node_path: str) -> list[Operation]:
    removed: list[Operation] = []
    child = ""
    while _is_below_entities(node_path):
        node = view.node(node_path)
        others = [each for each in _children(view, node_path) if each != child]
        if others or (child and (node is None or znode_data.parse_config(node.data))):
            break
        if node is not None:
            removed.append(Delete(node_path, node.version))
        child, node_path = node_path, node_path.rpartition("/")[0]
    return removed


def _children(view: ClusterView, node_path: str) -> list[str]:
    start = node_path + "/"
    return [each for each in view.paths if each.startswith(start) and "/" not in each[len(start) :]]


def _is_below_entities(node_path: str) -> bool:
    """Whether it is not one of the nodes that are always there, such as /config/users."""
    return node_path.count("/") > 2
