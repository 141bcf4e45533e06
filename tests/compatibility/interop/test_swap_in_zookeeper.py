"""One ZooKeeper and one set of data directories, two brokers in turn: Apache Kafka, kafkalite, and Kafka again.

Both start with the same server.properties, so with the same number and address. Each finds the topics, settings and
partitions that the other has changed in ZooKeeper, and serves the records that the other has written.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from kazoo.client import KazooClient

from bench.reference.jars import ReferenceUnavailable
from tests.compatibility.interop.swap_scene import (
    BROKER_ID,
    SECONDS,
    Kafkalite,
    administer,
    assert_continues,
    commit,
    commits,
    committed_paid,
    everything,
    fill,
    leave,
    partitions,
    produce,
    transact,
    without_internals,
)
from tests.compatibility.interop.zookeeper_kafka import VERSION, ZooKeeperKafka, zookeeper_kafka

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"


@pytest.fixture
def kafka(tmp_path: Path, data_dirs: list[Path]) -> Iterator[ZooKeeperKafka]:
    try:
        with zookeeper_kafka(tmp_path / "kafka", data_dirs, broker_id=BROKER_ID) as kafka:
            yield kafka
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


def settings_of(bootstrap: str, topic: str, *names: str) -> list[str | None]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
    found = described.result(SECONDS)
    return [found[name].value for name in names]


def strays(data_dirs: list[Path]) -> list[str]:
    return [path.name for directory in data_dirs for path in directory.glob("*-stray")]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_each_goes_on_where_the_other_ended(
    kafka: ZooKeeperKafka, kafkalite: Kafkalite, data_dirs: list[Path], how: str, proved: Any
) -> None:
    proved("Apache Kafka", VERSION, f"ZooKeeper and data directories there and back with kafkalite, after a {how}")
    kafka.start()
    fill(kafka)
    kafkas = everything(kafka.bootstrap)
    paid = committed_paid(kafka.bootstrap)
    leave(kafka, how)
    identities = [(path / "meta.properties").read_text() for path in data_dirs]

    properties = str(kafka.home / "server.properties")
    kafkalite.start(properties)
    assert kafkalite.bootstrap == kafka.bootstrap
    assert "taken over" not in kafkalite.said, "ZooKeeper says what there is"
    assert everything(kafkalite.bootstrap) == kafkas
    assert commits(kafkalite.bootstrap, "readers") == {("orders", p): (11 * (p + 1), "m") for p in range(3)}
    assert settings_of(kafkalite.bootstrap, "orders", "segment.bytes", "retention.ms") == ["16384", "-1"]
    assert settings_of(kafkalite.bootstrap, "compacted", "cleanup.policy") == ["compact"]
    produce(kafkalite.bootstrap, "kafkalite")
    commit(kafkalite.bootstrap, "readers", {0: 44})
    ours_only = NewTopic("ours", 2, 1, config={"max.message.bytes": "5000"})
    administer(kafkalite.bootstrap, "create_topics", [ours_only])
    administer(kafkalite.bootstrap, "create_partitions", [NewPartitions("empty", 4)])
    administer(kafkalite.bootstrap, "delete_topics", ["compacted"])
    ours = everything(kafkalite.bootstrap)
    assert_continues({place: kept for place, kept in kafkas.items() if place[0] != "compacted"}, ours)
    leave(kafkalite, how)
    assert [(path / "meta.properties").read_text() for path in data_dirs] == identities

    kafka.start()
    theirs = everything(kafka.bootstrap)
    assert without_internals(theirs) == without_internals(ours)
    assert {("ours", 0), ("ours", 1), ("empty", 3)} <= theirs.keys() and ("compacted", 0) not in theirs
    assert settings_of(kafka.bootstrap, "ours", "max.message.bytes") == ["5000"]
    assert commits(kafka.bootstrap, "readers") == {
        ("orders", 0): (44, "m"), ("orders", 1): (22, "m"), ("orders", 2): (33, "m"),
    }  # fmt: skip
    assert committed_paid(kafka.bootstrap) == paid
    transact(kafka.bootstrap, "kafka again")
    administer(kafka.bootstrap, "create_topics", [NewTopic("meanwhile", 2, 1), NewTopic("compacted", 2, 1)])
    produce(kafka.bootstrap, "kafka again")
    last = everything(kafka.bootstrap)
    leave(kafka, how)

    kafkalite.start(properties)
    assert everything(kafkalite.bootstrap) == last
    assert ("meanwhile", 1) in partitions(kafkalite.bootstrap)
    kafkalite.stop()
    assert strays(data_dirs) == []


def test_what_zookeeper_does_not_know_is_set_aside_and_said(
    kafka: ZooKeeperKafka, kafkalite: Kafkalite, data_dirs: list[Path]
) -> None:
    kafka.start()
    fill(kafka)
    kafkas = without_internals(everything(kafka.bootstrap))
    kafka.stop()
    zookeeper = KazooClient(kafka.settings["zookeeper.connect"])
    zookeeper.start()
    try:
        zookeeper.delete("/brokers/topics/paid", recursive=True)
        zookeeper.delete("/config/topics/paid")
    finally:
        zookeeper.stop()
        zookeeper.close()
    kafkalite.start(str(kafka.home / "server.properties"))
    assert "paid-0 is not in the metadata, and is renamed to -stray" in kafkalite.said
    assert [name for name in strays(data_dirs) if name.startswith("paid-0")]
    left = {place: kept for place, kept in kafkas.items() if place[0] != "paid"}
    assert without_internals(everything(kafkalite.bootstrap)) == left
    kafkalite.stop()


def test_the_directory_of_one_cluster_does_not_go_to_another(
    kafka: ZooKeeperKafka, kafkalite: Kafkalite, data_dirs: list[Path]
) -> None:
    """A chroot that was forgotten, for instance."""
    kafka.start()
    administer(kafka.bootstrap, "create_topics", [NewTopic("orders", 3, 1)])
    kafka.stop()
    elsewhere = f"zookeeper.connect={kafka.settings['zookeeper.connect']}/elsewhere"
    refused = subprocess.run(
        [sys.executable, "-m", "kafkalite", "serve", str(kafka.home / "server.properties"), "--override", elsewhere],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert refused.returncode == 1
    assert "correct zookeeper.connect and its chroot" in refused.stderr and "Traceback" not in refused.stderr
    assert strays(data_dirs) == []
    kafkalite.start(str(kafka.home / "server.properties"))
    assert ("orders", 2) in partitions(kafkalite.bootstrap)
    kafkalite.stop()
