"""The brokers that a client is told of, by the listener that it is connected to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite.api.request.broker_endpoints import BrokerEndpoint, BrokerEndpoints
from kafkalite.config.listeners import ListenerConfig
from kafkalite.metadata.cluster_metadata import BrokerRecord
from tests.support.in_memory_cluster import InMemoryCluster

ME, OTHER = 1, 2
OWN = BrokerEndpoint(ME, "own", 9092, "a")


def registered(broker_id: int, *listeners: str) -> BrokerRecord:
    endpoints = (ListenerConfig(name, f"{name.lower()}{broker_id}", 9092, "PLAINTEXT") for name in listeners)
    return BrokerRecord(broker_id, tuple(endpoints))


def endpoints_in(cluster: InMemoryCluster) -> BrokerEndpoints:
    replicas: Any = None
    return BrokerEndpoints(cluster.metadata(ME), replicas, ME, "a", lambda connection: ("own", 9092))


def connected_to(listener: str) -> Any:
    return SimpleNamespace(listener_name=listener)


def test_each_broker_at_the_listener_of_the_client() -> None:
    cluster = InMemoryCluster()
    endpoints = endpoints_in(cluster)
    cluster.brokers = {ME: registered(ME, "INNER", "OUTER"), OTHER: registered(OTHER, "INNER")}
    inner = [(one.broker_id, one.host) for one in endpoints.all_for(connected_to("INNER"))]
    assert inner == [(ME, "inner1"), (OTHER, "inner2")]
    assert [one.host for one in endpoints.all_for(connected_to("OUTER"))] == ["outer1"]


def test_others_are_enough() -> None:
    cluster = InMemoryCluster()
    endpoints = endpoints_in(cluster)
    cluster.brokers = {OTHER: registered(OTHER, "INNER")}
    assert [one.broker_id for one in endpoints.all_for(connected_to("INNER"))] == [OTHER]


def test_this_broker_where_there_is_no_other() -> None:
    cluster = InMemoryCluster()
    endpoints = endpoints_in(cluster)
    assert endpoints.all_for(connected_to("INNER")) == [OWN]
    cluster.brokers = {OTHER: registered(OTHER, "OUTER")}
    assert endpoints.all_for(connected_to("INNER")) == [OWN]
    assert endpoints.find(connected_to("INNER"), ME) is None, "it leads nothing and coordinates nothing"
