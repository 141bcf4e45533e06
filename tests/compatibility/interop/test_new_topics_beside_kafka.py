"""A topic that one broker creates, as another one shows it meanwhile: not at all, or with a leader of each partition.

Clients ask both brokers for Metadata without a pause, while topics are created and get more partitions. Apache Kafka
and kafkalite are looked at in the same way, each with two brokers on its own chroot of one ZooKeeper.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.reference import ReferenceUnavailable
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic
from tests.compatibility.differential.asking import create, new_topic
from tests.compatibility.interop.kafka_stage import kafka_stage
from tests.support.wait import DEADLINE_S, until
from tests.support.zk.znode_story import Stage, ask
from tests.support.zk.znode_telling import KafkaliteStage

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
VERSION = 9  # of Metadata
TOPICS, PARTITIONS = 40, 3


class Watcher(threading.Thread):
    """Asks a broker again and again, for all topics or for one that it may not have. `leaderless`: what was shown
    without a leader; `counts`: the numbers of partitions with which each topic was shown."""

    def __init__(self, address: str, name: str | None) -> None:
        super().__init__(daemon=True)
        self.leaderless: set[tuple[str, int]] = set()
        self.counts: dict[str, set[int]] = {}
        self.answers = 0
        self._address = address
        topics = None if name is None else [MetadataRequestTopic(name=name)]
        self._request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        self._done = threading.Event()

    def run(self) -> None:
        with BlockingClient(self._address, DEADLINE_S) as client:
            while not self._done.is_set():
                for topic in client.ask(self._request, VERSION).topics:
                    if topic.error_code == 0:
                        self.counts.setdefault(topic.name, set()).add(len(topic.partitions))
                    for one in topic.partitions:
                        if one.leader_id < 0:
                            self.leaderless.add((topic.name, one.partition_index))
                self.answers += 1

    def finish(self) -> None:
        self._done.set()
        self.join(DEADLINE_S)


@contextmanager
def watched(stage: Stage) -> Iterator[list[Watcher]]:
    watchers = [Watcher(stage.address(broker_id), name) for broker_id in (0, 1) for name in (None, f"t-{TOPICS // 2}")]
    for each in watchers:
        each.start()
    try:
        yield watchers
    finally:
        for each in watchers:
            each.finish()


def look(stage: Stage) -> tuple[set[tuple[str, int]], dict[str, set[int]]]:
    for broker_id in (0, 1):
        stage.start(broker_id)
    with watched(stage) as watchers:
        until(lambda: all(each.answers for each in watchers), "the first answers")
        for number in range(TOPICS):
            ask(create(new_topic(f"t-{number}", PARTITIONS)), 4, _controller(stage))(stage)
            if number % 4 == 0:
                more = CreatePartitionsTopic(name=f"t-{number}", count=PARTITIONS + 1, assignments=None)
                ask(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 1, _controller(stage))(stage)
        until(lambda: all(len(each.counts) == TOPICS for each in watchers[::2]), "all topics at both brokers")
    counts: dict[str, set[int]] = {}
    for each in watchers:
        for name, numbers in each.counts.items():
            counts.setdefault(name, set()).update(numbers)
    return set().union(*(each.leaderless for each in watchers)), counts


def _controller(stage: Stage) -> int:
    with BlockingClient(stage.address(0), DEADLINE_S) as client:
        return int(client.ask(MetadataRequest(topics=[]), VERSION).controller_id)


def test_new_topics_are_seen_with_their_leaders(tmp_path: Path) -> None:
    try:
        running = kafka_stage(tmp_path / "kafka")
        kafka = running.__enter__()
    except ReferenceUnavailable as reason:
        pytest.skip(str(reason))
    try:
        theirs = look(kafka)
        ours = KafkaliteStage(kafka.zookeeper.partition("/")[0] + "/ours", tmp_path / "kafkalite")
        try:
            found = look(ours)
        finally:
            ours.close()
    finally:
        running.__exit__(None, None, None)
    assert theirs[0] == set() and found[0] == set()
    for number in range(TOPICS):
        wanted = {PARTITIONS, PARTITIONS + 1} if number % 4 == 0 else {PARTITIONS}
        assert theirs[1][f"t-{number}"] <= wanted and found[1][f"t-{number}"] <= wanted
