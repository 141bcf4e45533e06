"""Produce responses that wait until their batches are committed.

With one replica a batch is uncommitted only if flush.messages makes an acknowledgement wait for the disk. Only the
connection waits; the next flush covers the batches that other connections append meanwhile. Kafka flushes before it
checks the timeout of a request, so even with a short timeout a slow disk causes no error.
Source: kafka.server.DelayedProduce; kafka.log.UnifiedLog.append, which flushes before it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.network.client_connection import DeferredResponse
from kafkalite.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from kafkalite.replication.partition import Partition

_WAIT_MS_MIN = 30_000
_WAIT_MS_MAX = 2**31 - 1


class PendingPartition(NamedTuple):
    """The answer for one partition, valid when everything up to `last_offset` is committed there."""

    answer: PartitionProduceResponse
    partition: Partition
    last_offset: int


class DelayedProduce(DeferredResponse):
    """Answers with `response` when all of `pending` is committed. Partitions that are not committed after `timeout_ms`,
    or half a minute if that is longer, get REQUEST_TIMED_OUT."""

    __slots__ = ("_pending", "response")

    def __init__(
        self, clock: Clock, response: ProduceResponse, pending: Sequence[PendingPartition], timeout_ms: int
    ) -> None:
        timer = clock.call_later(min(max(timeout_ms, _WAIT_MS_MIN), _WAIT_MS_MAX), self._time_out)
        super().__init__(timer.cancel)
        self.response = response
        self._pending = dict(enumerate(pending))
        for number, one in enumerate(pending):
            one.partition.when_committed(one.last_offset, partial(self._on_commit, number))

    def _on_commit(self, number: int, error: KafkaError | None) -> None:
        one = self._pending.pop(number, None)
        if one is None or self.settled:
            return
        if error is not None:
            _refuse(one.answer, error.code)
        if not self._pending:
            self.answer(self.response)

    def _time_out(self) -> None:
        for one in self._pending.values():
            _refuse(one.answer, ErrorCode.REQUEST_TIMED_OUT)
        self._pending.clear()
        self.answer(self.response)


def _refuse(answer: PartitionProduceResponse, code: ErrorCode) -> None:
    answer.error_code = code
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
