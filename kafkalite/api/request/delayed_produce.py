"""Produce responses that wait until their batches are committed, or with acks=1 until this broker has written them.

Only the connection waits. A batch in a partition with one replica is uncommitted only if flush.messages makes an
acknowledgement wait for the disk; the next flush covers the batches that other connections append meanwhile. Kafka
flushes before it checks the timeout of a request, so even with a short timeout a slow disk causes no error. With
several replicas acks=-1 waits for all in-sync replicas, as long as the request allows.
Source: kafka.server.DelayedProduce; kafka.log.UnifiedLog.append, which flushes before it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from kafkalite.api.request.admission import ACKS_ALL
from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.network.client_connection import Pending
from kafkalite.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from kafkalite.replication.partition import Partition, ReplicatedPartition

_DISK_WAIT_MS_MIN = 30_000
_WAIT_MS_MAX = 2**31 - 1


class PendingPartition(NamedTuple):
    """The answer for one partition, valid when everything up to `last_offset` is committed there, or without `is_all`
    written by this broker."""

    answer: PartitionProduceResponse
    partition: Partition
    last_offset: int
    is_all: bool = True


def waits(partition: Partition, last_offset: int, acks: int) -> bool:
    """Whether a batch that is not committed yet is to be waited for."""
    return acks == ACKS_ALL or last_offset >= partition.written_offset


def wait_ms(timeout_ms: int, *, is_for_replicas: bool) -> int:
    """The time after which a produce gets REQUEST_TIMED_OUT."""
    return min(max(timeout_ms, 0 if is_for_replicas else _DISK_WAIT_MS_MIN), _WAIT_MS_MAX)


class DelayedProduce(Pending):
    """Answers with `response` when all of `pending` is there. Partitions that are not after `timeout_ms` get
    REQUEST_TIMED_OUT; where only disks are waited for, that is at least half a minute. `add_leaders` completes a
    response in which a partition is led elsewhere by then (KIP-951)."""

    __slots__ = ("_add_leaders", "_has_moved", "_pending", "response")

    def __init__(
        self,
        clock: Clock,
        response: ProduceResponse,
        pending: Sequence[PendingPartition],
        timeout_ms: int,
        add_leaders: Callable[[ProduceResponse], None] | None = None,
        *,
        has_moved: bool = False,
    ) -> None:
        """`has_moved`: some partition may be led elsewhere already."""
        is_for_replicas = any(one.is_all and isinstance(one.partition, ReplicatedPartition) for one in pending)
        timer = clock.call_later(wait_ms(timeout_ms, is_for_replicas=is_for_replicas), self._time_out)
        super().__init__(timer.cancel)
        self.response = response
        self._add_leaders = add_leaders
        self._has_moved = has_moved
        self._pending = dict(enumerate(pending))
        for number, one in enumerate(pending):
            when = one.partition.when_committed if one.is_all else one.partition.when_written
            when(one.last_offset, partial(self._on_done, number))

    def _on_done(self, number: int, error: KafkaError | None) -> None:
        one = self._pending.pop(number, None)
        if one is None or self.is_done:
            return
        if error is not None:
            self._has_moved = self._has_moved or error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            _refuse(one.answer, error.code)
        if not self._pending:
            self._finish()

    def _time_out(self) -> None:
        for one in self._pending.values():
            _refuse(one.answer, ErrorCode.REQUEST_TIMED_OUT)
        self._pending.clear()
        self._finish()

    def _finish(self) -> None:
        add_leaders, self._add_leaders = self._add_leaders, None
        if self._has_moved and add_leaders is not None:
            add_leaders(self.response)
        self.answer(self.response)


def _refuse(answer: PartitionProduceResponse, code: ErrorCode) -> None:
    answer.error_code = code
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
