"""Settings that ask for more copies of a partition than a broker that is a cluster by itself can have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def one_copy_warnings(values: Mapping[str, Any]) -> list[str]:
    """Warnings for settings that ask for more than one replica, where there can be only one; they are common, so they
    do not prevent a start."""
    found = []
    for name, what in (
        ("default.replication.factor", "new topics"),
        ("offsets.topic.replication.factor", "the topic"),
        ("transaction.state.log.replication.factor", "the topic"),
    ):
        if (factor := values.get(name.replace(".", "_"), 1)) > 1:
            found.append(
                f"{name}={factor} has no effect: there is one copy of each partition, and {what} will have 1 replica"
            )
    if (replicas := values.get("min_insync_replicas", 1)) > 1:
        found.append(
            f"min.insync.replicas={replicas} asks for more copies than the one that there is: a topic with 1 replica "
            "takes acks=all with that one, as in Apache Kafka"
        )
    return found
