"""Stories of every client with transactions: commit and abort, a zombie, a time-out, a copy that is killed.

The other side is always confluent-kafka, which reads with read_committed and read_uncommitted what the stranger left.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compatibility.interop.swap_scene import read
from tests.compatibility.interop.transactor import Client, Program, Refused, Transactor
from tests.support.wait import DEADLINE_S, until

SETTINGS = {
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
}
SECONDS = 60.0
COPIED = 600
PER_TRANSACTION = 20


class Scene:
    """A client and a broker; the topics are new. `notices_time_outs`: the client fails a commit that comes too late."""

    def __init__(self, client: Client, bootstrap: str) -> None:
        self.client = client
        self.bootstrap = bootstrap
        self.notices_time_outs = True

    def topic(self, stem: str, partitions: int = 2) -> str:
        name = f"{stem}-{uuid.uuid4().hex[:8]}"
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(SECONDS)
        return name

    def transactor(self, transactional_id: str, **more: Any) -> Transactor:
        program = self.client.transactor(transactional_id, **more)
        program.initialised()
        return program

    def values(self, topic: str, partition: int, isolation: str = "read_committed") -> list[str]:
        found = read(self.bootstrap, [(topic, partition)], isolation)
        return [(record.value or b"").decode() for record in found[topic, partition]]

    def committed_offset(self, group: str, topic: str, partition: int = 0) -> int:
        """The stable offset; -1001 for none."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])]
        (found,) = admin.list_consumer_group_offsets(asked, require_stable=True)[group].result(SECONDS).topic_partitions
        return int(found.offset)

    # stories

    def commits_and_aborts(self) -> None:
        """Read committed shows what was committed, in order; an open transaction hides what stands behind it."""
        topic, group = self.topic("ledger"), f"group-{uuid.uuid4().hex[:8]}"
        one = self.transactor(f"{topic}-one")
        one.transaction(topic, "a0", "a1", "a2")
        one.transaction(topic, "b0", "b1", "b2", end="abort")
        one.transaction(topic, "c0", "c1")
        assert (self.values(topic, 0), self.values(topic, 1)) == (["a0", "a2", "c0"], ["a1", "c1"])

        other = self.transactor(f"{topic}-other")
        one.begin()
        one.send(topic, "d0")
        other.transaction(topic, "e0", "e1")
        assert (self.values(topic, 0), self.values(topic, 1)) == (["a0", "a2", "c0"], ["a1", "c1", "e1"])
        everything = ["a0", "a2", "b0", "b2", "c0", "d0", "e0"]
        assert self.values(topic, 0, "read_uncommitted") == everything
        one.offsets(group, topic, 5)
        one.commit()
        assert self.values(topic, 0) == ["a0", "a2", "c0", "d0", "e0"]
        assert self.committed_offset(group, topic) == 5

        one.begin()
        one.send(topic, "f0")
        one.offsets(group, topic, 9)
        one.abort()
        other.begin()
        other.send(topic, "g0")
        other.commit()
        assert self.values(topic, 0) == ["a0", "a2", "c0", "d0", "e0", "g0"]
        assert self.values(topic, 0, "read_uncommitted") == [*everything, "f0", "g0"]
        assert self.committed_offset(group, topic) == 5

    def fences_a_zombie(self) -> None:
        """A second producer of the same transactional id ends the transaction of the first, which may do no more."""
        topic = self.topic("fenced", 2)
        zombie = self.transactor(topic)
        zombie.transaction(topic, "a0", "a1")
        zombie.begin()
        zombie.send(topic, "lost")
        successor = self.transactor(topic)
        with pytest.raises(Refused):
            zombie.send(topic, "refused")
            zombie.commit()
        successor.transaction(topic, "b0", "b1")
        assert (self.values(topic, 0), self.values(topic, 1)) == (["a0", "b0"], ["a1", "b1"])
        assert self.values(topic, 0, "read_uncommitted") == ["a0", "lost", "b0"]

    def times_out(self) -> None:
        """A transaction that lasts too long is aborted by the coordinator; its records are never seen."""
        topic = self.topic("late", 2)
        slow = self.transactor(topic, timeout_ms=1500)
        slow.transaction(topic, "a0")
        slow.begin()
        slow.send(topic, "lost")
        producer = Producer({"bootstrap.servers": self.bootstrap})
        producer.produce(topic, b"plain", partition=0)
        assert producer.flush(SECONDS) == 0
        until(lambda: self.values(topic, 0) == ["a0", "plain"], "the coordinator to abort")
        with pytest.raises(Refused) if self.notices_time_outs else contextlib.nullcontext():
            slow.commit()
        assert self.values(topic, 0, "read_uncommitted") == ["a0", "lost", "plain"]
        self.transactor(topic).transaction(topic, "b0")
        assert self.values(topic, 0) == ["a0", "plain", "b0"]

    def copies_exactly_once(self) -> None:
        """Consume, transform, produce, with offsets in the transaction; killed in between, and a successor goes on."""
        source, target = self.topic("source"), self.topic("target")
        group = f"group-{uuid.uuid4().hex[:8]}"
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(COPIED):
            producer.produce(source, f"{number}", partition=number % 2)
        assert producer.flush(SECONDS) == 0
        task = {"topic": source, "target": target, "group": group, "count": PER_TRANSACTION}
        done = 0
        for share in (COPIED // 3, 2 * COPIED // 3):
            program = self.client.copier(f"{group}-copier", **task)
            while done < share:
                done += program.answer("the first copies")["copied"]
            program.kill()
        program = self.client.copier(f"{group}-copier", **task)

        def through() -> bool:
            return [self.committed_offset(group, source, partition) for partition in (0, 1)] == [COPIED // 2] * 2

        until(lambda: through() or _ended(program), "everything to be copied", 2 * DEADLINE_S)
        program.kill()
        for partition in (0, 1):
            found = self.values(target, partition)
            times = Counter(found)
            wanted = [f"{number}" for number in range(partition, COPIED, 2)]
            wrong = {value: times[value] for value in wanted if times[value] != 1}
            assert not wrong, f"partition {partition}: seen so many times: {wrong}"
            assert found == wanted
        assert sum(len(self.values(target, partition, "read_uncommitted")) for partition in (0, 1)) > COPIED


def _ended(program: Program) -> bool:
    code = program.process.poll()
    if code is not None:
        pytest.fail(f"the copier ended with code {code}: {program.last_words()}")
    return False


STORIES: dict[str, Callable[[Scene], None]] = {
    "commit, abort, an open transaction before a committed one, offsets of a group": Scene.commits_and_aborts,
    "a zombie is fenced": Scene.fences_a_zombie,
    "a transaction times out": Scene.times_out,
    "consume-transform-produce with the group's metadata, killed twice: each record once": Scene.copies_exactly_once,
}


@contextmanager
def scene(command: list[str], bootstrap: str, **told: Any) -> Iterator[Scene]:
    """A scene whose programs are gone at the end."""
    client = Client(command, bootstrap, **told)
    try:
        yield Scene(client, bootstrap)
    finally:
        client.close()
