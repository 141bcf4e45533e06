"""The number of a broker: broker.id and node.id are one setting, which a broker of a cluster may leave open.

Source: kafka.server.KafkaConfig.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalite.common.errors import ConfigError


def settle_identity(values: dict[str, Any]) -> None:
    """Makes broker.id and node.id one number, which with ZooKeeper may be -1; log.dirs wins over log.dir."""
    broker_id, node_id = values.get("broker_id", -1), values.get("node_id", -1)
    if broker_id >= 0 and node_id >= 0 and broker_id != node_id:
        raise ConfigError(f"broker.id={broker_id} and node.id={node_id} are the same setting and must not differ")
    in_cluster = values.get("zookeeper_connect") is not None
    values["broker_id"] = values["node_id"] = max(broker_id, node_id, -1 if in_cluster else 0)
    if in_cluster:
        _check_broker_id(values["broker_id"], values)
    if values.get("log_dirs") is not None:
        values["log_dir"] = values["log_dirs"]


def _check_broker_id(broker_id: int, values: Mapping[str, Any]) -> None:
    generates = values.get("broker_id_generation_enable", True)
    reserved = values.get("reserved_broker_max_id", 1000)
    if broker_id < 0 and not generates:
        raise ConfigError("broker.id must be given when broker.id.generation.enable=false")
    if broker_id > reserved and generates:
        raise ConfigError(
            f"broker.id={broker_id} must not be above reserved.broker.max.id={reserved}: numbers above it are made up "
            "for brokers that have none; raise that, or set broker.id.generation.enable=false"
        )
