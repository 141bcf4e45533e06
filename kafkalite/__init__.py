"""kafkalite: a Kafka-compatible broker in pure Python asyncio.

with kafkalite.Broker(data_dir="data", port=0) as broker:
    ...  # any Kafka client, with bootstrap.servers = broker.bootstrap_servers

kafkalite.read("data", "orders")  # a pyarrow.RecordBatchReader over the segment files, for pandas, Polars, DuckDB
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.reader.topic_reader import read as read
    from kafkalite.testing.broker import Broker as Broker

__all__ = ["Broker", "read"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    # on first use: a Spark executor that imports kafkalite.spark never loads the server
    if name == "Broker":
        import gc

        is_collecting = gc.isenabled()
        gc.disable()  # collections during the import would free nothing
        try:
            from kafkalite.testing.broker import Broker
        finally:
            if is_collecting:
                gc.enable()
        return Broker
    if name == "read":
        try:
            from kafkalite.reader.topic_reader import read
        except ModuleNotFoundError as error:
            if error.name is None or error.name.split(".")[0] != "pyarrow":
                raise
            raise ImportError("kafkalite.read needs pyarrow: pip install 'kafkalite[arrow]'") from None
        return read
    raise AttributeError(f"module 'kafkalite' has no attribute {name!r}")
