"""The producer against a broker of one page that keeps sequences, fails at will, and forgets to answer."""

from __future__ import annotations

import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.client.cluster_client import Retries, WriteFailed
from kafkalite.client.producer.options import ProducerOptions
from kafkalite.client.producer.producer import Producer, RecordRun
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.record.batch import NewRecord, encode_records, parse_header
from kafkalite.record.record import read_records

pytest.importorskip("pyarrow", reason="needs the extra 'spark'")

FAULTS = ("none", "none", "none", "refused", "lost before", "lost after", "timed out after")


class World:
    """Two brokers' logs; a fault is drawn for every produce while `faults` lasts."""

    def __init__(self, seed: int = 0, faults: int = 0, codes: tuple[int, ...] = (6, 5, 19)) -> None:
        self.random = random.Random(seed)
        self.faults = faults
        self.codes = codes
        self.logs: dict[tuple[str, int], list[bytes | None]] = {}
        self.next_sequences: dict[tuple[str, int], int] = {}
        self.now_s = 0.0
        self.leaders: dict[tuple[str, int], int] = {}
        self.in_flight_max = 0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def append(self, partition: tuple[str, int], parts: list[Any]) -> int:
        data = b"".join(parts)
        header = parse_header(data)
        expected = self.next_sequences.get(partition, header.base_sequence)  # of an unknown producer any is the first
        if header.base_sequence < expected:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if header.base_sequence > expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.next_sequences[partition] = header.last_sequence + 1
        self.logs.setdefault(partition, []).extend(record.value for record in read_records(data))
        return ErrorCode.NONE

    # --- the cluster as the producer knows it

    def refresh(self, topics: Any) -> dict[str, int]:
        self.leaders.update({("t", index): self.random.randrange(2) for index in range(3)})
        self.clients = getattr(self, "clients", {})
        return dict.fromkeys(topics, 0)

    def leader(self, broker_id: int) -> Connection:
        if broker_id not in self.clients or self.clients[broker_id].is_lost:
            self.clients[broker_id] = Connection(self)
        return self.clients[broker_id]

    def leader_of(self, partition: tuple[str, int]) -> int:
        return self.leaders[partition]

    def partition_count(self, topic: str) -> int:
        return 3

    def max_batch_bytes(self, topic: str) -> int:
        return 1_000_000

    def init_producer_id(self, transactional_id: str | None, timeout_ms: int) -> tuple[int, int, int]:
        return 0, 77, 0


class Connection:
    """Requests are performed when they are sent; a lost connection performs none any more."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.is_lost = False
        self.responses: deque[Any] = deque()

    def send(self, request: Any, version: int) -> None:
        world = self.world
        fault = "none"
        if world.faults and (fault := world.random.choice(FAULTS)) != "none":
            world.faults -= 1
        if fault == "lost before":
            self.is_lost = True
            raise Unanswered("lost the connection")
        topics = []
        for topic in request.topic_data:
            answers = []
            for one in topic.partition_data:
                code = world.random.choice(world.codes) if fault == "refused" else world.append(
                    (topic.name, one.index), one.records
                )  # fmt: skip
                code = ErrorCode.REQUEST_TIMED_OUT if fault == "timed out after" else code
                answers.append(SimpleNamespace(index=one.index, error_code=code, error_message=None))
            topics.append(SimpleNamespace(name=topic.name, partition_responses=answers))
        self.responses.append(None if fault == "lost after" else SimpleNamespace(responses=topics))
        world.in_flight_max = max(world.in_flight_max, len(self.responses))

    def receive(self, kind: Any, version: int) -> Any:
        response = None if self.is_lost else self.responses.popleft()
        if response is None:
            self.is_lost = True
            raise Unanswered("lost the connection")
        return response


def producer(world: World) -> Producer:
    retries = Retries(10, 0.1, lambda: world.now_s, world.sleep)
    made = Producer(ProducerOptions("nowhere:1", max_request_bytes=300), world, retries)  # type: ignore[arg-type]
    made.open_topic("t")
    return made


def run_of(*values: bytes) -> RecordRun:
    records = encode_records([NewRecord(None, value) for value in values], range(len(values)), -1)
    return RecordRun(memoryview(records), len(values), -1, -1)


@given(st.integers(0, 1 << 30), st.integers(0, 25))
@settings(deadline=None, max_examples=200)
def test_each_row_is_there_once_and_in_order_whatever_fails(seed: int, faults: int) -> None:
    world = World(seed, faults)
    loader = producer(world)
    written: dict[tuple[str, int], list[bytes]] = {}
    for number in range(60):
        partition = ("t", world.random.randrange(3))
        values = [b"%d" % (number * 10 + each) for each in range(world.random.randrange(1, 5))]
        written.setdefault(partition, []).extend(values)
        loader.add(partition, run_of(*values))
        if number % 7 == 0:
            loader.send()
    loader.flush()
    assert world.logs == written
    assert world.in_flight_max <= 5


def test_a_refusal_that_will_not_pass_is_told() -> None:
    world = World(faults=1, codes=(ErrorCode.INVALID_TIMESTAMP,))
    world.random.choice = lambda choices: "refused" if choices is FAULTS else choices[0]  # type: ignore[method-assign]
    loader = producer(world)
    loader.add(("t", 1), run_of(b"row"))
    with pytest.raises(WriteFailed, match="refuses a batch for t-1: INVALID_TIMESTAMP"):
        loader.flush()


def test_a_fault_that_does_not_pass_ends_with_the_delivery_timeout() -> None:
    world = World(faults=1 << 30, codes=(ErrorCode.NOT_ENOUGH_REPLICAS,))
    world.random.choice = lambda choices: "refused" if choices is FAULTS else choices[0]  # type: ignore[method-assign]
    loader = producer(world)
    loader.add(("t", 2), run_of(b"row"))
    with pytest.raises(WriteFailed, match=r"for 12\d s \(kafka.delivery.timeout.ms\): t-2: NOT_ENOUGH_REPLICAS"):
        loader.flush()
