"""Commands in a cluster: every leader is asked, the answers are one, and who is away is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kafkalite.cli.main import main
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.errors import Unanswered
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.ports import free_port
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.zookeeper import ZooKeeper

Said = tuple[int, list[str], list[str]]
Say = Callable[..., Awaitable[Said]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """Run a command beside the brokers: (exit code, lines on stdout, lines on stderr)."""

    async def run(*arguments: object) -> Said:
        capsys.readouterr()
        code = await asyncio.to_thread(main, [*map(str, arguments)])
        said = capsys.readouterr()
        return code, said.out.splitlines(), [line for line in said.err.splitlines() if line.startswith("kafkalite:")]

    return run


async def fill(cluster: ThreeBrokers) -> None:
    """`users`, compacted: partition p leads at broker p + 1, and has p + 1 records."""
    policy = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    topic = CreatableTopic(name="users", num_partitions=3, replication_factor=1, configs=policy)
    answer = await cluster.ask(1, CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    assert answer.topics[0].error_code == 0
    await cluster.until(lambda: cluster.is_led("users", 3))
    for index, leader in cluster.leaders("users").items():
        batch = build_batch([NewRecord(b"key", b"value", timestamp=1_000)] * (index + 1))
        data = [PartitionProduceData(index=index, records=memoryview(batch))]
        request = ProduceRequest(
            acks=-1, timeout_ms=5_000, topic_data=[TopicProduceData(name="users", partition_data=data)]
        )
        told = await cluster.ask(leader, request, 9)
        assert told.responses[0].partition_responses[0].error_code == 0


def test_all_leaders_tell_together_and_who_is_away_is_named(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path, say: Say
) -> None:
    asyncio.run(_all_tell(zookeeper.connect + chroot, tmp_path, say))


async def _all_tell(connect: str, tmp_path: Path, say: Say) -> None:
    async with three_brokers(connect, tmp_path) as cluster:
        await fill(cluster)
        there = {number: cluster.brokers[number].bootstrap_servers for number in IDS}
        for address in there.values():  # whoever is asked first
            code, lines, complaints = await say("topic", "describe", "users", "--json", "--bootstrap", address)
            assert (code, complaints) == (0, [])
            told = [json.loads(line) for line in lines]
            assert [(one["partition"], one["end_offset"]) for one in told[:-1]] == [(0, 1), (1, 2), (2, 3)]
            assert (told[-1]["type"], told[-1]["live_records"]) == ("topic", 6)
        code, _, complaints = await say("topic", "describe", "nix", "--bootstrap", there[2])
        assert (code, complaints) == (1, [f"kafkalite: topic nix not found at {there[2]}"])

        code, lines, complaints = await say("cleaner", "status", "users", "--bootstrap", there[3])
        assert (code, len(lines), complaints) == (0, 4, [])
        code, lines, complaints = await say("cleaner", "run", "users", "--json", "--bootstrap", there[3])
        assert (code, complaints) == (0, [])
        assert [json.loads(line)["partition"] for line in lines] == [0, 1, 2]
        code, lines, complaints = await say("cleaner", "run", "users", "--partition", 7, "--bootstrap", there[3])
        assert (code, lines) == (1, []) and "users has 3 partitions, counted from 0; there is no 7" in complaints[0]

        gone = cluster.leaders("users")[1]
        await cluster.stop(gone)
        await cluster.until(lambda: cluster.leaders("users")[1] == -1)
        both = f"127.0.0.1:{free_port()},{next(there[number] for number in IDS if number != gone)}"
        missing = f"kafkalite: users-1 is left out here: broker {gone} is away"
        code, lines, complaints = await say("topic", "describe", "users", "--json", "--bootstrap", both)
        assert (code, complaints) == (1, [missing])
        assert json.loads(lines[-1])["live_records"] == 4
        code, lines, complaints = await say("cleaner", "status", "users", "--bootstrap", both)
        assert (code, len(lines), complaints) == (1, 3, [missing])
        code, lines, complaints = await say("cleaner", "run", "users", "--bootstrap", both)
        assert (code, len(lines), complaints) == (1, 3, [missing])

        last = next(number for number in IDS if there[number] in both)
        await cluster.stop(next(number for number in IDS if number not in (gone, last)))
        await cluster.until(lambda: list(cluster.leaders("users").values()).count(-1) == 2)
        for command in (("topic", "describe"), ("cleaner", "status"), ("cleaner", "run")):
            code, lines, complaints = await say(*command, "users", "--json", "--bootstrap", there[last])
            assert (code, len(complaints)) == (1, 2) and missing in complaints
            partitions = {json.loads(line).get("partition") for line in lines} - {None}
            assert partitions == {index for index, leader in cluster.leaders("users").items() if leader == last}


def test_a_broker_that_is_listed_and_does_not_answer_is_said(
    zookeeper: ZooKeeper, chroot: str, tmp_path: Path, say: Say
) -> None:
    asyncio.run(_one_is_silent(zookeeper.connect + chroot, tmp_path, say))


async def _one_is_silent(connect: str, tmp_path: Path, say: Say) -> None:
    nowhere = f"127.0.0.1:{free_port()}"
    own = {2: {"listeners": "PLAINTEXT://127.0.0.1:0", "advertised_listeners": f"PLAINTEXT://{nowhere}"}}
    async with three_brokers(connect, tmp_path, own) as cluster:
        await fill(cluster)
        index = next(index for index, leader in cluster.leaders("users").items() if leader == 2)
        for command in (("topic", "describe"), ("cleaner", "status"), ("cleaner", "run")):
            code, lines, complaints = await say(
                *command, "users", "--bootstrap", cluster.brokers[1].bootstrap_servers, "--json"
            )
            assert code == 1 and f'"partition":{index}' not in "".join(lines)
            assert complaints == [
                f"kafkalite: users-{index} is left out here: broker 2: nothing listens on {nowhere}; "
                "is the broker running?"
            ]


def test_of_several_addresses_the_last_one_is_complained_of() -> None:
    first, last = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with pytest.raises(Unanswered, match=f"nothing listens on {last}"):
        ClusterClient(f"{first}, {last}", 1.0).open()
