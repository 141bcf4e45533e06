"""Logs that a start finds, beside a metadata that knows all, some or none of them."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafkalite.common.names import TopicPartition
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.directories.log_manager import LogManager
from kafkalite.log.partition.partition_log import PartitionLog
from kafkalite.metadata.cluster_metadata import PartitionRecord, TopicRecord
from kafkalite.replication import found_logs
from kafkalite.replication.reconciliation import Role
from tests.support.in_memory_cluster import CLUSTER_ID, InMemoryCluster, InMemoryMetadata
from tests.support.manual_clock import ManualClock

ME, OTHER = 1, 2
ORDERS, OTHERS_ORDERS = uuid.UUID(int=7), uuid.UUID(int=8)
CONFIG = BrokerConfig.load({"broker.id": str(ME)})
DEFAULTS = TopicConfig.build({}, CONFIG)
UNKNOWN = TopicConfig.build({"retention.ms": "-1"}, CONFIG)
ROLE = Role(ME, may_lead=False, replicates=True)


class Metadata(InMemoryMetadata):
    """The topics of the cluster, some of which are `unresolved`; `returned` are the ids that the logs gave back."""

    unresolved: frozenset[str] = frozenset()
    returned: Mapping[TopicPartition, uuid.UUID | None] = {}

    def has_unresolved_topic(self, name: str) -> bool:
        return name in self.unresolved

    async def return_ids(self, held: Mapping[TopicPartition, uuid.UUID | None]) -> None:
        self.returned = held


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(InMemoryCluster(), ME)


def put(metadata: Metadata, name: str, topic_id: uuid.UUID, *placed_on: tuple[int, ...]) -> None:
    states = {i: PartitionRecord(replicas, replicas[0], 0, replicas, 0) for i, replicas in enumerate(placed_on)}
    metadata.cluster.topics[name] = TopicRecord(name, topic_id, states, {})


async def load(*data_dirs: Path) -> LogManager:
    logs = LogManager(data_dirs, ManualClock(), CONFIG)
    await logs.load(CLUSTER_ID, lambda topic: DEFAULTS, lambda topic: None)
    return logs


def leave(data_dir: Path, *made: tuple[str, int, uuid.UUID]) -> None:
    """Logs of an earlier life."""

    async def live() -> None:
        with contextlib.closing(await load(data_dir)) as logs:
            for name, index, topic_id in made:
                logs.create(name, index, topic_id, DEFAULTS)

    asyncio.run(live())


def start(metadata: Metadata, *data_dirs: Path) -> tuple[found_logs.Findings, dict[TopicPartition, PartitionLog]]:
    """The findings, and the logs that stay."""

    async def live() -> tuple[found_logs.Findings, dict[TopicPartition, PartitionLog]]:
        with contextlib.closing(await load(*data_dirs)) as logs:
            return await found_logs.compare(logs, metadata, ROLE, UNKNOWN), dict(logs.logs)

    return asyncio.run(live())


def test_logs_that_the_metadata_knows_stay(tmp_path: Path, metadata: Metadata) -> None:
    put(metadata, "orders", ORDERS, (ME, OTHER), (OTHER, ME))
    leave(tmp_path, ("orders", 0, ORDERS), ("orders", 1, ORDERS))
    findings, logs = start(metadata, tmp_path)
    assert sorted(logs) == [("orders", 0), ("orders", 1)]
    assert findings == (set(), {}, set())


@pytest.mark.parametrize(
    ("topic_id", "placed_on", "said"),
    [
        (OTHERS_ORDERS, (ME,), "orders-0 is left of a deleted topic of that name"),
        (ORDERS, (OTHER,), "orders-0 was reassigned to other brokers"),
        (None, (), "orders-0 is not in the metadata"),
    ],
)
def test_a_log_that_does_not_belong_here_becomes_a_stray(
    tmp_path: Path,
    metadata: Metadata,
    caplog: pytest.LogCaptureFixture,
    topic_id: uuid.UUID | None,
    placed_on: tuple[int, ...],
    said: str,
) -> None:
    if topic_id is not None:
        put(metadata, "orders", topic_id, placed_on)
    leave(tmp_path, ("orders", 0, ORDERS))
    _, logs = start(metadata, tmp_path)
    assert not logs
    assert said in caplog.text
    assert [
        path.name for path in tmp_path.iterdir() if path.name.startswith("orders-0.") and path.name.endswith("-stray")
    ]


def test_a_log_is_kept_whole_until_its_topic_is_known(tmp_path: Path, metadata: Metadata) -> None:
    metadata.unresolved = frozenset({"orders"})
    leave(tmp_path, ("orders", 0, ORDERS), ("gone", 0, OTHERS_ORDERS))
    findings, logs = start(metadata, tmp_path)
    assert findings.unresolved == {"orders"}
    assert metadata.returned == {("orders", 0): ORDERS}
    assert list(logs) == [("orders", 0)]
    assert logs["orders", 0].config is UNKNOWN


def test_logs_that_are_missing_are_told_if_they_should_be_here(
    tmp_path: Path, metadata: Metadata, caplog: pytest.LogCaptureFixture
) -> None:
    put(metadata, "orders", ORDERS, (OTHER,), (ME, OTHER), (ME,))
    findings, _ = start(metadata, tmp_path)
    assert "2 partitions have no log in any directory of log.dirs, and begin empty: orders-1, orders-2." in caplog.text
    assert not findings.offline


def test_a_log_that_may_be_in_a_failed_directory_is_offline(tmp_path: Path, metadata: Metadata) -> None:
    put(metadata, "orders", ORDERS, (ME,), (OTHER,))
    failed = tmp_path / "failed"
    failed.write_text("no directory")
    findings, _ = start(metadata, tmp_path / "data", failed)
    assert list(findings.offline) == [("orders", 0)]


def test_a_log_that_lost_bytes_is_named(tmp_path: Path, metadata: Metadata) -> None:
    put(metadata, "orders", ORDERS, (ME,))
    leave(tmp_path, ("orders", 0, ORDERS))
    (tmp_path / ".kafka_cleanshutdown").unlink()
    with (tmp_path / "orders-0" / f"{0:020}.log").open("ab") as file:
        file.write(b"torn")
    findings, _ = start(metadata, tmp_path)
    assert findings.truncated == {("orders", 0)}
