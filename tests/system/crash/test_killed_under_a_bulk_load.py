"""A bulk load into a broker that is killed and started again: every row once, in the order of its partition."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

import kafkalite
from kafkalite.client.cluster_client import ClusterClient, Retries
from kafkalite.client.producer.bulk_load import BulkLoad
from kafkalite.client.producer.options import parse_write_options
from kafkalite.client.producer.producer import Producer
from tests.support.broker_process import ServedBroker
from tests.support.wait import DEADLINE_S, until

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

ROWS = 500
PARTITIONS = 3


def test_every_row_is_there_once_though_the_broker_dies(tmp_path: Path) -> None:
    broker = ServedBroker(tmp_path / "data", tmp_path / "errors", {"num.partitions": str(PARTITIONS)})
    broker.start()
    sending = {"kafka.batch.size": "3000", "kafka.compression.type": "lz4"}
    options = parse_write_options({"bootstrap.servers": broker.bootstrap, "topic": "t", **sending})
    cluster = ClusterClient(broker.bootstrap, DEADLINE_S)
    load = BulkLoad(options, Producer(options.producer, cluster, Retries(DEADLINE_S)), chunk_bytes=20_000)
    stop = threading.Event()
    faults: list[BaseException] = []
    numbers = itertools.count()

    def write() -> None:
        try:
            while not stop.is_set():
                some = [next(numbers) for _ in range(ROWS)]
                partitions = pa.array([number % PARTITIONS for number in some], pa.int32())
                load.write(pa.record_batch({"value": pa.array([b"%d" % n for n in some]), "partition": partitions}))
            load.finish()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    for _ in range(4):
        enough = load.row_count + 5000
        until(lambda enough=enough: load.row_count >= enough or faults, "rows are written")  # type: ignore[misc]
        broker.kill()
        broker.start()
    stop.set()
    thread.join(DEADLINE_S)
    cluster.close()
    broker.stop()

    assert not thread.is_alive() and faults == []
    table = kafkalite.read(str(tmp_path / "data"), "t", columns=["partition", "offset", "value"]).read_all()
    found = sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
    count = next(numbers)
    for partition in range(PARTITIONS):
        values = [value for index, _, value in found if index == partition]
        assert values == [b"%d" % number for number in range(partition, count, PARTITIONS)]
    assert load.row_count == count == len(found)
