"""Clients of a soak besides the fleet: an administrator, and fetches that wait for nothing.

Both work in a thread of their own until they are told to stop, and remember what went wrong.
"""

from __future__ import annotations

import asyncio
import logging
import random
import struct
import threading
from collections.abc import Callable

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench import wire

LOG = logging.getLogger("librdkafka-of-the-soak")
LOG.addHandler(logging.NullHandler())
LOG.propagate = False
ANSWER_S = 30.0


class Visitor:
    """Does its `turn` every `pause_s` until `stop`."""

    def __init__(self, pause_s: float) -> None:
        self.turns = 0
        self.failures: list[str] = []
        self._pause_s = pause_s
        self._told = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._told.set()
        self._thread.join(2 * ANSWER_S)

    def turn(self) -> None:
        raise NotImplementedError

    def _run(self) -> None:
        while not self._told.wait(self._pause_s):
            try:
                self.turn()
            except Exception as failure:
                self.failures.append(f"{type(self).__name__} in turn {self.turns}: {failure!r}")
            self.turns += 1


class Administrator(Visitor):
    """Creates a topic, has a group of its own read it, deletes both; and removes old records of `topic`."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, groups: list[str], pause_s: float = 2.0) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LOG)
        self._topic = topic
        self._partitions = partitions
        self._groups = groups
        self.records_removed = 0
        super().__init__(pause_s)

    def stop(self) -> None:
        super().stop()
        del self._admin  # a client of this library leaves when nobody refers to it any more

    def turn(self) -> None:
        self._brief_topic(f"brief-{self.turns}")
        self._remove_what_every_group_has_read()

    def _brief_topic(self, name: str) -> None:
        admin = self._admin
        admin.create_topics([NewTopic(name, 3, 1)])[name].result(ANSWER_S)
        producer = Producer({"bootstrap.servers": self._bootstrap}, logger=LOG)
        for number in range(30):
            producer.produce(name, b"%d" % number, partition=number % 3)
        if producer.flush(ANSWER_S):
            raise RuntimeError("records for a new topic got no answer")
        settings = {"bootstrap.servers": self._bootstrap, "group.id": name, "enable.auto.commit": False}
        reader = Consumer(settings, logger=LOG)
        try:
            reader.assign([TopicPartition(name, 0, 0)])
            if len(reader.consume(10, ANSWER_S)) != 10:
                raise RuntimeError("records of a new topic did not come back")
            reader.commit(asynchronous=False)
        finally:
            reader.close()
        admin.delete_consumer_groups([name])[name].result(ANSWER_S)
        admin.delete_topics([name])[name].result(ANSWER_S)

    def _remove_what_every_group_has_read(self) -> None:
        done = dict.fromkeys(range(self._partitions), 1 << 62)
        for group in self._groups:
            asked = ConsumerGroupTopicPartitions(group, [TopicPartition(self._topic, p) for p in done])
            try:
                found = self._admin.list_consumer_group_offsets([asked])[group].result(ANSWER_S)
            except KafkaException:
                return  # its first member has yet to come
            for one in found.topic_partitions:
                done[one.partition] = min(done[one.partition], max(one.offset, 0))
        doomed = [TopicPartition(self._topic, p, offset) for p, offset in done.items() if offset > 0]
        for future in self._admin.delete_records(doomed).values() if doomed else ():
            future.result(ANSWER_S)
        self.records_removed = sum(one.offset for one in doomed)


class Pollers(Visitor):
    """Connections that wait for records of a topic that gets none; now and then one goes in the midst of it."""

    def __init__(self, bootstrap: str, topic: str, count: int) -> None:
        self._address = wire.split_host(bootstrap)
        self._frame = wire.fetch_frame(topic, 0, 0, 1 << 20, max_wait_ms=2_000)
        self._count = count
        self._chance = random.Random(count)
        self.answers = 0
        self.departures = 0
        super().__init__(0.0)

    def turn(self) -> None:
        """The whole life of all of them: returns when `stop` was called."""
        asyncio.run(self._all())

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as pollers:
            for _ in range(self._count):
                pollers.create_task(self._poll())

    async def _poll(self) -> None:
        while not self._told.is_set():
            reader, writer = await asyncio.open_connection(*self._address)
            try:
                await self._ask(reader, writer)
            finally:
                writer.close()
            self.departures += 1

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while not self._told.is_set():
            writer.write(self._frame)
            patience_s = self._chance.uniform(0, 2) if self._chance.random() < 0.1 else ANSWER_S
            try:
                async with asyncio.timeout(patience_s):
                    await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            except TimeoutError:
                if patience_s == ANSWER_S:
                    raise
                return
            self.answers += 1


def ask_until(done: Callable[[], bool], seconds: float, pause_s: float = 0.5) -> bool:
    """Whether the answer became yes within `seconds`."""
    clock = threading.Event()
    timer = threading.Timer(seconds, clock.set)
    timer.start()
    try:
        while not done():
            if clock.wait(pause_s):
                return done()
        return True
    finally:
        timer.cancel()
