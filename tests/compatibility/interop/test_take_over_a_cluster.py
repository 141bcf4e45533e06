"""A cluster of three Apache Kafkas is stopped; kafkalite takes over its directories and ZooKeeper, and gives them back.

Everything has three replicas. Each kind finds all records, groups and transactions of the other, brings the ISRs to
their full size and writes more at acks=all; an open transaction of a stock producer goes on at the other kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from bench.reference.jars import ReferenceUnavailable
from tests.compatibility.interop.conftest import run_command
from tests.compatibility.interop.java_tools import JavaTools
from tests.compatibility.interop.swap_scene import (
    SECONDS,
    World,
    administer,
    assert_continues,
    commit,
    commits,
    committed_paid,
    everything,
    produce,
    transact,
)
from tests.compatibility.interop.whole_cluster import IDS, VERSION, WholeCluster, whole_cluster
from tests.support.replication.live_cluster import compare_files, stored_batches
from tests.support.wait import until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
ECOSYSTEM = "Apache Kafka"
ASKS_A_BROKER_THAT_STOPS = "fails to send a request to broker"  # their controller, now and then
COMMITTED, OPEN = "CompleteCommit", "Ongoing"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[WholeCluster]:
    try:
        with whole_cluster(tmp_path / "cluster") as cluster:
            yield cluster
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))


def fill(bootstrap: str) -> None:
    """A cluster's life: three replicas of everything, a compacted topic, transactions, a group."""
    topics = [
        NewTopic("orders", 3, 3, config={"segment.bytes": "16384", "retention.ms": "-1"}),
        NewTopic("compacted", 2, 3, config={"cleanup.policy": "compact"}),
        NewTopic("paid", 1, 3),
        NewTopic("money", 1, 3),
        NewTopic("empty", 2, 3),
    ]
    administer(bootstrap, "create_topics", topics)
    produce(bootstrap, "kafka")
    transact(bootstrap, "kafka")
    commit(bootstrap, "readers", {0: 11, 1: 22, 2: 33})


def begin(bootstrap: str, name: str) -> Producer:
    """A transaction with one record, left open."""
    identity = {"transactional.id": name, "transaction.timeout.ms": 900_000}
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **identity})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce("money", name)
    assert producer.flush(SECONDS) == 0
    return producer


def end(producer: Producer, last: str) -> None:
    """One more record, and the commit."""
    producer.produce("money", last)
    producer.commit_transaction(SECONDS)


def states(tools: JavaTools) -> dict[str, str]:
    """Of all transactional ids, as kafka-transactions shows them."""
    rows = [line.split("\t") for line in tools("TransactionsCommand", "list").splitlines() if "\t" in line]
    heading = [cell.strip() for cell in rows[0]]
    name, state = heading.index("TransactionalId"), heading.index("TransactionState")
    return {row[name].strip(): row[state].strip() for row in rows[1:]}


def batches(cluster: WholeCluster) -> dict[str, dict[int, bytes]]:
    """The bytes of every partition, from the files of stopped brokers, which are the same in all three."""
    names = sorted(path.name for path in cluster.data_dir(0).iterdir() if re.fullmatch(r".+-\d+", path.name))
    for name in names:
        compare_files({number: cluster.data_dir(number) / name for number in IDS})
    return {name: stored_batches(cluster.data_dir(0) / name) for name in names}


def assert_kept(before: dict[str, dict[int, bytes]], after: dict[str, dict[int, bytes]]) -> None:
    for name, stored in before.items():
        assert {base: after[name].get(base) for base in stored} == stored, f"{name} has changed"


def errors(cluster: WholeCluster, said: dict[int, int]) -> list[str]:
    """Lines of the Kafkas' logs from `said` bytes on that say ERROR or FATAL, without those of leadership: it is an
    error for each partition until the brokers of its ISR have started, too."""
    texts = [cluster.theirs[number].output.read_bytes()[at:].decode(errors="replace") for number, at in said.items()]
    found = [line for text in texts for line in text.splitlines() if re.match(r"\[[^]]+] (ERROR|FATAL) ", line)]
    return [line for line in found if not line.endswith("(state.change.logger)")]


