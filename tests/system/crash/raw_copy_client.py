"""A transactional client of transaction.version=2 (KIP-890), which no client library here speaks: the broker adds
partitions to a transaction when records and offsets arrive, and each end of a transaction gives the next epoch.

Every request is sent again, unchanged, until there is an answer to it that is no passing error.
"""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.transactions import EndTxnRequest, InitProducerIdRequest
from kafkalite.record.batch import NewRecord, build_batch, iter_batches
from kafkalite.record.record import read_records
from tests.system.crash.copy_clients import RECORDS_MAX, TRANSACTION_TIMEOUT_MS, Abortable, InputRecord
from tests.system.crash.crash_line import Line

GROUP, TRANSACTION = 0, 1
PAUSE_S = 0.02
COMPLAINS_S = 10.0
PASSING = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}


class Fenced(Exception):
    """Another producer has the transactional id."""


class RawCopyClient:
    def __init__(self, bootstrap: str, name: str, source: str, target: str) -> None:
        self.name = name
        self.source = source
        self.target = target
        self._bootstrap = [int(address.rpartition(":")[2]) for address in bootstrap.split(",")]
        self._lines: dict[int, Line] = {}
        self._ports: dict[object, int] = {}  # of leaders and coordinators
        self._ids: dict[str, int] = {}
        self._sequences: dict[int, int] = defaultdict(int)
        self._values: dict[int, list[bytes]] = defaultdict(list)
        self._positions: dict[int, int] = {}

    def open(self) -> None:
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        self._take_ids(self._ask(TRANSACTION, request, 5, lambda answer: answer.error_code))
        self.rewind()

    def poll(self) -> list[InputRecord]:
        index = random.choice(list(self._positions))
        wanted = FetchPartition(partition=index, fetch_offset=self._positions[index], partition_max_bytes=1 << 14)
        topics = [FetchTopic(topic=self.source, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=20, min_bytes=1, isolation_level=1, topics=topics)
        answer = self._ask((self.source, index), request, 11, lambda it: it.responses[0].partitions[0].error_code)
        found = [
            InputRecord(index, record.offset, record.value or b"")
            for _, batch in iter_batches(memoryview(answer.responses[0].partitions[0].records or b""))
            for record in read_records(batch)
            if record.offset >= self._positions[index]
        ]
        found = found[: random.randint(1, RECORDS_MAX)]
        if found:
            self._positions[index] = found[-1].offset + 1
        return found

    def begin(self) -> None:
        self._values.clear()

    def send(self, partition: int, value: bytes) -> None:
        self._values[partition].append(value)

    def flush(self) -> None:
        for index, values in list(self._values.items()):
            now_ms = time.time_ns() // 1_000_000
            batch = build_batch(
                [NewRecord(None, value, timestamp=now_ms) for value in values],
                **self._ids,
                base_sequence=self._sequences[index],
                transactional=True,
            )
            data = PartitionProduceData(index=index, records=memoryview(batch))
            topic = TopicProduceData(name=self.target, partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic], transactional_id=self.name)
            self._ask((self.target, index), request, 12, lambda it: it.responses[0].partition_responses[0].error_code)
            self._sequences[index] += len(values)
            del self._values[index]

    def offer_offsets(self, next_offsets: dict[int, int]) -> None:
        partitions = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            for index, offset in next_offsets.items()
        ]
        topics = [TxnOffsetCommitRequestTopic(name=self.source, partitions=partitions)]
        request = TxnOffsetCommitRequest(transactional_id=self.name, group_id=self.name, topics=topics, **self._ids)
        self._ask(GROUP, request, 5, lambda it: max(each.error_code for each in it.topics[0].partitions))

    def commit(self) -> None:
        self.flush()
        self._end(commit=True)

    def abort(self) -> None:
        self._values.clear()
        self._end(commit=False)

    def rewind(self) -> None:
        answer = self._ask_any(MetadataRequest(topics=[MetadataRequestTopic(name=self.source)]), 9)
        indexes = [each.partition_index for each in answer.topics[0].partitions]
        topics = [OffsetFetchRequestTopic(name=self.source, partition_indexes=indexes)]
        groups = [OffsetFetchRequestGroup(group_id=self.name, topics=topics)]

        def error(answer: Any) -> int:
            group = answer.groups[0]
            return int(group.error_code or max(each.error_code for each in group.topics[0].partitions))

        answer = self._ask(GROUP, OffsetFetchRequest(groups=groups, require_stable=True), 8, error)
        found = answer.groups[0].topics[0].partitions
        self._positions = {each.partition_index: max(each.committed_offset, 0) for each in found}

    def close(self) -> None:
        for line in self._lines.values():
            line.close()

    def is_fencing(self, error: Exception) -> bool:
        return isinstance(error, Fenced)

    def _end(self, *, commit: bool) -> None:
        request = EndTxnRequest(transactional_id=self.name, committed=commit, **self._ids)
        self._take_ids(self._ask(TRANSACTION, request, 5, lambda answer: answer.error_code))

    def _take_ids(self, answer: Any) -> None:
        """Sequence numbers begin anew with each epoch."""
        self._ids = {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
        self._sequences.clear()

    def _ask(self, whom: object, request: Any, version: int, error: Callable[[Any], int]) -> Any:
        """`whom`: the leader of a partition, or the coordinator of this type."""
        complains_at = time.monotonic() + COMPLAINS_S
        while True:
            try:
                if (port := self._ports.get(whom)) is None:
                    port = self._ports[whom] = self._find(whom)
                answer = self._ask_at(port, request, version)
            except OSError:
                code = ErrorCode.NOT_COORDINATOR
            else:
                code = ErrorCode(error(answer))
            if code == ErrorCode.NONE:
                return answer
            if code in FENCED:
                raise Fenced(f"{type(request).__name__}: {code.name}")
            if code == ErrorCode.TRANSACTION_ABORTABLE:
                raise Abortable(f"{type(request).__name__}: {code.name}")
            assert code in PASSING, f"{request}: {code.name}"
            if time.monotonic() > complains_at:
                print(f"after {COMPLAINS_S} s: {code.name} for {request}", file=sys.stderr, flush=True)
                complains_at += COMPLAINS_S
            self._ports.pop(whom, None)
            time.sleep(PAUSE_S)

    def _find(self, whom: object) -> int:
        if isinstance(whom, tuple):
            topic, index = whom
            answer = self._ask_any(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
            leaders = {each.partition_index: each.leader_id for each in answer.topics[0].partitions}
            ports = {broker.node_id: int(broker.port) for broker in answer.brokers}
            if leaders.get(index) not in ports:
                raise OSError("the partition has no leader")
            return ports[leaders[index]]
        answer = self._ask_any(FindCoordinatorRequest(key=self.name, key_type=whom), 2)
        if answer.error_code:
            raise OSError("there is no coordinator")
        return int(answer.port)

    def _ask_any(self, request: Any, version: int) -> Any:
        while True:
            for port in random.sample(self._bootstrap, len(self._bootstrap)):
                try:
                    return self._ask_at(port, request, version)
                except OSError:
                    time.sleep(PAUSE_S)

    def _ask_at(self, port: int, request: Any, version: int) -> Any:
        try:
            line = self._lines.get(port)
            if line is None:
                line = self._lines[port] = Line(port)
            return line.ask(request, version)
        except OSError:
            if (broken := self._lines.pop(port, None)) is not None:
                broken.close()
            raise
