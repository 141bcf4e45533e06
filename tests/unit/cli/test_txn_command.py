"""`kafkalite txn`: the columns of kafka-transactions.sh, the right broker for each question, one line for a fault."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cli import txn_command
from kafkalite.cli.main import main
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from kafkalite.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    InitProducerIdRequest,
    WriteTxnMarkersRequest,
)
from kafkalite.record.batch import build_batch_at
from kafkalite.server.broker import Broker
from tests.support.transaction_cluster import TransactionCluster
from tests.support.wait import DEADLINE_S, until

Said = tuple[int, list[list[str]], list[str]]
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
LONG_AGO_MS = NOW_MS - HOUR_MS


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> TransactionCluster:
    cluster = TransactionCluster()
    monkeypatch.setattr(txn_command, "ClusterClient", lambda addresses, timeout_s, security: cluster)
    monkeypatch.setattr(txn_command, "_now_ms", lambda: NOW_MS)
    return cluster


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], cluster: TransactionCluster) -> Callable[..., Said]:
    """Run the command: (exit code, words of each line on stdout, lines on stderr)."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        code = main(["txn", *map(str, arguments)])
        said = capsys.readouterr()
        return code, [line.split() for line in said.out.splitlines()], said.err.splitlines()

    return run


def test_the_ids_of_all_coordinators_are_listed(cluster: TransactionCluster, say: Callable[..., Said]) -> None:
    cluster.add(2, "b", 8, "CompleteCommit")
    cluster.add(1, "c", 9, "Ongoing")
    cluster.add(1, "a", 7, "Empty")
    assert say("list") == (
        0,
        [
            ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"],
            ["a", "1", "7", "Empty"],
            ["b", "2", "8", "CompleteCommit"],
            ["c", "1", "9", "Ongoing"],
        ],
        [],
    )
    assert [(broker_id, version) for broker_id, _, version in cluster.asked] == [(1, 0), (2, 0)]


def test_filters_travel_to_the_coordinators(cluster: TransactionCluster, say: Callable[..., Said]) -> None:
    say("list", "--duration-filter", 5000, "--state", "Ongoing", "--state", "Empty")
    _, request, version = cluster.asked[0]
    assert (request.duration_filter, request.state_filters, version) == (5000, ["Ongoing", "Empty"], 1)
    code, _, complaints = say("list", "--state", "Nonsense")
    assert (code, complaints) == (1, ["kafkalite: there is no state Nonsense of a transaction"])


def test_a_transactional_id_is_described_by_its_coordinator(
    cluster: TransactionCluster, say: Callable[..., Said]
) -> None:
    cluster.add(2, "a", 7, partitions=(("orders", 0), ("orders", 1)), start_ms=NOW_MS - 5000)
    cluster.add(1, "idle", 8, "Empty")
    code, lines, _ = say("describe", "--transactional-id", "a")
    assert code == 0
    assert dict(zip(*lines, strict=True)) == {
        "CoordinatorId": "2",
        "TransactionalId": "a",
        "ProducerId": "7",
        "ProducerEpoch": "3",
        "TransactionState": "Ongoing",
        "TransactionTimeoutMs": "60000",
        "CurrentTransactionStartTimeMs": str(NOW_MS - 5000),
        "TransactionDurationMs": "5000",
        "TopicPartitions": "orders-0,orders-1",
    }
    _, (_, row), _ = say("describe", "--transactional-id", "idle")
    assert row[-2:] == ["None", "None"]
    assert say("describe", "--transactional-id", "x") == (1, [], ["kafkalite: transactional id x not found"])


