"""kafkalite: a Kafka-compatible broker in pure Python asyncio.

with kafkalite.Broker(data_dir="data", port=0) as broker:
    ...  # any Kafka client, with bootstrap.servers = broker.bootstrap_servers
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.server.broker import Broker as Broker

__all__ = ["Broker"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # on first use: a Spark executor that imports kafkalite.spark never loads the server
    if name == "Broker":
        from kafkalite.server.broker import Broker

        return Broker
    raise AttributeError(f"module 'kafkalite' has no attribute {name!r}")
