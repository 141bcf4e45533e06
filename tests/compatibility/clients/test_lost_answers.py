"""A wire between clients and brokers that loses answers and goes dead, and what must hold all the same.

`Wire` is a proxy that knows just enough of the protocol: frames, the API key of a request, and which answer belongs
to it. It has a port for each broker and passes everything on, except that it tells the client its own port wherever a
broker tells that of one, so that the client stays on it. On demand it swallows the answer to a request (which the
broker has then carried out), cuts that connection and may refuse to connect again; or it swallows every request in
silence. An idempotent producer must not write twice.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.wait import DEADLINE_S

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 0, 1, 2, 3, 8, 9, 10
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP, INIT_PRODUCER_ID, DESCRIBE_CLUSTER = 11, 12, 13, 14, 22, 60
Asked = dict[int, int]  # correlation id -> API key
TELL_ADDRESSES = {METADATA, FIND_COORDINATOR, DESCRIBE_CLUSTER}


class Wire:
    """The proxy, on a loop in a thread of its own. Changes from outside are single assignments that the loop reads."""

    def __init__(self, bootstrap: str) -> None:
        brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=DEADLINE_S).brokers.values()
        self.ports = dict.fromkeys([int(bootstrap.rsplit(":", 1)[1]), *(broker.port for broker in brokers)], 0)
        self.to_lose: Counter[int] = Counter()
        self.lost: Counter[int] = Counter()
        self.silent = False
        self.refusing = False
        self.refuse_after_loss = False
        self.connections: set[asyncio.StreamWriter] = set()
        self.loop = asyncio.new_event_loop()
        self.ended = asyncio.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.serve(),), name="wire")
        self.listening = threading.Event()
        self.thread.start()
        assert self.listening.wait(DEADLINE_S), "the wire does not listen"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{next(iter(self.ports.values()))}"

    def lose(self, api: int, times: int = 1) -> None:
        self.to_lose[api] += times

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.ended.set)
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive(), "the wire's thread goes on"
        self.loop.close()

    async def serve(self) -> None:
        servers = []
        for port in self.ports:
            servers.append(await asyncio.start_server(functools.partial(self.connected, port), "127.0.0.1", 0))
            self.ports[port] = servers[-1].sockets[0].getsockname()[1]
        self.listening.set()
        await self.ended.wait()
        for server in servers:
            server.close()
        passing = asyncio.all_tasks() - {asyncio.current_task()}
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)
        for writer in self.connections:
            writer.transport.abort()

    async def connected(self, broker_port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        self.connections.add(writer)
        try:
            if self.refusing:
                return
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", broker_port)
            ends.append(broker_writer)
            self.connections.add(broker_writer)
            asked: Asked = {}
            ways = [
                asyncio.create_task(self.pass_requests(reader, broker_writer, asked)),
                asyncio.create_task(self.pass_answers(broker_reader, writer, asked)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:  # the broker is away: so is the wire
            pass
        finally:
            for end in ends:
                end.transport.abort()
                self.connections.discard(end)

    async def pass_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        while True:
            frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            api, _, correlation_id = struct.unpack_from(">hhi", frame)
            asked[correlation_id] = api
            if not self.silent:
                writer.write(struct.pack(">i", len(frame)) + frame)
                await writer.drain()

    async def pass_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        while True:
            frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            api = asked.pop(struct.unpack_from(">i", frame)[0])
            if self.to_lose[api]:
                self.to_lose[api] -= 1
                self.lost[api] += 1
                self.refusing = self.refuse_after_loss
                return
            if api in TELL_ADDRESSES:
                for host, (theirs, ours) in itertools.product((b"127.0.0.1", b"localhost"), self.ports.items()):
                    frame = frame.replace(host + struct.pack(">i", theirs), host + struct.pack(">i", ours))
            if not self.silent:
                writer.write(struct.pack(">i", len(frame)) + frame)
                await writer.drain()


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Wire]:
    wire = Wire(bootstrap)
    yield wire
    wire.close()


@pytest.fixture
def over_the_wire(wire: Wire, confluent_at: Callable[[str], Any]) -> Any:
    """confluent-kafka's clients that know the broker by the wire's address only."""
    return confluent_at(wire.bootstrap)


def produce_in_batches_of_one(
    producer: Any, wire: Wire, topic: str, count: int, losses: set[int]
) -> list[tuple[bytes, int]]:
    """Sends numbered records, a batch each, losing an answer at some; (value, offset) of each acknowledgement."""
    answers: list[tuple[Any, Any]] = []
    for n in range(count):
        if n in losses:
            wire.lose(PRODUCE)
        producer.produce(topic, b"%d" % n, on_delivery=lambda error, message: answers.append((error, message)))
        if n in losses:
            assert producer.flush(15) == 0, f"no acknowledgement of record {n} after its answer was lost"
    assert producer.flush(15) == 0
    assert [error for error, _ in answers if error] == []
    return [(message.value(), message.offset()) for _, message in answers]


@pytest.mark.parametrize("in_flight", [1, 5])
def test_librdkafka_writes_once_though_answers_are_lost(
    topic: str, wire: Wire, over_the_wire: Any, confluent: Any, in_flight: int
) -> None:
    producer = over_the_wire.producer(
        enable_idempotence=True, max_in_flight=in_flight, batch_num_messages=1, retry_backoff_ms=50
    )
    acknowledged = produce_in_batches_of_one(producer, wire, topic, 60, losses={0, 20, 21, 40})

    assert wire.lost[PRODUCE] == 4
    written = [(m.value(), m.offset()) for m in confluent.read(topic, 60)]
    assert written == [(b"%d" % n, n) for n in range(60)]
    assert acknowledged == written, "a repeated batch is acknowledged with the offset it was first given"
    consumer = confluent.consumer()
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (0, 60)


def test_a_pipeline_of_batches_whose_answers_are_lost_is_written_once(
    topic: str, wire: Wire, over_the_wire: Any, confluent: Any
) -> None:
    """The answers of the batches behind the lost one go down with the connection; all of them are sent again."""
    producer = over_the_wire.producer(enable_idempotence=True, batch_num_messages=10, retry_backoff_ms=20)
    for first in range(0, 5000, 1000):
        wire.lose(PRODUCE)
        for n in range(first, first + 1000):
            producer.produce(topic, b"%d" % n)
        assert producer.flush(15) == 0
    assert wire.lost[PRODUCE] == 5
    assert [m.value() for m in confluent.read(topic, 5000)] == [b"%d" % n for n in range(5000)]
    assert confluent.consumer().get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (0, 5000)


def test_without_idempotence_a_lost_answer_does_write_twice(
    topic: str, wire: Wire, over_the_wire: Any, confluent: Any
) -> None:
    """The control: the wire loses what it says it loses."""
    producer = over_the_wire.producer(
        enable_idempotence=False, acks="all", batch_num_messages=1, max_in_flight=1, retry_backoff_ms=50
    )
    produce_in_batches_of_one(producer, wire, topic, 10, losses={4})
    written = [m.value() for m in confluent.read(topic, 11)]
    assert sorted(Counter(written).values()) == [1] * 9 + [2], written
    assert list(dict.fromkeys(written)) == [b"%d" % n for n in range(10)]


def test_kafka_python_writes_once_though_answers_are_lost(
    topic: str, wire: Wire, kafka_python: Any, confluent: Any
) -> None:
    producer = kafka_python.producer(
        bootstrap_servers=wire.bootstrap, enable_idempotence=True, acks="all", retry_backoff_ms=50
    )
    offsets = []
    for n in range(20):
        if n in (0, 7, 8):
            wire.lose(PRODUCE)
        offsets.append(producer.send(topic, b"%d" % n).get(timeout=DEADLINE_S).offset)
    assert wire.lost[PRODUCE] == 3
    assert offsets == list(range(20))
    assert [m.value() for m in confluent.read(topic, 20)] == [b"%d" % n for n in range(20)]
    assert confluent.consumer().get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (0, 20)


def test_aiokafka_writes_once_though_answers_are_lost(topic: str, wire: Wire, confluent: Any) -> None:
    async def story() -> list[int]:
        offsets = []
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=wire.bootstrap, enable_idempotence=True, retry_backoff_ms=50
        ) as producer:
            for n in range(20):
                if n in (0, 7, 8):
                    wire.lose(PRODUCE)
                offsets.append((await producer.send_and_wait(topic, b"%d" % n)).offset)
        return offsets

    offsets = asyncio.run(asyncio.wait_for(story(), DEADLINE_S))
    assert wire.lost[PRODUCE] == 3
    assert offsets == list(range(20))
    assert [m.value() for m in confluent.read(topic, 20)] == [b"%d" % n for n in range(20)]
    assert confluent.consumer().get_watermark_offsets(TopicPartition(topic, 0), timeout=DEADLINE_S) == (0, 20)


def test_the_broker_knows_a_repeated_batch_even_after_a_restart(
    own_broker: Callable[..., Any],
    create_topic: Callable[..., str],
    confluent_at: Callable[[str], Any],
    until: Callable[..., Any],
) -> None:
    broker = own_broker()
    topic = create_topic(broker.bootstrap)
    wire = Wire(broker.bootstrap)
    try:
        clients = confluent_at(wire.bootstrap)
        producer = clients.producer(
            enable_idempotence=True, retry_backoff_ms=50, reconnect_backoff_max_ms=100, batch_num_messages=1
        )
        answers: list[Any] = []

        def enter(error: Any, message: Any) -> None:
            answers.append((error, message.offset()))

        def produce(n: int) -> None:
            producer.produce(topic, b"%d" % n, on_delivery=enter)

        for n in range(10):
            produce(n)
        assert producer.flush(15) == 0
        wire.refuse_after_loss = True
        wire.lose(PRODUCE)
        produce(10)
        until(lambda: producer.poll(0.01) is not None and wire.lost[PRODUCE], "the answer to be lost")

        broker.restart()
        wire.refusing = wire.refuse_after_loss = False
        produce(11)

        assert producer.flush(15) == 0
        assert answers == [(None, n) for n in range(12)]
        read = confluent_at(broker.bootstrap).read(topic, 12)
        assert [m.value() for m in read] == [b"%d" % n for n in range(12)]
        clients.close()
    finally:
        wire.close()


@pytest.mark.parametrize(
    "api",
    [
        pytest.param(api, id=name.lower())
        for name, api in {
            "METADATA": METADATA,
            "FETCH": FETCH,
            "LIST_OFFSETS": LIST_OFFSETS,
            "FIND_COORDINATOR": FIND_COORDINATOR,
            "JOIN_GROUP": JOIN_GROUP,
            "SYNC_GROUP": SYNC_GROUP,
            "HEARTBEAT": HEARTBEAT,
            "OFFSET_FETCH": OFFSET_FETCH,
            "OFFSET_COMMIT": OFFSET_COMMIT,
            "INIT_PRODUCER_ID": INIT_PRODUCER_ID,
        }.items()
    ],
)
def test_any_answer_may_be_lost_once(
    topic: str, wire: Wire, over_the_wire: Any, unique: Callable[[str], str], until: Callable[..., Any], api: int
) -> None:
    quick = {"retry_backoff_ms": 50, "reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100}
    wire.lose(api)
    sent = over_the_wire.send(topic, [{"value": b"%d" % n} for n in range(20)], enable_idempotence=True, **quick)
    assert [m.offset() for m in sent] == list(range(20))
    group, partition = unique("lossy"), TopicPartition(topic, 0)
    consumer = over_the_wire.consumer(group_id=group, session_timeout_ms=6000, **quick)
    consumer.subscribe([topic])
    seen: list[bytes] = []

    def story_told() -> bool:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen.append(message.value())
        return len(seen) >= 20

    until(story_told, "20 records")
    if api == LIST_OFFSETS:
        consumer.get_watermark_offsets(partition, timeout=DEADLINE_S)
    consumer.commit(asynchronous=False)
    until(lambda: consumer.poll(0.05) is None and wire.lost[api] == 1, "the answer to be lost")
    assert seen == [b"%d" % n for n in range(20)]
    assert consumer.committed([partition], timeout=DEADLINE_S)[0].offset == 20


def test_a_member_that_falls_silent_is_replaced_when_its_session_ends(
    topic: str,
    wire: Wire,
    over_the_wire: Any,
    confluent: Any,
    unique: Callable[[str], str],
    until: Callable[..., Any],
    shortest_session_ms: int,
) -> None:
    group = unique("silent")
    settings = {"group_id": group, "session_timeout_ms": shortest_session_ms, "heartbeat_interval_ms": 100}
    silent = over_the_wire.consumer(**settings)
    silent.subscribe([topic])
    until(lambda: silent.poll(0.05) or silent.assignment(), "the first member to be assigned")
    heir = confluent.consumer(**settings)
    heir.subscribe([topic])

    wire.silent = True

    patience = 3 * shortest_session_ms / 1000 + 10
    until(lambda: heir.poll(0.05) or heir.assignment(), "the partition to pass on", seconds=patience)
    told = confluent.admin().describe_consumer_groups([group])[group].result(DEADLINE_S)
    assert len(told.members) == 1
    wire.silent = False
    until(lambda: silent.poll(0.05) is None and not silent.assignment(), "the silent member to learn that it is out")
