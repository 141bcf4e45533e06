"""For programs that test themselves: a broker, a cluster of brokers, and a ZooKeeper, in this process.

from kafkalite.testing import Cluster

with Cluster(3) as cluster:
    ...  # any Kafka client, with bootstrap.servers = cluster.bootstrap_servers
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.testing.async_broker import AsyncBroker as AsyncBroker
    from kafkalite.testing.broker import Broker as Broker
    from kafkalite.testing.broker_needs import KafkaTestMixin as KafkaTestMixin
    from kafkalite.testing.cluster import AsyncCluster as AsyncCluster
    from kafkalite.testing.cluster import Cluster as Cluster
    from kafkalite.testing.kafka_container import KafkaContainer as KafkaContainer
    from kafkalite.testing.requests.replay import Trace as Trace
    from kafkalite.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper as InMemoryZooKeeper

_MODULES = {
    "AsyncBroker": "async_broker",
    "AsyncCluster": "cluster",
    "Broker": "broker",
    "Cluster": "cluster",
    "InMemoryZooKeeper": "zookeeper.in_memory_zookeeper",
    "KafkaContainer": "kafka_container",
    "KafkaTestMixin": "broker_needs",
    "Trace": "requests.replay",
}

__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    # on first use: a test of the ZooKeeper in memory alone loads no server
    if name not in _MODULES:
        raise AttributeError(f"module 'kafkalite.testing' has no attribute {name!r}")
    return getattr(import_module(f"kafkalite.testing.{_MODULES[name]}"), name)
