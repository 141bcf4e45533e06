"""Transactions of a running broker without its protocol: a producer at the coordinator, and a read_committed view."""

from __future__ import annotations

import asyncio
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import ProducerIdAndEpoch
from kafkalite.record.batch import NewRecord, build_batch, parse_header
from kafkalite.record.record import read_records
from kafkalite.server.broker_server import BrokerServer

TIMEOUT_MS = 60_000


class Call:
    def __init__(self) -> None:
        self.result: Any = None

    def answer(self, result: Any) -> None:
        self.result = result


class UnconnectedProducer:
    """A transactional producer without a connection, in partition 0 of its topics."""

    def __init__(self, running: BrokerServer, name: str = "copy") -> None:
        self.running = running
        self.name = name
        self.ids = ProducerIdAndEpoch(-1, -1)
        self.sequence = 0

    async def init(self) -> ErrorCode:
        call = Call()
        self.running.transactions.init_producer_id(self.name, TIMEOUT_MS, None, call)
        for _ in range(100):
            if call.result is None:
                await asyncio.sleep(0.01)
        self.ids, self.sequence = ProducerIdAndEpoch(*call.result[1:]), 0
        return ErrorCode(call.result.error)

    def add(self, *partitions: tuple[str, int]) -> ErrorCode:
        call = Call()
        self.running.transactions.add_partitions(self.name, *self.ids, partitions or [("t", 0)], call)
        return ErrorCode(call.result)

    def send(self, value: bytes, topic: str = "t", *, verifies: bool = True) -> None:
        partition = self.running.replica_manager.require(topic, 0)
        batch = build_batch(
            [NewRecord(None, value, timestamp=1)],
            producer_id=self.ids.producer_id,
            producer_epoch=self.ids.producer_epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        guard = partition.producers.begin_verification(*self.ids, self.sequence) if verifies else None
        partition.append(memoryview(batch), 1, 9, transactional=True, guard=guard)
        self.sequence += 1

    def end(self, *, commit: bool, version: int = 0) -> ErrorCode:
        call = Call()
        self.running.transactions.end_transaction(
            self.name, *self.ids, call, commit=commit, transaction_version=version
        )
        if not call.result.error:
            if call.result[1:] != self.ids:
                self.sequence = 0
            self.ids = ProducerIdAndEpoch(*call.result[1:])
        return ErrorCode(call.result.error)


def state(running: BrokerServer, name: str = "copy") -> str:
    transaction, error = running.transactions.describe(name)
    return transaction.state.value if transaction is not None else error.name


def committed(running: BrokerServer, topic: str = "t") -> list[bytes]:
    """The records that a read_committed consumer gets."""
    partition = running.replica_manager.require(topic, 0)
    end_offset = partition.last_stable_offset
    aborted = {(each.producer_id, each.first_offset) for each in partition.log.transactions.aborted(0, end_offset)}
    values: list[bytes] = []
    dropping: set[int] = set()
    for batch in partition.log.batches(0):
        header = parse_header(batch)
        if header.base_offset >= end_offset:
            break
        if header.is_control:
            dropping.discard(header.producer_id)
            continue
        if (header.producer_id, header.base_offset) in aborted:
            dropping.add(header.producer_id)
        if header.producer_id not in dropping or not header.is_transactional:
            values += [record.value or b"" for record in read_records(batch)]
    return values
