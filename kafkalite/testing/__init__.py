"""For programs that test themselves: a cluster of brokers, and a ZooKeeper, in this process. Imports server, zk.

from kafkalite.testing import Cluster

with Cluster(3) as cluster:
    ...  # any Kafka client, with bootstrap.servers = cluster.bootstrap_servers
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.testing.async_broker import AsyncBroker as AsyncBroker
    from kafkalite.testing.broker import Broker as Broker
    from kafkalite.testing.cluster import AsyncCluster as AsyncCluster
    from kafkalite.testing.cluster import Cluster as Cluster
    from kafkalite.testing.in_memory_zookeeper import InMemoryZooKeeper as InMemoryZooKeeper

__all__ = ["AsyncBroker", "AsyncCluster", "Broker", "Cluster", "InMemoryZooKeeper"]


def __getattr__(name: str) -> object:
    # on first use: a test of the ZooKeeper in memory alone loads no server
    if name == "Broker":
        from kafkalite.testing.broker import Broker

        return Broker
    if name == "AsyncBroker":
        from kafkalite.testing.async_broker import AsyncBroker

        return AsyncBroker
    if name in ("AsyncCluster", "Cluster"):
        from kafkalite.testing import cluster

        return getattr(cluster, name)
    if name == "InMemoryZooKeeper":
        from kafkalite.testing.in_memory_zookeeper import InMemoryZooKeeper

        return InMemoryZooKeeper
    raise AttributeError(f"module 'kafkalite.testing' has no attribute {name!r}")
