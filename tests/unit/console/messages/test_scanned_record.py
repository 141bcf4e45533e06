"""A scan of a partition whose records go meanwhile."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalite import Broker
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.console.messages.scanned_record import PartitionScan
from tests.support.wait import DEADLINE_S


def test_after_records_were_deleted_the_rest_is_read() -> None:
    """The scan has begun at an offset that retention took, and goes on where the log begins now."""
    with Broker() as broker:
        broker.create_topic("t")
        for number in range(5):
            broker.produce("t", str(number))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        place = TopicPartition("t", 0, 3)
        admin.delete_records([place])[place].result(DEADLINE_S)
        with ClusterClient(broker.bootstrap_servers, DEADLINE_S) as cluster:
            scan = PartitionScan(cluster, "t", 0, committed_only=True)
            assert scan.read(0, 5) == [] and scan.position == 3
            assert [one.value for one in scan.read(scan.position, 5)] == [b"3", b"4"]
            assert scan.read(1, 2) == [] and scan.position == 2, "nothing is read behind the end that was asked for"
            assert scan.read(7, 9) == [] and scan.position == 9, "there is no such offset yet"
