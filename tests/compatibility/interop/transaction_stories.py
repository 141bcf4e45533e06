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

    def __init__(self, client: Client, broker: Any) -> None:
        self.client = client
        self.broker = broker
        self.bootstrap = broker.bootstrap
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
        copy = Copy(self)
        for share in (COPIED // 3, 2 * COPIED // 3):
            program = copy.start()
            copy.until_copied(program, share)
            program.kill()
        copy.finish()
        everything = sum(len(self.values(copy.target, partition, "read_uncommitted")) for partition in (0, 1))
        assert everything > COPIED, "some were aborted"

    def survives_the_broker(self) -> None:
        """The broker is killed and started again twice while the client copies."""
        copy = Copy(self)
        program = copy.start(session_ms=45_000)
        for share in (COPIED // 3, 2 * COPIED // 3):
            copy.until_copied(program, share)
            self.broker.kill()
            self.broker.start()
        copy.finish(program)


class Copy:
    """Two topics and a group. The source has committed and aborted transactions; its committed values are numbers."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.source, self.target = scene.topic("source"), scene.topic("target")
        self.group = f"group-{uuid.uuid4().hex[:8]}"
        self.done = 0
        producer = Producer({"bootstrap.servers": scene.bootstrap, "transactional.id": self.source})
        producer.init_transactions(SECONDS)
        for first in range(0, COPIED, 100):
            for values, end in (
                ([f"aborted {first + number}" for number in range(30)], producer.abort_transaction),
                ([f"{number}" for number in range(first, first + 100)], producer.commit_transaction),
            ):
                producer.begin_transaction()
                for number, value in enumerate(values):
                    producer.produce(self.source, value, partition=number % 2)
                assert producer.flush(SECONDS) == 0
                end(SECONDS)
        places = [(self.source, partition) for partition in (0, 1)]
        found = read(scene.bootstrap, places, "read_committed")
        self.ends = [found[place][-1].offset + 1 for place in places]

    def start(self, session_ms: int = 6000) -> Program:
        task = {"topic": self.source, "target": self.target, "group": self.group, "count": PER_TRANSACTION}
        return self.scene.client.copier(f"{self.group}-copier", session_ms=session_ms, **task)

    def until_copied(self, program: Program, share: int) -> None:
        while self.done < share:
            self.done += program.answer("the copies")["copied"]

    def finish(self, program: Program | None = None) -> None:
        """Until all is copied, by this program or a new one: every value stands in the target once, in order."""
        running = program or self.start()

        def through() -> bool:
            committed = [self.scene.committed_offset(self.group, self.source, partition) for partition in (0, 1)]
            return committed == self.ends

        until(lambda: through() or _ended(running), "everything to be copied", 2 * DEADLINE_S)
        running.kill()
        for partition in (0, 1):
            found = self.scene.values(self.target, partition)
            times = Counter(found)
            wanted = [f"{number}" for number in range(partition, COPIED, 2)]
            wrong = {value: times[value] for value in {*wanted, *found} if times[value] != (value in wanted)}
            assert not wrong, f"partition {partition}: seen so many times: {wrong}"
            assert found == wanted


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
    "the broker is killed twice while the client copies: each record once": Scene.survives_the_broker,
}


@contextmanager
def scene(command: list[str], broker: Any, **told: Any) -> Iterator[Scene]:
    """A scene whose programs are gone at the end."""
    client = Client(command, broker.bootstrap, **told)
    try:
        yield Scene(client, broker)
    finally:
        client.close()
