"""Mirrors in the console: the real mirror of two clusters, by its own metrics."""

from __future__ import annotations

from kafkalite.client.mirror.flow_status import mirror_metrics
from kafkalite.client.mirror.mirror import Mirror
from kafkalite.client.mirror.settings import Endpoint, MirrorSettings
from kafkalite.testing import Broker
from tests.support.console import console
from tests.support.served_text import served_text
from tests.support.wait import until


def test_lag_and_errors_of_a_mirror() -> None:
    with Broker() as west, Broker() as east, served_text() as served:
        west.create_topic("orders", partitions=2)
        for number in range(10):
            west.produce("orders", b"%d" % number, partition=number % 2)
        settings = MirrorSettings(Endpoint(east.bootstrap_servers), "east", refresh_interval_ms=200, retry_ms=100)
        mirror = Mirror({"west": Endpoint(west.bootstrap_servers)}, settings)
        mirror.start()
        try:
            until(lambda: sum(one.counts.records for one in mirror.statuses[0].partitions.values()) == 10, "the copies")
            until(lambda: all(one.counts.lag == 0 for one in mirror.statuses[0].partitions.values()), "no lag")
            served.text = "".join(mirror_metrics(mirror.statuses).pieces())
        finally:
            mirror.stop()
        with console(east.bootstrap_servers, mirrors=served.url) as browser:
            assert browser.session["has_mirrors"]
            page = browser.get("mirrors", q="west")
            (row,) = page["items"]
            assert page["total"] == 1 and row["address"] == served.url
            names = ("source", "is_copying", "partitions", "lag", "records", "failed", "last_error", "fault")
            assert [row[name] for name in names] == ["west", True, 2, 0, 10, 0, None, None]
            assert browser.get("mirrors", q="south")["items"] == []
        with console(east.bootstrap_servers) as browser:
            assert not browser.session["has_mirrors"] and browser.refusal("mirrors")[0] == 404
