"""Metrics of share groups: a running broker is scraped while a member reads, acknowledges and leaves."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest

from kafkalite import Broker
from kafkalite.common.metrics import Metrics
from kafkalite.server.share_metrics import add_share_metrics
from tests.support.places import ROOT
from tests.support.prometheus import Family, parse, value
from tests.support.share_requests import ACCEPT, REJECT, RELEASE, ShareRequester, acquired, begin_at_earliest, the_row
from tests.support.wait import DEADLINE_S, until

GROUPS = "kafka_server_sharegroupmetrics"
PARTITIONS = "kafka_server_sharepartitionmetrics"
SESSIONS = "kafka_server_sharesessioncache"
TOPICS = "kafka_server_brokertopicmetrics"
COORDINATOR = "kafka_server_share_coordinator_metrics"
OF_GROUPS = "kafka_server_group_coordinator_metrics"
WHERE = {"group": "workers", "topic": "jobs", "partition": "0"}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(group_share_assignment_interval_ms=0, metrics_listener="127.0.0.1:0") as broker:
        broker.create_topic("jobs")
        begin_at_earliest(broker.bootstrap_servers, "workers")
        yield broker


def scrape(broker: Broker) -> dict[str, Family]:
    with urllib.request.urlopen(f"http://{broker.metrics_address}/metrics", timeout=DEADLINE_S) as answer:
        return parse(answer.read().decode())


def member(broker: Broker) -> ShareRequester:
    return ShareRequester(broker.bootstrap_servers, "workers", "jobs").join()


def test_all_totals_are_there_before_a_share_group_is(broker: Broker) -> None:
    found = scrape(broker)
    for kind in ("Accept", "Release", "Reject", "Renew"):
        assert value(found, f"{GROUPS}_recordacknowledgements_total", ackType=kind) == 0
    assert value(found, f"{SESSIONS}_sharesessionscount") == value(found, f"{COORDINATOR}_write_total") == 0
    assert value(found, f"{OF_GROUPS}_share_group_count", state="Stable") == 0
    assert value(found, f"{OF_GROUPS}_group_count", protocol="share") == 0
    assert f"{PARTITIONS}_inflightmessagecount" not in found and f"{COORDINATOR}_write_latency_avg" not in found


def test_records_are_counted_by_their_acknowledgement(broker: Broker) -> None:
    for number in range(5):
        broker.produce("jobs", str(number))
    one = member(broker)
    assert len(acquired(one.fetch())) == 5
    found = scrape(broker)
    assert value(found, f"{PARTITIONS}_inflightmessagecount", **WHERE) == 5
    assert value(found, f"{PARTITIONS}_inflightbatchcount", **WHERE) == 5
    assert value(found, f"{PARTITIONS}_inflightbatchmessagecount_count", **WHERE) == 5
    assert value(found, f"{PARTITIONS}_inflightbatchmessagecount", **WHERE, quantile="0.99") == 1
    assert value(found, f"{GROUPS}_requesttopicpartitionsfetchratio", group="workers", quantile="0.5") == 100
    assert value(found, f"{GROUPS}_partitionloadtimems_count") == 1
    assert the_row(one.acknowledge((0, 2, [ACCEPT, ACCEPT, RELEASE]), (3, 3, [REJECT]))).error_code == 0
    assert the_row(one.acknowledge((0, 0, [ACCEPT]))).error_code == 0, "it lies before the start: ignored"
    assert the_row(one.acknowledge((9, 9, [ACCEPT]))).error_code != 0
    broker.share_group("workers").expire_locks()
    found = scrape(broker)
    name = f"{GROUPS}_recordacknowledgements_total"
    counts = {each: value(found, name, ackType=each) for each in ("Accept", "Release", "Reject", "Renew")}
    assert counts == {"Accept": 3, "Release": 1, "Reject": 1, "Renew": 0}
    assert value(found, f"{PARTITIONS}_acquisitionlocktimeout_total", **WHERE) == 1
    assert value(found, f"{TOPICS}_totalsharefetchrequests_total") == 1
    assert value(found, f"{TOPICS}_totalshareacknowledgementrequests_total") == 3
    assert value(found, f"{TOPICS}_failedshareacknowledgementrequests_total") == 1
    assert value(found, f"{COORDINATOR}_write_total") >= 2
    assert value(found, f"{COORDINATOR}_write_latency_max") >= value(found, f"{COORDINATOR}_write_latency_avg") >= 0
    assert value(found, f"{COORDINATOR}_num_partitions", state="active") == 50


def test_groups_sessions_and_waiting_fetches_are_counted(broker: Broker) -> None:
    one = member(broker)
    found = scrape(broker)
    assert value(found, f"{OF_GROUPS}_share_group_count", state="Stable") == 1
    assert value(found, f"{OF_GROUPS}_group_count", protocol="share") == 1
    assert value(found, f"{OF_GROUPS}_share_group_rebalance_count") >= 1
    waiting = ("kafka_server_delayedoperationpurgatory_purgatorysize", "ShareFetch")
    one.fetch(max_wait_ms=0)
    one.send_fetch(max_wait_ms=60_000)
    until(lambda: value(scrape(broker), waiting[0], delayedOperation=waiting[1]) == 1, "the fetch to wait")
    found = scrape(broker)
    assert (value(found, f"{SESSIONS}_sharesessionscount"), value(found, f"{SESSIONS}_sharepartitionscount")) == (1, 1)
    broker.clock.advance(seconds=61)
    assert acquired(one.receive_fetch()) == []
    found = scrape(broker)
    assert value(found, "kafka_server_delayedsharefetchmetrics_expires_total") == 1
    assert value(found, waiting[0], delayedOperation=waiting[1]) == 0
    one.close()
    until(lambda: value(scrape(broker), f"{SESSIONS}_sharesessionevictions_total") == 1, "the end of the session")
    found = scrape(broker)
    assert value(found, f"{SESSIONS}_sharesessionscount") == 0
    assert f"{PARTITIONS}_inflightmessagecount" not in found
    assert f"{GROUPS}_requesttopicpartitionsfetchratio_count" not in found


def test_what_was_deleted_of_the_state_topic_is_shown(broker: Broker) -> None:
    broker.produce("jobs", "x")
    one = member(broker)
    one.fetch()
    one.acknowledge((0, 0, [ACCEPT]))
    broker.clock.advance(minutes=11)  # a snapshot is written of what has changed, and what lies before is deleted
    samples = scrape(broker)[f"{COORDINATOR}_last_pruned_offset"].samples
    assert list(samples.values()) and min(samples.values()) > 0


def test_every_metric_stands_in_the_documentation(broker: Broker) -> None:
    words = set(re.findall(r"`(\w+)`", (ROOT / "docs" / "metrics.md").read_text()))
    endings = tuple(word for word in words if word.startswith("_"))
    metrics = Metrics()
    server = broker.asynchronous.server
    add_share_metrics(metrics, server.coordinators, server.replica_manager, lambda: None)
    assert not {name for name in metrics.names if name not in words and not name.endswith(endings)}