def write_while_a_leader_is_killed(cluster: WholeCluster) -> dict[int, bytes]:
    """Records for orders-0 at acks=all, its leader killed with -9 in between; the acknowledged ones, by offset."""
    acknowledged: dict[int, bytes] = {}
    failed: list[Any] = []

    def told(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)
        else:
            acknowledged[message.offset()] = message.value()

    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )

    def send(first: int, count: int) -> None:
        for number in range(first, first + count):
            producer.produce("orders", f"beside a kill {number}", partition=0, on_delivery=told)
            producer.poll(0)

    send(0, 100)
    assert producer.flush(SECONDS) == 0
    leader = cluster.isrs()["orders", 0][0]
    send(100, 100)
    cluster.ours[leader].kill()
    send(200, 100)
    until(lambda: producer.flush(1) == 0, lambda: f"the answers to all records, {failed[:3]}")
    assert not failed and len(acknowledged) == 300
    assert cluster.isrs()["orders", 0][0] != leader
    cluster.start_ours(leader)
    cluster.await_whole()
    return acknowledged


def taken_over(cluster: WholeCluster, tools: JavaTools, kafkas: World, goes_on: Producer) -> World:
    """Checks that kafkalite finds everything; returns what there is in the end."""
    cluster.start_ours()
    cluster.await_whole()
    assert not [ours.said for ours in cluster.ours if "taken over" in ours.said], "ZooKeeper says what there is"
    found = everything(cluster.bootstrap)
    assert found == kafkas
    assert commits(cluster.bootstrap, "readers") == {("orders", p): (11 * (p + 1), "m") for p in range(3)}
    assert states(tools) == {"payments": COMMITTED, "open at kafka": OPEN, "left at kafka": OPEN}
    paid = committed_paid(cluster.bootstrap)
    end(goes_on, "ended by kafkalite")
    begin(cluster.bootstrap, "left at kafka").abort_transaction(SECONDS)  # after that of its predecessor
    produce(cluster.bootstrap, "kafkalite")
    transact(cluster.bootstrap, "kafkalite")
    assert committed_paid(cluster.bootstrap)[: len(paid)] == paid
    commit(cluster.bootstrap, "readers", {0: 44})
    acknowledged = write_while_a_leader_is_killed(cluster)
    ours = everything(cluster.bootstrap)
    assert_continues(kafkas, ours)
    written = {one.offset: one.value for one in ours["orders", 0]}
    assert acknowledged.items() <= written.items()
    return ours


def test_a_cluster_is_taken_over_and_given_back(cluster: WholeCluster, proved: Any) -> None:
    proved("Apache Kafka", VERSION, "a cluster of three with its ZooKeeper there and back, a leader killed in between")
    tools = JavaTools(VERSION, cluster.bootstrap, run_command)
    cluster.start_theirs()
    fill(cluster.bootstrap)
    goes_on = begin(cluster.bootstrap, "open at kafka")
    begin(cluster.bootstrap, "left at kafka")
    kafkas = everything(cluster.bootstrap)
    cluster.await_whole()
    cluster.stop(cluster.theirs)
    stored = batches(cluster)
    identities = [(cluster.data_dir(number) / "meta.properties").read_text() for number in IDS]

    ours = taken_over(cluster, tools, kafkas, goes_on)
    back = begin(cluster.bootstrap, "open at kafkalite")
    ours = everything(cluster.bootstrap)
    cluster.stop(cluster.ours)
    kept = batches(cluster)
    assert_kept(stored, kept)
    assert [(cluster.data_dir(number) / "meta.properties").read_text() for number in IDS] == identities

    said = {number: cluster.theirs[number].output.stat().st_size for number in IDS}
    cluster.start_theirs()
    cluster.await_whole()
    assert everything(cluster.bootstrap) == ours
    assert commits(cluster.bootstrap, "readers") == {
        ("orders", 0): (44, "m"), ("orders", 1): (22, "m"), ("orders", 2): (33, "m"),
    }  # fmt: skip
    aborted = "CompleteAbort"
    assert states(tools) == {
        "payments": COMMITTED, "open at kafka": COMMITTED, "left at kafka": aborted, "open at kafkalite": OPEN,
    }  # fmt: skip
    end(back, "ended by kafka")
    produce(cluster.bootstrap, "kafka again")
    transact(cluster.bootstrap, "kafka again")
    last = everything(cluster.bootstrap)
    assert_continues(ours, last)
    cluster.await_whole()
    assert not errors(cluster, said)
    cluster.stop(cluster.theirs)
    assert_kept(kept, batches(cluster))
    assert not [line for line in errors(cluster, said) if ASKS_A_BROKER_THAT_STOPS not in line]
