"""Requests that Kafka's tools write to ZooKeeper.

Source: kafka.zk.ReassignPartitionsZNode, kafka.zk.PreferredReplicaElectionZNode.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from kafkalite.common.names import TopicPartition


def partitions_json(partitions: Iterable[TopicPartition]) -> bytes:
    """The data of /admin/preferred_replica_election."""
    rows = [{"topic": name, "partition": number} for name, number in partitions]
    return json.dumps({"version": 1, "partitions": rows}).encode()


def reassignment_json(assignment: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """The data of /admin/reassign_partitions."""
    rows = [{"topic": name, "partition": number, "replicas": list(r)} for (name, number), r in assignment.items()]
    return json.dumps({"version": 1, "partitions": rows}).encode()
