"""Scans of partitions, and how the transactions behind the last stable offset have ended."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kafkalite import Broker
from kafkalite.client import partition_scan
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.partition_scan import ENDED_ABORTED, ENDED_COMMITTED, OPEN, Fetched, Markers, PartitionScan
from kafkalite.record.batch import BatchHeader, NewRecord, build_batch, parse_header
from kafkalite.record.transaction_marker import build_marker
from tests.support.hostile_bytes import lines_executed
from tests.support.wait import DEADLINE_S


def batch_at(offset: int, producer_id: int) -> BatchHeader:
    data = build_batch([NewRecord(None, b"v")], base_offset=offset, producer_id=producer_id, transactional=True)
    return parse_header(data)


def markers_of(monkeypatch: pytest.MonkeyPatch, ends: list[tuple[int, int, bool]]) -> Markers:
    """Markers behind the stable end: (offset, producer id, whether it commits)."""
    batches: list[tuple[BatchHeader, memoryview]] = []
    for offset, producer_id, commits in ends:
        data = build_marker(producer_id, 0, 0, 0, commit=commits)
        data[:8] = offset.to_bytes(8, "big")
        batches.append((parse_header(data), memoryview(data)))
    end = ends[-1][0] + 1
    fetched = Fetched(batches, end, 0, 0, [], 1)
    monkeypatch.setattr(partition_scan, "fetch", lambda *_args, **_kwargs: fetched)
    markers = Markers()
    cluster: Any = None
    markers.find(cluster, "t", 0, 0, end)
    return markers


def test_the_next_end_of_the_same_producer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    markers = markers_of(monkeypatch, [(5, 1, True), (6, 2, False), (9, 1, False)])
    found = [markers.state_of(batch_at(offset, producer)) for offset, producer in ((4, 1), (7, 1), (3, 2), (7, 2))]
    assert found == [ENDED_COMMITTED, ENDED_ABORTED, ENDED_ABORTED, OPEN]


def test_a_batch_costs_the_same_however_many_transactions_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    markers = markers_of(monkeypatch, [(offset, 1, True) for offset in range(1, 4_000)])
    last = batch_at(3_998, 1)
    lines_executed(lambda: markers.state_of(last), 100)


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
