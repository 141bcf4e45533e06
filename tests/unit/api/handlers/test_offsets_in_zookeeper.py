"""OffsetCommit 0 and OffsetFetch 0: kept in ZooKeeper, or refused where there is none. Answers as of Kafka 3.9."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from tests.support.zk.znode_tree import read_tree, zookeeper_client
from tests.support.zookeeper import ZooKeeper

UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

Codes = dict[str, dict[int, int]]


def commit(group: str, offsets: dict[str, dict[int, int]], note: str | None = "note") -> OffsetCommitRequest:
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[
                OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_metadata=note)
                for index, offset in partitions.items()
            ],
        )
        for name, partitions in offsets.items()
    ]
    return OffsetCommitRequest(group_id=group, topics=topics)


def fetch(group: str, **topics: list[int]) -> OffsetFetchRequest:
    asked = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
    return OffsetFetchRequest(group_id=group, topics=asked)


def codes(answer: Any) -> Codes:
    return {topic.name: {one.partition_index: one.error_code for one in topic.partitions} for topic in answer.topics}


def found(answer: Any) -> dict[str, dict[int, tuple[int, str, int]]]:
    return {
        topic.name: {
            one.partition_index: (one.committed_offset, one.metadata, one.error_code) for one in topic.partitions
        }
        for topic in answer.topics
    }


async def with_topic(asker: Any) -> None:
    made = CreateTopicsRequest(
        topics=[CreatableTopic(name="t", num_partitions=2, replication_factor=1)], timeout_ms=10_000
    )
    assert (await asker.ask(made, 4)).topics[0].error_code == 0


def test_without_zookeeper_the_version_is_refused(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await with_topic(asker)
        refused = ErrorCode.UNSUPPORTED_VERSION
        assert codes(await asker.ask(commit("g", {"t": {0: 1, 9: 1}, "no": {0: 1}}), 0)) == {
            "t": {0: refused, 9: refused},
            "no": {0: refused},
        }
        # with nothing to keep there is nothing to refuse
        assert codes(await asker.ask(commit("g", {"no": {0: 1}}), 0)) == {"no": {0: UNKNOWN}}
        assert codes(await asker.ask(commit("g", {}), 0)) == {}
        assert found(await asker.ask(fetch("g", t=[0, 1], no=[0]), 0)) == {
            "t": {0: (-1, "", refused), 1: (-1, "", refused)},
            "no": {0: (-1, "", refused)},
        }

    tell(story)


def test_offsets_are_kept_in_zookeeper(tell: Callable[..., None], zookeeper: ZooKeeper, chroot: str) -> None:
    connect = zookeeper.connect + chroot
    too_long = ErrorCode.OFFSET_METADATA_TOO_LARGE

    async def story(asker: Any, broker: Any) -> None:
        await with_topic(asker)
        assert found(await asker.ask(fetch("g", t=[0]), 0)) == {"t": {0: (-1, "", UNKNOWN)}}
        assert codes(await asker.ask(commit("g", {"t": {0: 17, 1: 4, 2: 1}, "no": {0: 1}}), 0)) == {
            "t": {0: 0, 1: 0, 2: UNKNOWN},
            "no": {0: UNKNOWN},
        }
        assert codes(await asker.ask(commit("g", {"t": {1: 5}}, None), 0)) == {"t": {1: 0}}
        assert codes(await asker.ask(commit("g", {"t": {1: 6}}, "\U0001f600" * 2048), 0)) == {"t": {1: 0}}
        assert codes(await asker.ask(commit("g", {"t": {1: 7}}, "\U0001f600" * 2048 + "x"), 0)) == {"t": {1: too_long}}
        assert found(await asker.ask(fetch("g", t=[1, 0, 0, 2], no=[0]), 0)) == {
            "t": {1: (6, "", 0), 0: (17, "", 0), 2: (-1, "", UNKNOWN)},
            "no": {0: (-1, "", UNKNOWN)},
        }
        assert (await asker.ask(FindCoordinatorRequest(key="g"), 0)).error_code == 0  # whose offsets are others
        assert codes(await asker.ask(commit("g", {"t": {0: 3}}), 1)) == {"t": {0: 0}}
        assert found(await asker.ask(fetch("g", t=[0]), 1)) == {"t": {0: (3, "note", 0)}}
        assert found(await asker.ask(fetch("g", t=[0]), 0)) == {"t": {0: (17, "", 0)}}
        unnamed = ErrorCode.UNKNOWN_SERVER_ERROR
        assert codes(await asker.ask(commit("", {"t": {0: 1}}), 0)) == {"t": {0: unnamed}}
        assert found(await asker.ask(fetch("../brokers", t=[0], no=[0]), 0)) == {
            "t": {0: (-1, "", unnamed)},
            "no": {0: (-1, "", UNKNOWN)},
        }

    tell(story, zookeeper_connect=connect)
    with zookeeper_client(connect) as client:
        kept = {path: node.data for path, node in read_tree(client).items() if path.startswith("/consumers")}
    assert kept == {
        "/consumers": None, "/consumers/g": None, "/consumers/g/offsets": None, "/consumers/g/offsets/t": None,
        "/consumers/g/offsets/t/0": 17, "/consumers/g/offsets/t/1": 6,
    }  # fmt: skip
