"""Metrics of groups of Kafka Streams: a running broker is scraped while a member comes and goes."""

from __future__ import annotations

import urllib.request

from kafkalite import Broker
from tests.support.prometheus import Family, parse, value
from tests.support.streams_members import PROMPT, StreamsMember, counting_topology
from tests.support.wait import DEADLINE_S

OF_GROUPS = "kafka_server_group_coordinator_metrics"
STATES = ("Empty", "NotReady", "Assigning", "Reconciling", "Stable", "Dead")


def scrape(broker: Broker) -> dict[str, Family]:
    with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics", timeout=DEADLINE_S) as answer:
        return parse(answer.read().decode())


def states(found: dict[str, Family]) -> dict[str, float]:
    counts = {state: value(found, f"{OF_GROUPS}_streams_group_count", state=state) for state in STATES}
    return {state: count for state, count in counts.items() if count}


def test_groups_are_counted_by_state() -> None:
    with Broker(**PROMPT, metrics_listener="127.0.0.1:0") as broker:
        assert states(scrape(broker)) == {}
        member = StreamsMember(broker.bootstrap_servers, "app", "m", counting_topology("app", "lines"))
        found = scrape(broker)
        assert states(found) == {"NotReady": 1}
        assert value(found, f"{OF_GROUPS}_group_count", protocol="streams") == 1
        assert value(found, f"{OF_GROUPS}_streams_group_rebalance_count") == 1
        broker.create_topic("lines", partitions=1)
        member.await_tasks()
        assert states(scrape(broker)) == {"Stable": 1}
        member.leave()
        assert states(scrape(broker)) == {"Empty": 1}
