"""`kafkalite cleaner`: what is compacted, and what an operator may have done; what is wrong is said in one line."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cli import cleaner_command
from kafkalite.cli.main import main
from kafkalite.client import log_dirs
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.protocol.codec.schema import Message
from kafkalite.protocol.header import decode_request_header, response_frame
from kafkalite.protocol.messages.cleaner import CleanerPass, RunCleanerPartition, RunCleanerResponse
from kafkalite.protocol.messages.log_dirs import (
    CLEANER_IS_OFF,
    CLEANING_REPORTED,
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    LogCleaning,
)
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.server.broker import Broker
from tests.support.strange_listeners import METADATA, hang_up, listening, nobody_else

Said = tuple[int, list[str], list[str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run the command: (exit code, lines on stdout, lines on stderr)."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        code = main(["cleaner", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def fill(broker: Broker) -> None:
    """Forty records with two keys in the first of two partitions of `users`; and `orders`, which is not compacted."""
    compacts = CreatableTopicConfig(name="cleanup.policy", value="compact")
    with BlockingClient(broker.bootstrap_servers, 10) as client:
        topics = [
            CreatableTopic(name="users", num_partitions=2, replication_factor=1, configs=[compacts]),
            CreatableTopic(name="orders", num_partitions=1, replication_factor=1),
        ]
        answer = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=9000), 5)
        assert not any(one.error_code for one in answer.topics)
        for number in range(20):
            records = memoryview(build_batch([NewRecord(b"one", b"%d" % number * 50), NewRecord(b"two", b"x")]))
            data = [PartitionProduceData(index=0, records=records)]
            request = ProduceRequest(
                acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name="users", partition_data=data)]
            )
            assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0


def test_a_topic_is_compacted_and_shown(tmp_path: Path, say: Callable[..., Said]) -> None:
    with Broker(data_dir=tmp_path / "data", port=0, log_segment_bytes=500) as broker:
        fill(broker)
        there = ("--bootstrap-server", broker.bootstrap_servers)
        code, lines, complaints = say("status", *there)
        assert (code, complaints) == (0, [])
        assert lines[0].split("  ")[0] == "topic" and "dirty size" in lines[0]
        assert lines[1].split()[:3] == ["users", "0", "idle"] and lines[1].endswith("due at the next check")
        assert lines[2].split()[:3] == ["users", "1", "idle"] and lines[2].endswith("the log is empty")
        assert len(lines) == 3, "orders is not compacted"

        code, lines, complaints = say("run", "users", "--roll", "--wait", *there)
        assert (code, complaints) == (0, [])
        assert lines[1].split()[:3] == ["users", "0", "compacted"] and "2 of 40" in lines[1]
        assert "nothing to do" in lines[2] and lines[2].endswith("the log is empty")

        code, lines, complaints = say("status", "users", "--json", *there)
        first, second = map(json.loads, lines)
        assert (code, complaints) == (0, [])
        assert (first["runs"], first["last"]["records_kept"], first["first_dirty_offset"]) == (1, 2, 40)
        assert (second["last_run_ms"], second["last"], second["why_not"]) == (None, None, "the log is empty")
        code, lines, _ = say("run", "users", "--partition", 1, "--json", *there)
        assert [json.loads(line)["result"] for line in lines] == ["nothing to do"]

        assert main(["topic", "describe", "users", "--bootstrap-server", broker.bootstrap_servers]) == 0
        code, lines, complaints = say("status", "orders", *there)
        assert (code, lines) == (1, [])
        assert complaints == ["kafkalite: orders is not compacted: its cleanup.policy has no 'compact'"]
        code, _, complaints = say("status", "nix", *there)
        assert (code, complaints) == (1, [f"kafkalite: topic nix not found at {broker.bootstrap_servers}"])
        code, _, complaints = say("run", "orders", *there)
        assert complaints == [
            "kafkalite: cleanup.policy of orders is 'delete'; set it to 'compact' (or 'compact,delete')"
        ]


def test_a_broker_without_compacted_topics(tmp_path: Path, say: Callable[..., Said]) -> None:
    with Broker(data_dir=tmp_path / "data", port=0) as broker:
        code, lines, complaints = say("status", "--bootstrap", broker.bootstrap_servers)
    assert (code, lines, complaints) == (0, ["no topic is compacted (cleanup.policy=compact)"], [])


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "t", "--partition", "-1"),
        ("run", "t", "--partition", 2**31),
        ("run", "t", "--timeout", "nan"),
        ("run", "t", "--timeout", 86_401),
        ("run",),
        (),
    ],
)
def test_what_cannot_be_asked_is_refused(say: Callable[..., Said], arguments: tuple[object, ...]) -> None:
    with pytest.raises(SystemExit):
        say(*arguments)


# other answers


def answers(*responses: Message) -> Callable[[socket.socket], None]:
    """A broker that has these answers, one after another."""

    def asked(connection: socket.socket) -> Any:
        size = connection.recv(4)
        frame = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
        return decode_request_header(memoryview(frame))[0]

    def serve(connection: socket.socket) -> None:
        for response in responses:
            header = asked(connection)
            if header.api_key == METADATA:
                connection.sendall(nobody_else(header))
                header = asked(connection)
            connection.sendall(b"".join(response_frame(response, header.api_version, header.correlation_id)))  # type: ignore[arg-type]

    return serve


def described(cleaning: LogCleaning | None, how: int = CLEANING_REPORTED) -> DescribeLogDirsResponse:
    partition = DescribeLogDirsPartition(partition_index=0, partition_size=100, cleaning=cleaning)
    topic = DescribeLogDirsTopic(name="t", partitions=[partition])
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=[topic])], cleaning=how)


def row(**values: Any) -> LogCleaning:
    return LogCleaning(**{"state": "idle", "last_run_ms": -1, **values})


@pytest.mark.parametrize("arguments", [("status",), ("run", "t")])
def test_who_is_no_kafkalite_is_recognised(say: Callable[..., Said], arguments: tuple[str, ...]) -> None:
    with listening(hang_up) as address:
        code, lines, complaints = say(*arguments, "--bootstrap-server", address)
        assert (code, lines) == (1, []) and complaints[0].endswith("need TLS or SASL (--command-config)?")
    code, _, complaints = say(*arguments, "--bootstrap-server", address)
    assert complaints == [f"kafkalite: nothing listens on {address}; is the broker running?"]


def test_a_stock_broker_is_recognised(say: Callable[..., Said]) -> None:
    with listening(answers(described(None, 0), described(None, 0))) as address:
        code, lines, complaints = say("status", "--bootstrap-server", address)
    assert (code, lines) == (1, [])
    assert complaints == [f"kafkalite: {address} is no kafkalite that reports compaction"]


def test_what_went_wrong_is_shown_and_counts(say: Callable[..., Said]) -> None:
    failed = row(
        state="uncleanable", why_not="it failed", error="t-0: a batch is damaged", last_run_ms=1_700_000_000_000
    )
    with listening(answers(described(None, 0), described(failed))) as address:
        code, lines, complaints = say("status", "--bootstrap-server", address)
    assert (code, complaints) == (1, [])
    assert lines[1].split("  ")[-1] == "error: t-0: a batch is damaged"
    assert "uncleanable" in lines[1] and "2023-11-14 22:13:20Z" in lines[1]


def test_a_cleaner_that_is_off_and_a_failed_directory_are_told(say: Callable[..., Said]) -> None:
    everything = described(None, 0)
    everything.results.append(DescribeLogDirsResult(error_code=56, log_dir="/data/2"))
    off = described(row(why_not="log.cleaner.enable is false", last_run_ms=1 << 62), CLEANER_IS_OFF)
    with listening(answers(everything, off)) as address:
        code, lines, complaints = say("status", "--bootstrap-server", address)
    assert code == 1 and f"{1 << 62} ms" in lines[1]
    assert complaints == [
        "kafkalite: /data/2 has failed, and its partitions are left out here",
        "kafkalite: nothing is compacted: log.cleaner.enable is false; set it to true and restart the broker",
    ]


def test_results_of_every_kind(say: Callable[..., Said]) -> None:
    done = CleanerPass(records_read=10, records_kept=2, bytes_read=1000, bytes_kept=150, total_ms=1500)
    partitions = [
        RunCleanerPartition(partition_index=0, done=done),
        RunCleanerPartition(partition_index=1),
        RunCleanerPartition(partition_index=2, error_code=7, message="it goes on"),
        RunCleanerPartition(partition_index=3, error_code=-1, message="no space left"),
        RunCleanerPartition(partition_index=4, error_code=999),
    ]
    with listening(answers(RunCleanerResponse(partitions=partitions))) as address:
        code, lines, complaints = say("run", "t", "--wait", "--timeout", 0, "--bootstrap-server", address)
    assert code == 1
    results = ("compacted", "nothing to do", "running", "failed", "failed")
    assert all(result in line for result, line in zip(results, lines[1:], strict=True))
    assert "1.5" in lines[1] and "2 of 10" in lines[1] and "150 B of 1,000 B" in lines[1]
    assert complaints == ["kafkalite: t-2: it goes on", "kafkalite: t-3: no space left", "kafkalite: t-4: error 999"]
    with listening(answers(RunCleanerResponse(partitions=partitions[1:2]))) as address:
        assert "queued" in say("run", "t", "--bootstrap-server", address)[1][1]
    with listening(answers(RunCleanerResponse(error_code=89))) as address:
        assert say("run", "t", "--bootstrap-server", address)[2] == ["kafkalite: THROTTLING_QUOTA_EXCEEDED"]


def test_who_loses_patience_hears_that_it_goes_on(say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with listening(hang_up) as address:
        monkeypatch.setattr(BlockingClient, "ask", interrupt)
        code, lines, complaints = say("run", "t", "--wait", "--bootstrap-server", address)
    assert (code, lines) == (130, [])
    assert complaints == ["kafkalite: runs that have started continue; see kafkalite cleaner status"]


def test_many_partitions_are_asked_for_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dirs, "_PARTITIONS_MAX", 2)
    asked: list[list[int]] = []

    class Client:
        address = "here"

        def ask(self, request: Any, version: int) -> DescribeLogDirsResponse:
            indexes = list(range(5)) if request.topics is None else list(request.topics[0].partitions)
            asked.append(indexes)
            cleaning = row() if request.describe_cleaning else None
            partitions = [DescribeLogDirsPartition(partition_index=index, cleaning=cleaning) for index in indexes]
            topics = [DescribeLogDirsTopic(name="t", partitions=partitions)]
            return DescribeLogDirsResponse(
                results=[DescribeLogDirsResult(topics=topics)], cleaning=CLEANING_REPORTED if cleaning else 0
            )

    found, complaints = cleaner_command.status_of_broker(Client(), [])  # type: ignore[arg-type]
    assert (sorted(index for _, index in found), complaints) == (list(range(5)), [])
    assert asked == [[0, 1, 2, 3, 4], [0, 1], [2, 3], [4]]
