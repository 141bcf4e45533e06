"""Transactions of a mirror that is not behind: few requests each, and offsets that are known before the answer."""

from __future__ import annotations

from collections import Counter

from confluent_kafka import Producer

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.mirror.state_topics import read_offset_syncs
from kafkalite.testing import Broker
from tests.support.wait import until
from tests.system.mirror.conftest import Clusters

OF_A_TRANSACTION = ("AddPartitionsToTxn", "AddOffsetsToTxn", "Produce", "TxnOffsetCommit", "EndTxn")


def values(broker: Broker, topic: str) -> list[bytes]:
    if topic not in broker.topics:
        return []
    return [one.value for one in broker.records(topic, isolation="read_committed") if one.value is not None]


def pairs(broker: Broker) -> list[tuple[int, int]]:
    """Offsets of single records at the source and in the copy, as the mirror's state has them."""
    with ClusterClient(broker.bootstrap_servers, 10) as cluster:
        runs = [one.run for one in read_offset_syncs(cluster, "mm2-offset-syncs.west.internal", 10)]
    return [(run.source + at, run.target + at) for run in runs for at in range(run.records)]


def are_true(clusters: Clusters) -> bool:
    """Whether every pair is of the same record in both logs."""
    here = {one.offset: one.value for one in clusters.west.records("orders")}
    there = {one.offset: one.value for one in clusters.east.records("west.orders", isolation="read_committed")}
    found = pairs(clusters.east)
    return bool(found) and all(here[source] == there[target] for source, target in found)


def test_a_record_takes_a_request_of_each_kind(clusters: Clusters) -> None:
    clusters.west.create_topic("orders")
    clusters.start(with_groups=False, refresh_interval_ms=60_000, heartbeat_interval_ms=60_000)
    clusters.east.requests.start()
    producer = Producer({"bootstrap.servers": clusters.west.bootstrap_servers})
    for number in range(6):
        producer.produce("orders", b"%d" % number)
        producer.flush()
        until(lambda upto=number: len(values(clusters.east, "west.orders")) > upto, "the copy")
        if number == 0:  # its offset in the copy is known by the answer only
            clusters.east.requests.clear()
    asked = Counter(one.api for one in clusters.east.requests if one.client_id == "kafkalite")
    assert {name: asked[name] for name in OF_A_TRANSACTION} == dict.fromkeys(OF_A_TRANSACTION, 5)
    assert are_true(clusters)


def test_others_may_write_to_a_copy(clusters: Clusters) -> None:
    clusters.west.create_topic("orders")
    mirror = clusters.start()
    for number in range(6):
        clusters.west.produce("orders", b"%d" % number)
        until(lambda upto=number: b"%d" % upto in values(clusters.east, "west.orders"), "the copy")
        clusters.east.produce("west.orders", b"of somebody else")
    found = [one for one in values(clusters.east, "west.orders") if one != b"of somebody else"]
    assert found == [b"%d" % number for number in range(6)]
    assert are_true(clusters)
    assert "has got records of others" in mirror.statuses[0].last_error
