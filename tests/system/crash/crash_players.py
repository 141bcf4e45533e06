"""Clients that work with the daemon while it is killed, one request at a time, and remember the answers.

Each player asks on one connection. `act` does its next request; when the daemon dies in the midst of it, the answer is
not known and neither is what became of the request. `check`, after the daemon is back, compares what is there with
what was told: what was answered must be so, what was only asked may be so, and nothing else. From what it finds the
player goes on.
"""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kafkalite.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
)
from tests.support.wait import DEADLINE_S
from tests.system.crash.crash_line import EARLIEST, LATEST, Line

TOPIC_RESOURCE = 2
SET = 0
NOT_YET = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


class Committer:
    """Commits offsets of some groups, ever larger ones. They may never go back behind what was acknowledged."""

    GROUPS = ("early", "late", "third")

    def __init__(self, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = range(partitions)
        self._number = 0
        self._sent = dict.fromkeys(self.GROUPS, -1)
        self._told = dict.fromkeys(self.GROUPS, -1)

    def act(self, line: Line, chance: random.Random) -> None:
        self._number += 1
        group, number = chance.choice(self.GROUPS), self._number
        self._sent[group] = number
        partitions = [
            OffsetCommitRequestPartition(partition_index=p, committed_offset=number) for p in self._partitions
        ]
        topics = [OffsetCommitRequestTopic(name=self._topic, partitions=partitions)]
        answer = line.ask(OffsetCommitRequest(group_id=group, topics=topics), 8)
        codes = {one.error_code for one in answer.topics[0].partitions}
        if codes & NOT_YET:
            line.ask(FindCoordinatorRequest(key=group), 3)  # which makes the topic of the offsets
            return
        assert codes == {0}, f"committing {number} for {group}: {codes}"
        self._told[group] = number

    def check(self, line: Line) -> None:
        for group, sent in self._sent.items():
            found = set(self._stored(line, group).values())
            assert len(found) == 1, f"one commit of {group} is there in part: {found}"
            (stored,) = found
            assert self._told[group] <= stored <= sent, f"{group}: {stored} is stored, {self._told[group]} was told"
            self._told[group] = self._sent[group] = stored

    def _stored(self, line: Line, group: str) -> dict[int, int]:
        topics = [OffsetFetchRequestTopic(name=self._topic, partition_indexes=list(self._partitions))]
        deadline = time.monotonic() + DEADLINE_S
        while True:
            answer = line.ask(OffsetFetchRequest(group_id=group, topics=topics), 5)
            if answer.error_code not in NOT_YET:
                break
            assert time.monotonic() < deadline, f"group {group} is not served: {answer.error_code}"
            if self._told[group] < 0:
                return {-1: -1}
        assert answer.error_code == 0
        return {one.partition_index: one.committed_offset for one in answer.topics[0].partitions}


class Topic(NamedTuple):
    """An administrator's knowledge of a topic."""

    partitions: int
    retention_ms: int
    values: tuple[bytes, ...]
    """The records of its first partition: those of an earlier topic of this name would show."""


class Administrator:
    """Creates, deletes and changes topics, some names again and again."""

    NAMES = tuple(f"topic-{number}" for number in range(8))

    def __init__(self) -> None:
        self._number = 0
        self._known: dict[str, Topic | None] = dict.fromkeys(self.NAMES)
        self._asked: tuple[str, Topic | None] | None = None

    def act(self, line: Line, chance: random.Random) -> None:
        self._number += 1
        name = chance.choice(self.NAMES)
        topic = self._known[name]
        if topic is None:
            self._settle(name, Topic(1 + self._number % 3, 1_000_000 + self._number, ()), self._create, line)
            return
        changes = [self._delete, self._extend, self._alter, self._write]
        change = chance.choice(changes if topic.partitions < 6 else [self._delete, self._alter])
        after = {
            self._delete: None,
            self._extend: topic._replace(partitions=topic.partitions + 1),
            self._alter: topic._replace(retention_ms=1_000_000 + self._number),
            self._write: topic._replace(values=(*topic.values, b"%d" % self._number)),
        }[change]
        self._settle(name, after, change, line)

    def check(self, line: Line) -> None:
        listed = line.ask(MetadataRequest(topics=None), 9).topics
        found = {one.name: len(one.partitions) for one in listed if one.name in self._known}
        for name, known in self._known.items():
            allowed = [known]
            if self._asked is not None and self._asked[0] == name:
                allowed.append(self._asked[1])
            actual = self._look(line, name, found[name]) if name in found else None
            assert actual in allowed, f"{name} is {actual}, not one of {allowed}"
            self._known[name] = actual
        self._asked = None

    def _settle(self, name: str, after: Topic | None, change: Any, line: Line) -> None:
        self._asked = (name, after)
        code = change(line, name, after or self._known[name])
        assert code == 0, f"{change.__name__} of {name}: {code}"
        self._known[name] = after
        self._asked = None

    def _create(self, line: Line, name: str, topic: Topic) -> int:
        configs = [
            CreatableTopicConfig(name="retention.ms", value=str(topic.retention_ms)),
            CreatableTopicConfig(name="file.delete.delay.ms", value="100"),
        ]
        new = CreatableTopic(name=name, num_partitions=topic.partitions, replication_factor=1, configs=configs)
        return int(line.ask(CreateTopicsRequest(topics=[new]), 5).topics[0].error_code)

    def _delete(self, line: Line, name: str, topic: Topic) -> int:
        return int(line.ask(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 4).responses[0].error_code)

    def _extend(self, line: Line, name: str, topic: Topic) -> int:
        wanted = CreatePartitionsTopic(name=name, count=topic.partitions, assignments=None)
        return int(line.ask(CreatePartitionsRequest(topics=[wanted], timeout_ms=10_000), 2).results[0].error_code)

    def _alter(self, line: Line, name: str, topic: Topic) -> int:
        config = IncrementalAlterableConfig(name="retention.ms", config_operation=SET, value=str(topic.retention_ms))
        resource = IncrementalAlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[config])
        return int(line.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0].error_code)

    def _write(self, line: Line, name: str, topic: Topic) -> int:
        line.produce(name, 0, [topic.values[-1]])
        return 0

    def _look(self, line: Line, name: str, partitions: int) -> Topic:
        wanted = DescribeConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=["retention.ms"]
        )
        result = line.ask(DescribeConfigsRequest(resources=[wanted]), 4).results[0]
        assert result.error_code == 0, f"configuration of {name}: {result.error_message}"
        for index in range(1, partitions):
            assert line.offset(name, index, LATEST) == 0, f"nobody wrote to {name}-{index}"
        return Topic(partitions, int(result.configs[0].value), tuple(line.read(name, 0).values()))


