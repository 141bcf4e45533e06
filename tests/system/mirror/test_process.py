"""A mirror as an operator runs it: its metrics and its health, its errors, and its end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from kafkalite.client.acl_admin import Entry, add_entries, list_entries
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.mirror.mirror import Mirror
from kafkalite.client.mirror.settings import Endpoint, MirrorSettings
from kafkalite.security.acl.acl import ANY_HOST, Operation, PatternType, Permission, ResourceType
from kafkalite.testing import Broker
from tests.support.broker_process import environment
from tests.support.wait import DEADLINE_S, until
from tests.system.mirror.conftest import QUICK, Clusters


def test_metrics_and_health_of_a_process(clusters: Clusters, tmp_path: Path) -> None:
    clusters.west.create_topic("orders", partitions=2)
    for number in range(10):
        clusters.west.produce("orders", b"%d" % number, partition=number % 2)
    west, east = clusters.west.bootstrap_servers, clusters.east.bootstrap_servers
    command = [sys.executable, "-m", "kafkalite", "mirror", "--from", f"west={west}", "--to", east]
    process = subprocess.Popen(
        [*command, "--metrics", "127.0.0.1:0", "--refresh-interval", "0.5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http://(\S+)/metrics", process.stdout.readline())
        assert found is not None

        def get(path: str) -> str:
            with urllib.request.urlopen(f"http://{found[1]}/{path}", timeout=DEADLINE_S) as answer:
                return str(answer.read().decode())

        copied = 'kafkalite_mirror_records_total{source="west",topic="orders",partition="1"} 5'
        until(lambda: copied in get("metrics"), "five records")
        text = get("metrics")
        assert 'kafkalite_mirror_lag_records{source="west",topic="orders",partition="0"} 0' in text
        assert 'kafkalite_mirror_copying{source="west"} 1' in text
        assert get("health") == "ok\n"
        clusters.east.produce("west.stock", b"of somebody else")
        clusters.west.produce("stock", b"1")
        until(lambda: get("health").startswith("stock-0: west.stock-0 has records"), "a fault")
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
    finally:
        process.kill()
        process.wait()


def test_errors_are_reported_until_they_are_over(clusters: Clusters) -> None:
    status = clusters.start().statuses[0]
    until(lambda: status.is_copying, "the start")
    clusters.east.crash()
    until(lambda: status.errors >= 2 and not status.is_copying, "errors")
    assert status.last_error and status.last_error_ms
    clusters.west.produce("orders", b"1")
    clusters.east.restart()
    until(lambda: "west.orders" in clusters.east.topics and len(clusters.east.records("west.orders")) == 1, "a copy")


def test_readers_of_a_topic_may_read_its_copy(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": "User:ANONYMOUS",
        "group_initial_rebalance_delay_ms": 0,
    }
    of_topic = Entry(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:a", ANY_HOST, 0, Permission.ALLOW)
    with (
        Broker(data_dir=tmp_path / "west", **settings) as west,
        Broker(data_dir=tmp_path / "east", **settings) as east,
        ClusterClient(west.bootstrap_servers, 10) as here,
        ClusterClient(east.bootstrap_servers, 10) as there,
    ):
        west.create_topic("orders")
        operations = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
        everything = of_topic._replace(principal="User:b", operation=Operation.ALL)
        add_entries(here, [*(of_topic._replace(operation=one) for one in operations), everything])
        mirror = Mirror(
            {"west": Endpoint(west.bootstrap_servers)},
            MirrorSettings(Endpoint(east.bootstrap_servers), "east", with_acls=True, **QUICK),  # type: ignore[arg-type]
        )
        mirror.start()
        anything = Entry(ResourceType.TOPIC, None, PatternType.LITERAL, None, None, Operation.ANY, Permission.ANY)
        copy = of_topic._replace(resource_name="west.orders")
        wanted = {
            copy._replace(operation=Operation.READ),
            copy._replace(operation=Operation.DESCRIBE),
            copy._replace(principal="User:b", operation=Operation.READ),
        }
        try:
            until(lambda: set(list_entries(there, anything)) == wanted, "the permissions")
        finally:
            mirror.stop()
