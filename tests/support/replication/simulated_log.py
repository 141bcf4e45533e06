"""The log of a simulated broker: records in memory, of which a power cut may take those that are not synced."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from kafkalite.log.state.leader_epoch_cache import LeaderEpochCache
from kafkalite.replication.replica.epoch_divergence import ReplicaLog


class Record(NamedTuple):
    """`batch_offset` is the base offset of its batch."""

    leader_epoch: int
    value: int
    batch_offset: int


class _NoFiles:
    def write_atomically(self, path: str, data: bytes, *, durable: bool) -> None:
        pass


_NO_FILES: Any = _NoFiles()


class SimulatedLog:
    """`records` begin at `base_offset`; a batch is dropped whole or not at all. `synced_offset`: safe from a power cut.
    `flushes`: flush.messages=1, so what is not synced is not acknowledged."""

    def __init__(self, *, flushes: bool) -> None:
        self.flushes = flushes
        self.base_offset = self.start_offset = self.synced_offset = 0
        self.records: list[Record] = []
        self.high_watermark = self.checkpointed = 0
        self.epochs = LeaderEpochCache("", _NO_FILES)

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.records)

    def as_seen(self) -> ReplicaLog:
        end = self.end_offset
        return ReplicaLog(
            self.start_offset, end, self.synced_offset if self.flushes else end, self.high_watermark, self.epochs
        )

    def append(self, records: list[Record]) -> None:
        assert records[0].batch_offset == self.end_offset, "a batch was cut, or is out of order"
        for record in records:
            if record.leader_epoch != self.epochs.latest:
                self.epochs.assign(record.leader_epoch, record.batch_offset)
            self.records.append(record)

    def append_values(self, leader_epoch: int, values: list[int]) -> int:
        """The last offset of the new batch."""
        self.append([Record(leader_epoch, value, self.end_offset) for value in values])
        return self.end_offset - 1

    def read(self, offset: int, limit: int) -> list[Record]:
        """Whole batches from the one that holds `offset`."""
        if offset >= self.end_offset:
            return []
        first = self.records[offset - self.base_offset].batch_offset - self.base_offset
        end = min(first + limit, len(self.records))
        while end < len(self.records) and self.records[end].batch_offset < self.base_offset + end:
            end += 1
        return self.records[max(first, 0) : end]

    def truncate_to(self, offset: int) -> None:
        if offset < self.base_offset:
            self.restart_at(offset)
            return
        del self.records[offset - self.base_offset :]
        end = self.end_offset
        self.epochs.truncate_from_end(end)
        self.synced_offset = min(self.synced_offset, end)
        self.start_offset = min(self.start_offset, end)
        self.high_watermark = min(self.high_watermark, end)

    def restart_at(self, offset: int) -> None:
        self.records.clear()
        self.epochs.clear()
        self.base_offset = self.start_offset = self.synced_offset = self.high_watermark = offset

    def raise_start(self, offset: int) -> None:
        self.start_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        self.epochs.truncate_from_start(offset)

    def sync(self) -> None:
        self.synced_offset = self.end_offset

    # --- what happens to it

    def reopen(self) -> None:
        """After a stop of the process: what was written is there. The start syncs it before it counts."""
        self.synced_offset = self.end_offset if self.flushes else self.synced_offset
        self.high_watermark = max(self.start_offset, min(self.checkpointed, self.end_offset))

    def lose_power(self, rng: random.Random) -> None:
        keep = rng.choice([self.synced_offset, rng.randint(self.synced_offset, self.end_offset)])
        while keep < self.end_offset and self.records[keep - self.base_offset].batch_offset < keep:
            keep -= 1
        self.truncate_to(max(keep, self.base_offset))
        self.checkpointed = min(self.checkpointed, self.end_offset)

    def lose_all(self) -> None:
        self.__init__(flushes=self.flushes)  # type: ignore[misc]