class Remover:
    """Writes numbered records to a topic of its own, and has the older half of them deleted now and then.

    A removal reaches the disk with a checkpoint, in Kafka too: after a kill some removed records may be back. Records
    that were not to be removed must be there.
    """

    BATCH = 20
    PADDING = bytes(200)

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._number = 0
        self._told: dict[int, bytes] = {}
        self._removed_to = 0

    def act(self, line: Line, chance: random.Random) -> None:
        if self._told and chance.random() < 0.1:
            self._remove(line)
            return
        values = [b"%d:" % (self._number + i) + self.PADDING for i in range(self.BATCH)]
        self._number += self.BATCH
        first = line.produce(self._topic, 0, values)
        self._told.update(enumerate(values, first))

    def _remove(self, line: Line) -> None:
        offsets = sorted(self._told)
        self._removed_to = max(self._removed_to, offsets[len(offsets) // 2])
        partition = DeleteRecordsPartition(partition_index=0, offset=self._removed_to)
        wanted = DeleteRecordsTopic(name=self._topic, partitions=[partition])
        answer = line.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=10_000), 2).topics[0].partitions[0]
        assert answer.error_code == 0, f"removing records below {self._removed_to}: {answer.error_code}"
        self._told = {offset: value for offset, value in self._told.items() if offset >= self._removed_to}

    def check(self, line: Line) -> None:
        start = line.offset(self._topic, 0, EARLIEST)
        assert start <= self._removed_to, f"begins at {start}, asked for was {self._removed_to}"
        found = line.read(self._topic, 0)
        assert list(found) == list(range(start, start + len(found))), "no gap"
        wrong = {o: value[:20] for o, value in self._told.items() if o >= self._removed_to and found.get(o) != value}
        assert wrong == {}, "records that are not where they were acknowledged to be"
        numbers = [int(value.split(b":")[0]) for value in found.values()]
        assert numbers == sorted(set(numbers)), "in order and once"
        self._told = {offset: value for offset, value in found.items() if offset >= self._removed_to}