def test_a_row_is_also_an_object(cluster: TransactionCluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.begin(("orders", 1), 7, -1, NOW_MS)
    assert main(["txn", "describe-producers", "--topic", "orders", "--partition", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "ProducerId": 7,
        "ProducerEpoch": 3,
        "LatestCoordinatorEpoch": -1,
        "LastSequence": 5,
        "LastTimestamp": NOW_MS,
        "CurrentTransactionStartOffset": None,
    }
    assert cluster.asked[-1][0] == 2  # the leader


def test_a_transaction_that_no_coordinator_will_end_hangs(
    cluster: TransactionCluster, say: Callable[..., Said]
) -> None:
    cluster.add(1, "known", 7, partitions=(("orders", 0),))
    cluster.begin(("orders", 0), 7, 10, LONG_AGO_MS)  # its coordinator will write the marker
    cluster.begin(("orders", 1), 7, 20, LONG_AGO_MS)  # not here: the partition is not in the transaction
    cluster.begin(("clicks", 0), 8, 30, LONG_AGO_MS)  # no transactional id has this producer
    cluster.begin(("clicks", 0), 9, 40, NOW_MS - 60_000)  # too young
    cluster.begin(("clicks", 0), 10, -1, LONG_AGO_MS)  # not in a transaction
    code, lines, complaints = say("find-hanging")
    assert code == 1 and complaints == ["kafkalite: alone-0 is left out here: broker 3 is away"]
    assert lines == [
        [
            "Topic",
            "Partition",
            "ProducerId",
            "ProducerEpoch",
            "CoordinatorEpoch",
            "StartOffset",
            "LastTimestamp",
            "Duration(min)",
        ],
        ["clicks", "0", "8", "3", "-1", "30", str(LONG_AGO_MS), "60"],
        ["orders", "1", "7", "3", "-1", "20", str(LONG_AGO_MS), "60"],
    ]
    assert len(say("find-hanging", "--topic", "orders")[1]) == 2
    assert len(say("find-hanging", "--topic", "orders", "--partition", 0)[1]) == 1
    assert len(say("find-hanging", "--broker-id", 2)[1]) == 2
    assert len(say("find-hanging", "--max-transaction-timeout", 61)[1]) == 1
    assert len(say("find-hanging", "--max-transaction-timeout", 0)[1]) == 4


def marker(cluster: TransactionCluster) -> tuple[object, ...]:
    broker_id, request, _ = cluster.asked[-1]
    assert isinstance(request, WriteTxnMarkersRequest)
    (one,) = request.markers
    (topic,) = one.topics
    assert not one.transaction_result
    return broker_id, topic.name, topic.partition_indexes, one.producer_id, one.producer_epoch, one.coordinator_epoch


def test_a_transaction_is_aborted_by_a_marker_from_its_leader(
    cluster: TransactionCluster, say: Callable[..., Said]
) -> None:
    cluster.begin(("orders", 1), 7, 20, LONG_AGO_MS)
    assert say("abort", "--topic", "orders", "--partition", 1, "--start-offset", 20) == (0, [], [])
    assert marker(cluster) == (2, "orders", [1], 7, 3, 0)
    by_id = ("--producer-id", 8, "--producer-epoch", 2, "--coordinator-epoch", 5)
    assert say("abort", "--topic", "orders", "--partition", 0, *by_id) == (0, [], [])
    assert marker(cluster) == (1, "orders", [0], 8, 2, 5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("abort", "--topic", "orders", "--partition", 1), "abort needs --start-offset, or --producer-id"),
        (("abort", "--topic", "orders", "--partition", 1, "--start-offset", 3), "no open transaction of orders-1"),
        (("abort", "--topic", "orders", "--partition", 9, "--start-offset", 3), "partition orders-9 not found"),
        (("describe-producers", "--topic", "alone", "--partition", 0), "alone-0 has no leader"),
        (("describe-producers", "--topic", "orders", "--partition", 0, "--broker-id", 2), "NOT_LEADER_OR_FOLLOWER"),
        (("describe-producers", "--topic", "orders", "--partition", 0, "--broker-id", 9), "broker 9 not found"),
        (("find-hanging", "--topic", "nix"), "topic nix not found"),
        (("find-hanging", "--topic", "orders", "--partition", 9), "partition orders-9 not found"),
        (("find-hanging", "--partition", 0), "--partition needs --topic"),
    ],
)
def test_a_fault_is_one_line(arguments: tuple[object, ...], said: str, say: Callable[..., Said]) -> None:
    code, lines, complaints = say(*arguments)
    assert (code, lines) == (1, [])
    assert len(complaints) == 1 and said in complaints[0]


def test_a_refused_marker_is_told(cluster: TransactionCluster, say: Callable[..., Said]) -> None:
    cluster.begin(("orders", 1), 7, 20, LONG_AGO_MS)
    cluster.marker_error = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    code, _, complaints = say("abort", "--topic", "orders", "--partition", 1, "--start-offset", 20)
    assert code == 1
    assert complaints == ["kafkalite: the transaction in orders-1 cannot be aborted: TRANSACTION_COORDINATOR_FENCED"]


def test_a_running_broker_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A transaction whose partition no coordinator knows of is found, and ended."""

    def rows(*arguments: object) -> list[dict[str, Any]]:
        assert main(["txn", *map(str, arguments), "--bootstrap-server", broker.bootstrap_servers, "--json"]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    with Broker(data_dir=tmp_path / "data", port=0) as broker:
        with BlockingClient(broker.bootstrap_servers, DEADLINE_S) as client:
            producer_id = begin(client, "t", "orders")
            assert rows("list") == [
                {"TransactionalId": "t", "Coordinator": 0, "ProducerId": producer_id, "TransactionState": "Ongoing"}
            ]
            (described,) = rows("describe", "--transactional-id", "t")
            assert (described["TransactionState"], described["TopicPartitions"]) == ("Ongoing", "orders-0")
            (producer,) = rows("describe-producers", "--topic", "orders", "--partition", 0)
            assert (producer["ProducerId"], producer["CurrentTransactionStartOffset"]) == (producer_id, 0)
            assert rows("find-hanging", "--max-transaction-timeout", -1) == []
        running = broker._running
        assert running is not None
        running.transactions.store.remove(running.transactions.store.by_id["t"])
        (hanging,) = rows("find-hanging", "--max-transaction-timeout", -1)
        assert (hanging["Topic"], hanging["StartOffset"]) == ("orders", 0)
        assert rows("abort", "--topic", "orders", "--partition", 0, "--start-offset", 0) == []
        assert rows("find-hanging", "--max-transaction-timeout", -1) == []


def begin(client: BlockingClient, transactional_id: str, topic: str) -> int:
    """The producer id of a transaction with one record in the first partition of a new topic."""
    topics = [CreatableTopic(name=topic, num_partitions=1, replication_factor=1)]
    client.ask(CreateTopicsRequest(topics=topics, timeout_ms=9000), 5)
    find = FindCoordinatorRequest(key=transactional_id, key_type=1)
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    until(lambda: not client.ask(find, 3).error_code, "a coordinator")
    identity = client.ask(init, 4)
    partitions = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
    )
    client.ask(partitions, 3)
    now_ms = time.time_ns() // 1_000_000
    batch = build_batch_at(
        now_ms, [(None, b"x")], producer_id=identity.producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])]
    produce = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=9000, topic_data=data)
    assert client.ask(produce, 9).responses[0].partition_responses[0].error_code == 0
    return int(identity.producer_id)
