"""For programs that test themselves: a broker, a cluster of brokers, and a ZooKeeper, in this process.

from kafkalite.testing import Cluster

with Cluster(3) as cluster:
    ...  # any Kafka client, with bootstrap.servers = cluster.bootstrap_servers
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalite.testing.async_broker import AsyncBroker as AsyncBroker
    from kafkalite.testing.broker import Broker as Broker
    from kafkalite.testing.broker_needs import KafkaTestMixin as KafkaTestMixin
    from kafkalite.testing.cluster import AsyncCluster as AsyncCluster
    from kafkalite.testing.cluster import Cluster as Cluster
    from kafkalite.testing.kafka_container import KafkaContainer as KafkaContainer
    from kafkalite.testing.requests.replay import Trace as Trace
    from kafkalite.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper as InMemoryZooKeeper

__all__ = [
    "AsyncBroker", "AsyncCluster", "Broker", "Cluster", "InMemoryZooKeeper", "KafkaContainer", "KafkaTestMixin",
    "Trace",
]  # fmt: skip


def __getattr__(name: str) -> object:
    found: Any  # on first use: a test of the ZooKeeper in memory alone loads no server
    match name:
        case "AsyncBroker":
            from kafkalite.testing.async_broker import AsyncBroker as found
        case "AsyncCluster":
            from kafkalite.testing.cluster import AsyncCluster as found
        case "Broker":
            from kafkalite.testing.broker import Broker as found
        case "Cluster":
            from kafkalite.testing.cluster import Cluster as found
        case "InMemoryZooKeeper":
            from kafkalite.testing.zookeeper.in_memory_zookeeper import InMemoryZooKeeper as found
        case "KafkaContainer":
            from kafkalite.testing.kafka_container import KafkaContainer as found
        case "KafkaTestMixin":
            from kafkalite.testing.broker_needs import KafkaTestMixin as found
        case "Trace":
            from kafkalite.testing.requests.replay import Trace as found
        case _:
            raise AttributeError(f"module 'kafkalite.testing' has no attribute {name!r}")
    return found
