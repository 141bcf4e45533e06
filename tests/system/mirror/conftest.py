"""Two clusters in this process, and mirrors between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.described_configs import own_settings
from kafkalite.client.mirror.mirror import Mirror
from kafkalite.client.mirror.naming import Filter
from kafkalite.client.mirror.settings import Endpoint, MirrorSettings
from kafkalite.client.topic_changes import add_partitions, alter_configs
from kafkalite.testing import Broker

QUICK = {"refresh_interval_ms": 200, "groups_interval_ms": 200, "retry_ms": 100, "commit_interval_ms": 20}


class Clusters:
    """`west` and `east`, and the mirrors that were started."""

    def __init__(self, west: Broker, east: Broker) -> None:
        self.west, self.east = west, east
        self._mirrors: list[Mirror] = []

    def start(self, **more: Any) -> Mirror:
        """From west to east."""
        settings = MirrorSettings(Endpoint(self.east.bootstrap_servers), "east", **{**QUICK, **more})
        return self._started({"west": Endpoint(self.west.bootstrap_servers)}, settings)

    def start_back(self, **more: Any) -> Mirror:
        """From east to west."""
        settings = MirrorSettings(Endpoint(self.west.bootstrap_servers), "west", **{**QUICK, **more})
        return self._started({"east": Endpoint(self.east.bootstrap_servers)}, settings)

    def _started(self, sources: dict[str, Endpoint], settings: MirrorSettings) -> Mirror:
        mirror = Mirror(sources, settings)
        mirror.start()
        self._mirrors.append(mirror)
        return mirror

    def matching(self, expression: str) -> Filter:
        return Filter(expression)

    def settings(self, broker: Broker, topic: str) -> dict[str, str]:
        """The topic's own settings, but for some of the cluster's."""
        with ClusterClient(broker.bootstrap_servers, 10) as cluster:
            found = dict(own_settings(cluster, [topic])[0][1])
        return {name: value for name, value in found.items() if name not in ("cleanup.policy", "min.insync.replicas")}

    def alter(self, broker: Broker, topic: str, settings: dict[str, str], removed: list[str]) -> None:
        with ClusterClient(broker.bootstrap_servers, 10) as cluster:
            assert not alter_configs(cluster, topic, settings, removed)

    def add_partitions(self, broker: Broker, topic: str, count: int) -> None:
        with ClusterClient(broker.bootstrap_servers, 10) as cluster:
            assert not add_partitions(cluster, topic, count, 10)

    def stop(self, mirror: Mirror) -> None:
        self._mirrors.remove(mirror)
        mirror.stop()

    def close(self) -> None:
        while self._mirrors:
            self.stop(self._mirrors[-1])


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[Clusters]:
    options: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "num_partitions": 1}
    with (
        Broker(data_dir=tmp_path / "west", **options) as west,
        Broker(data_dir=tmp_path / "east", **options) as east,
    ):
        made = Clusters(west, east)
        try:
            yield made
        finally:
            made.close()
