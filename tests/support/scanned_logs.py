"""Logs of one topic that answer ListOffsets and Fetch from memory, as the leaders of a cluster do for a scan."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalite.client.cluster_client import PartitionPlace
from kafkalite.common.errors import ErrorCode, Unanswered
from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.fetch import FetchRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.compression import NONE

TOPIC = "t"


class ScannedLogs:
    """`logs` are the batches of each partition, with their base offsets; `starts` and `ends` its offsets. The next
    requests for records get `faults` first: an error code, or None for no answer at all. `on_fetch` is called before
    each request for records. Pauses advance `now_s`."""

    def __init__(self, partitions: int = 1) -> None:
        self.logs: list[list[tuple[int, int, bytes]]] = [[] for _ in range(partitions)]
        self.starts, self.ends = [0] * partitions, [0] * partitions
        self.faults: list[ErrorCode | None] = []
        self.on_fetch = lambda: None
        self.fetches: list[tuple[int, int]] = []
        self.refreshed = 0
        self.now_s = 0.0
        self.places: dict[TopicPartition, PartitionPlace] = {
            (TOPIC, index): PartitionPlace(1, (1,)) for index in range(partitions)
        }

    def write(self, partition: int, *records: NewRecord, gap: int = 0, codec: int = NONE) -> None:
        """A batch, behind as many offsets without records."""
        base = self.ends[partition] + gap
        self.ends[partition] = base + len(records)
        self.logs[partition].append(
            (base, self.ends[partition], bytes(build_batch(records, base_offset=base, codec=codec)))
        )

    def delete_before(self, partition: int, offset: int) -> None:
        self.starts[partition] = offset
        self.logs[partition] = [one for one in self.logs[partition] if one[1] > offset]

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    # --- as a cluster

    def refresh(self) -> None:
        self.refreshed += 1

    def leader_of(self, partition: TopicPartition) -> int:
        return self.places[partition].leader

    def client(self, broker_id: int) -> Any:
        return SimpleNamespace(ask=self._ask)

    def _ask(self, request: Any, version: int) -> Any:
        if isinstance(request, ListOffsetsRequest):
            return SimpleNamespace(topics=[self._offsets(topic) for topic in request.topics])
        assert isinstance(request, FetchRequest)
        self.on_fetch()
        if self.faults:
            fault = self.faults.pop(0)
            if fault is None:
                raise Unanswered("the connection is lost")
            return SimpleNamespace(error_code=fault)
        wanted = request.topics[0].partitions[0]
        self.fetches.append((wanted.partition, wanted.fetch_offset))
        found = self._fetched(wanted.partition, wanted.fetch_offset)
        return SimpleNamespace(error_code=0, responses=[SimpleNamespace(partitions=[found])])

    def _offsets(self, topic: Any) -> Any:
        answers = []
        for one in topic.partitions:
            index = one.partition_index
            offset = self.starts[index] if one.timestamp == -2 else self.ends[index]
            answers.append(SimpleNamespace(partition_index=index, error_code=0, offset=offset, timestamp=-1))
        return SimpleNamespace(name=topic.name, partitions=answers)

    def _fetched(self, index: int, offset: int) -> Any:
        start, end = self.starts[index], self.ends[index]
        code = ErrorCode.NONE if start <= offset <= end else ErrorCode.OFFSET_OUT_OF_RANGE
        batch = next((data for _, last, data in self.logs[index] if last > offset), b"")
        return SimpleNamespace(
            error_code=code,
            records=memoryview(batch),
            high_watermark=end,
            last_stable_offset=end,
            log_start_offset=start,
            aborted_transactions=None,
        )
