"""`kafkalite topic describe`: a running broker and its files say the same, and what is wrong is said in one line."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from kafkalite.cli import topic_description
from kafkalite.cli.main import main
from kafkalite.cli.topic_description import Description, PartitionCounts, RecordCounts, objects, table
from kafkalite.client import log_dirs
from kafkalite.client.blocking_client import BlockingClient, parse_address
from kafkalite.client.cluster_client import PartitionPlace
from kafkalite.common.errors import ConfigError, Unanswered
from kafkalite.protocol.header import decode_request_header, response_frame
from kafkalite.protocol.messages.log_dirs import (
    COUNTING,
    UNCOUNTABLE,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    PartitionRecordCounts,
)
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.server.broker import Broker
from kafkalite.testing import Broker as EmbeddedBroker
from tests.support.strange_listeners import (
    METADATA,
    break_off,
    drip,
    hang_up,
    keep_silent,
    listening,
    nobody_else,
    speak_http,
    talk_nonsense,
)

ONE_COPY = ["topic", "partition", "epoch", "start", "end", "live", "records", "control", "size", "segments"]
Said = tuple[int, list[str], list[str]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run the command: (exit code, lines on stdout, lines on stderr)."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        code = main(["topic", "describe", *map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def fill(broker: Broker) -> None:
    """Ten records in each of two partitions of `orders`, the first three of one deleted; and `empty`."""
    with BlockingClient(broker.bootstrap_servers, 10) as client:
        topics = [
            CreatableTopic(name="orders", num_partitions=2, replication_factor=1),
            CreatableTopic(name="empty", num_partitions=1, replication_factor=1),
        ]
        assert not any(
            one.error_code for one in client.ask(CreateTopicsRequest(topics=topics, timeout_ms=9000), 5).topics
        )
        for partition in (0, 1):
            for _ in range(5):
                records = memoryview(build_batch([NewRecord(None, b"x" * 100), NewRecord(None, b"y" * 100)]))
                data = [PartitionProduceData(index=partition, records=records)]
                request = ProduceRequest(
                    acks=-1, timeout_ms=9000, topic_data=[TopicProduceData(name="orders", partition_data=data)]
                )
                assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0
        partition = DeleteRecordsPartition(partition_index=1, offset=3)
        topic = DeleteRecordsTopic(name="orders", partitions=[partition])
        client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=9000), 2)


def test_a_running_broker_and_its_files_say_the_same(tmp_path: Path, say: Callable[..., Said]) -> None:
    with Broker(data_dir=tmp_path / "data", port=0, log_segment_bytes=700) as broker:
        fill(broker)
        code, running, complaints = say("--bootstrap", broker.bootstrap_servers, "--segments", "--json")
        assert (code, complaints) == (0, [])
        code, shown, _ = say("--bootstrap", broker.bootstrap_servers)
        assert code == 0
        assert [line.split() for line in shown] == [
            [*ONE_COPY, "leader", "replicas", "isr", "elr"],
            ["empty", "0", "0", "0", "0", "0", "0", "0", "B", "1", "0", "0", "0"],
            ["empty", "all", "0", "0", "0", "B", "1"],
            ["orders", "0", "0", "0", "10", "10", "0", "1.4", "KiB", "3", "0", "0", "0"],
            ["orders", "1", "0", "3", "10", "7", "0", "1.4", "KiB", "3", "0", "0", "0"],
            ["orders", "all", "17", "0", "2.7", "KiB", "6"],
            ["2", "topics", "3", "17", "0", "2.7", "KiB", "7"],
        ]
        code, some, _ = say("orders", "--bootstrap", broker.bootstrap_servers, "--segments")
        assert not any("empty" in line for line in some) and any("0000000" in line for line in some)
        code, _, complaints = say("--data-dir", tmp_path / "data")
        assert code == 1 and "a broker is running on" in complaints[0]
    code, stopped, complaints = say("--data-dir", tmp_path / "data", "--segments", "--json")
    assert (code, complaints) == (0, [])

    of_running = ("leader_epoch", "leader", "replicas", "isr", "elr", "is_under_replicated")

    def parsed(lines: list[str]) -> list[Any]:
        return [{key: value for key, value in json.loads(line).items() if key not in of_running} for line in lines]

    assert parsed(stopped) == parsed(running)
    totals = {one["topic"]: one["live_records"] for one in parsed(stopped) if one["type"] == "topic"}
    assert totals == {"orders": 17, "empty": 0}


def test_leaders_and_replicas_are_shown_of_running_brokers() -> None:
    counts = RecordCounts(7, 0, 700, 1)
    segments = {0: counts}
    whole = PartitionCounts("orders", 0, 4, 0, 7, counts, False, segments, (), PartitionPlace(1, (1, 2), (2, 1)))
    lagging = PartitionCounts("orders", 1, 5, 0, 7, counts, False, {}, (3,), PartitionPlace(2, (2, 3, 1), (2,)))
    described = Description([lagging, whole])
    assert [line.split() for line in table(described, segments=True)] == [
        [*ONE_COPY, "leader", "replicas", "isr", "elr"],
        ["orders", "0", "4", "0", "7", "7", "0", "700", "B", "1", "1", "1,2", "2,1"],
        ["00000000000000000000", "7", "0", "700", "B", "1"],
        ["orders", "1", "5", "0", "7", "7", "0", "700", "B", "1", "2", "2,3,1", "2", "3", "under-replicated"],
        ["orders", "all", "14", "0", "1.4", "KiB", "2"],
    ]
    first, second, _ = (json.loads(line) for line in objects(described, segments=False))
    assert (first["replicas"], first["isr"], first["is_under_replicated"]) == ([1, 2], [2, 1], False)
    assert (second["leader"], second["elr"], second["is_under_replicated"]) == (2, [3], True)
    alone = PartitionCounts("orders", 0, 4, 0, 7, counts)
    assert next(table(Description([alone]), segments=False)).split() == ONE_COPY
    assert "replicas" not in next(objects(Description([alone]), segments=False))


def test_own_settings_stand_below_and_internal_topics_only_if_wanted(say: Callable[..., Said]) -> None:
    with EmbeddedBroker() as broker:
        broker.create_topic("orders", retention_ms=60_000)
        broker.produce("orders", value="x")
        broker.create_topic("__consumer_offsets")
        code, lines, _ = say("--bootstrap", broker.bootstrap_servers)
        assert code == 0 and lines[-1] == "settings of orders: retention.ms=60000"
        assert not any("__consumer_offsets" in line for line in lines)
        for wanted in ("--internal", "__consumer_offsets"):
            assert any("__consumer_offsets" in line for line in say(wanted, "--bootstrap", broker.bootstrap_servers)[1])


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path, say: Callable[..., Said]) -> None:
    with Broker(data_dir=tmp_path / "data", port=0) as broker:
        address = broker.bootstrap_servers
        fill(broker)
        assert say("nix", "--bootstrap", address) == (1, [], [f"kafkalite: topic nix not found at {address}"])
    assert say("--bootstrap", address) == (1, [], [f"kafkalite: nothing listens on {address}; is the broker running?"])
    code, _, complaints = say("--data-dir", tmp_path / "nowhere")
    assert code == 1 and complaints == [f"kafkalite: there is no directory {tmp_path / 'nowhere'}"]
    code, _, complaints = say("nix", "--data-dir", tmp_path / "data")
    assert code == 1 and complaints == [f"kafkalite: topic nix not found at {tmp_path / 'data'}"]


@pytest.mark.parametrize("text", ["", "localhost", ":9092", "h:", "h:x", "h:0", "h:65536", "h:99999999999", "h:-1"])
def test_an_address_has_a_host_and_a_port(text: str) -> None:
    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("localhost:9092") == ("localhost", 9092)
    assert parse_address("[::1]:65535") == ("::1", 65535)


# other listeners at the address


@pytest.mark.parametrize(
    ("who", "said"),
    [
        (break_off, "lost the connection"),
        (
            hang_up,
            "closed the connection without an answer; is it a Kafka broker",
        ),
        (speak_http, "is no Kafka broker"),
        (keep_silent, "does not answer within 0.2 s"),
        (drip, "does not answer within 0.2 s"),
        (talk_nonsense, "is invalid"),
    ],
)
def test_whoever_listens_there_the_command_ends(who: Callable[[socket.socket], None], said: str, say: Any) -> None:
    with listening(who) as address:
        code, lines, complaints = say("--bootstrap", address, "--timeout", "0.2")
        assert (code, lines) == (1, []) and len(complaints) == 1
        assert said in complaints[0]


def answers(*responses: DescribeLogDirsResponse) -> Callable[[socket.socket], None]:
    """A broker that has these answers; the last one again and again."""

    def serve(connection: socket.socket) -> None:
        number = 0
        while size := connection.recv(4):
            frame = connection.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL)
            header, _ = decode_request_header(memoryview(frame))
            if header.api_key == METADATA:
                connection.sendall(nobody_else(header))
                continue
            response = responses[min(number, len(responses) - 1)]
            number += 1
            connection.sendall(b"".join(response_frame(response, header.api_version, header.correlation_id)))  # type: ignore[arg-type]

    return serve


def counted(live_records: int) -> DescribeLogDirsResponse:
    counts = PartitionRecordCounts(end_offset=9, live_records=live_records, control_records=min(live_records, 0))
    partition = DescribeLogDirsPartition(partition_index=0, partition_size=100, counts=counts)
    topic = DescribeLogDirsTopic(name="t", partitions=[partition])
    return DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=[topic])], counts_records=True)


def test_it_asks_again_while_records_are_counted(say: Any) -> None:
    with listening(answers(counted(COUNTING), counted(COUNTING), counted(COUNTING), counted(9))) as address:
        code, lines, complaints = say("--bootstrap", address, "--json")
    assert (code, complaints) == (0, [])
    assert json.loads(lines[0])["live_records"] == 9


def test_what_is_not_known_in_time_is_not_made_up(say: Any) -> None:
    with listening(answers(counted(COUNTING))) as address:
        code, lines, complaints = say("--bootstrap", address, "--timeout", "0.3")
    assert code == 1 and "counting" in lines[1] and "unknown" in lines[2]
    assert complaints == ["kafkalite: 1 partitions are still being counted; try again"]
    with listening(answers(counted(UNCOUNTABLE))) as address:
        code, lines, complaints = say("--bootstrap", address, "--json")
    assert code == 1 and json.loads(lines[0])["live_records"] is None
    assert complaints == ["kafkalite: not all of t-0 can be counted; see kafkalite log verify"]


def test_a_broker_that_does_not_count_is_recognised(say: Any) -> None:
    stock = counted(9)
    stock.counts_records = False
    stock.results[0].topics[0].partitions[0].counts = None
    with listening(answers(stock)) as address:
        code, lines, complaints = say("--bootstrap", address)
    assert (code, lines) == (1, [])
    assert complaints == [f"kafkalite: {address} is no kafkalite that counts records; try --data-dir"]


def test_a_failed_directory_and_a_refusal_are_told(say: Any) -> None:
    failed = counted(9)
    failed.results.append(DescribeLogDirsResult(error_code=56, log_dir="/data/2"))
    with listening(answers(failed)) as address:
        code, _, complaints = say("--bootstrap", address)
    assert code == 1 and complaints == ["kafkalite: /data/2 has failed, and its partitions are left out here"]
    for number, name in ((31, "CLUSTER_AUTHORIZATION_FAILED"), (999, "error 999")):
        with listening(answers(DescribeLogDirsResponse(error_code=number))) as address:
            _, _, complaints = say("--bootstrap", address)
        assert complaints == [f"kafkalite: {address} refuses to answer: {name}"]


def test_many_partitions_are_asked_for_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dirs, "_PARTITIONS_MAX", 2)

    class Client:
        address = "here"
        asked: ClassVar[list[list[int]]] = []

        def ask(self, request: DescribeLogDirsRequest, version: int) -> DescribeLogDirsResponse:
            indexes = list(range(5)) if request.topics is None else list(request.topics[0].partitions)
            self.asked.append(indexes)
            counts = PartitionRecordCounts(end_offset=9, live_records=9)
            partitions = [DescribeLogDirsPartition(partition_index=index, counts=counts) for index in indexes]
            topics = [DescribeLogDirsTopic(name="t", partitions=partitions)]
            return DescribeLogDirsResponse(results=[DescribeLogDirsResult(topics=topics)], counts_records=True)

    described = topic_description.from_broker(cast(BlockingClient, Client()), [], 1.0, segments=False)
    assert [one.index for one in described.partitions] == list(range(5))
    assert Client.asked == [[0, 1, 2, 3, 4], [0, 1], [2, 3], [4]]


def test_many_segments_are_asked_for_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_description, "_ELEMENTS_MAX", 10)
    sizes = {("t", index): count for index, count in enumerate((3, 4, 3, 50, 1))}
    partitions = {
        key: topic_description.PartitionCounts(*key, 0, 0, 0, topic_description.RecordCounts(segments=count))
        for key, count in sizes.items()
    }
    portions = list(topic_description._portions(partitions))
    assert [key for some in portions for key in some] == list(sizes)
    assert all(len(some) == 1 or sum(sizes[key] + 1 for key in some) <= 11 for some in portions)


def test_an_answer_to_another_question_is_refused() -> None:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(b"".join(response_frame(counted(1), 4, 77)))  # type: ignore[arg-type]

    wrong = pytest.raises(Unanswered, match="answers another request")
    with listening(serve) as address, BlockingClient(address, 5) as client, wrong:
        topic_description.from_broker(client, [], 5, segments=False)
