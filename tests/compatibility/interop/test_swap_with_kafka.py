"""One set of data directories, two brokers in turn: Apache Kafka (with ZooKeeper or KRaft), kafkalite, and Kafka again.

Each serves the records of the other to a stock client, keeps commits, transactions and topic ids, and appends where the
other stopped, or was killed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions, NewTopic

from bench.reference.jars import ReferenceUnavailable
from tests.compatibility.interop.kraft_kafka import KRaftKafka, kraft_kafka
from tests.compatibility.interop.swap_scene import (
    BROKER_ID,
    Kafka,
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
from tests.compatibility.interop.zookeeper_kafka import VERSION, zookeeper_kafka

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
ECOSYSTEM = "Apache Kafka"


@pytest.fixture(params=["zookeeper", "kraft"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path, data_dirs: list[Path]) -> Iterator[Kafka]:
    home = tmp_path / "kafka"
    try:
        with (
            kraft_kafka(home, data_dirs, node_id=BROKER_ID)
            if request.param == "kraft"
            else zookeeper_kafka(home, data_dirs, broker_id=BROKER_ID)
        ) as kafka:
            yield kafka
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_each_goes_on_where_the_other_ended(
    kafka: Kafka, kafkalite: Kafkalite, data_dirs: list[Path], how: str, proved: Any
) -> None:
    mode = "KRaft" if isinstance(kafka, KRaftKafka) else "ZooKeeper"
    proved("Apache Kafka", VERSION, f"data directories there and back with kafkalite, {mode}, after a {how} of either")
    kafka.start()
    fill(kafka)
    kafkas = everything(kafka.bootstrap)
    paid = committed_paid(kafka.bootstrap)
    leave(kafka, how)
    identities = [(path / "meta.properties").read_text() for path in data_dirs]

    kafkalite.start()
    assert re.search(r"taken over: 6 topics with 15 partitions", kafkalite.said)
    assert "the defaults of this broker hold" in kafkalite.said and "stay compacted" in kafkalite.said
    seen = everything(kafkalite.bootstrap)
    assert seen == kafkas
    assert commits(kafkalite.bootstrap, "readers") == {("orders", p): (11 * (p + 1), "m") for p in range(3)}
    produce(kafkalite.bootstrap, "kafkalite")
    commit(kafkalite.bootstrap, "readers", {0: 44})
    commit(kafkalite.bootstrap, "others", {2: 5})
    ours = everything(kafkalite.bootstrap)
    assert_continues(kafkas, ours)
    assert sum(map(len, without_internals(ours).values())) == sum(map(len, without_internals(kafkas).values())) + 600
    leave(kafkalite, how)
    assert [(path / "meta.properties").read_text() for path in data_dirs] == identities

    kafka.start()
    theirs = without_internals(everything(kafka.bootstrap))
    assert theirs == without_internals(ours)
    assert commits(kafka.bootstrap, "readers") == {
        ("orders", 0): (44, "m"), ("orders", 1): (22, "m"), ("orders", 2): (33, "m"),
    }  # fmt: skip
    assert commits(kafka.bootstrap, "others") == {("orders", 2): (5, "m")}
    assert committed_paid(kafka.bootstrap) == paid
    transact(kafka.bootstrap, "kafka again")  # the same transactional id: its state went through
    produce(kafka.bootstrap, "kafka again")
    administer(kafka.bootstrap, "create_topics", [NewTopic("meanwhile", 2, 1)])
    administer(kafka.bootstrap, "create_partitions", [NewPartitions("empty", 4)])
    administer(kafka.bootstrap, "delete_topics", ["compacted"])
    last = everything(kafka.bootstrap)
    leave(kafka, how)

    # who stopped in order here last is seen without being told
    if how == "stop":
        kafkalite.start("--port", "0", "--data-dir", kafkalite.data_dirs, "--override", f"broker.id={BROKER_ID}")
    else:
        kafkalite.start()
    assert "forgotten, for they are not there any more: compacted" in kafkalite.said
    assert without_internals(everything(kafkalite.bootstrap)) == without_internals(last)
    assert [p for p in partitions(kafkalite.bootstrap) if p[0] == "empty"] == [("empty", p) for p in range(4)]
    kafkalite.stop()
    assert not [name for path in data_dirs for name in os.listdir(path) if name.endswith("-stray")]


def test_a_kafka_on_what_kafkalite_began(kafka: Kafka, kafkalite: Kafkalite, data_dirs: list[Path]) -> None:
    """Kafka must know of the topics in its ZooKeeper; the directories may have been rolled, cut and cleaned by us."""
    kafka.start()
    fill(kafka)
    kafka.stop()
    kafkalite.start("--port", "0", "--adopt", kafkalite.data_dirs, "--override", "log.segment.bytes=4096")
    produce(kafkalite.bootstrap, "kafkalite", 200)
    administer(kafkalite.bootstrap, "delete_records", [TopicPartition("orders", 1, 150)])
    ours = without_internals(everything(kafkalite.bootstrap))
    assert ours["orders", 1][0].offset == 150
    kafkalite.stop()
    assert len(list(data_dirs[0].parent.glob("*/orders-*/*.log"))) > 6
    kafka.start()
    assert without_internals(everything(kafka.bootstrap)) == ours
    kafka.kill()
    kafka.start()
    assert without_internals(everything(kafka.bootstrap)) == ours


def test_topics_that_were_made_here_come_to_no_harm_with_kafka(kafka: Kafka, kafkalite: Kafkalite) -> None:
    """It does not know them, and does not serve them; with KRaft it even sets them aside. Their records are there when
    kafkalite is back."""
    kafka.start()
    administer(kafka.bootstrap, "create_topics", [NewTopic("orders", 3, 1)])
    kafka.stop()
    kafkalite.start()
    administer(kafkalite.bootstrap, "create_topics", [NewTopic("ours", 2, 1), NewTopic("compacted", 1, 1)])
    produce(kafkalite.bootstrap, "kafkalite")
    ours = without_internals(everything(kafkalite.bootstrap))
    kafkalite.stop()
    kafka.start()
    assert without_internals(everything(kafka.bootstrap)).keys() == {("orders", 0), ("orders", 1), ("orders", 2)}
    kafka.stop()
    kafkalite.start("--port", "0", "--data-dir", kafkalite.data_dirs, "--override", f"broker.id={BROKER_ID}")
    assert without_internals(everything(kafkalite.bootstrap)) == ours
    kafkalite.stop()
