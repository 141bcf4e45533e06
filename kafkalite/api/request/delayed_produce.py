"""The wait of a produce for its acknowledgement. Source: kafka.server.DelayedProduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kafkalite.api.request.admission import ACKS_ALL
from kafkalite.common.clock import Clock
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.network.client_connection import Pending
from kafkalite.replication.partition import Partition, ReplicatedPartition

_DISK_WAIT_MS_MIN = 30_000
_ACK_WAIT_MS_MAX = 2**31 - 1


def waits(partition: Partition, last_offset: int, acks: int) -> bool:
    """Whether the answer waits until the batch is committed."""
    return acks == ACKS_ALL or last_offset >= partition.written_offset


class DelayedProduce(Pending):
    """An answer that waits until batches are committed, or with acks=1 until this broker has written them.

    Only the connection waits. A batch in a partition with one replica is uncommitted only if flush.messages makes an
    acknowledgement wait for the disk; the next flush covers the batches that other connections append meanwhile. Kafka
    flushes before it checks the timeout of a request, so even with a short timeout a slow disk causes no error: an
    answer that waits for disks only waits at least half a minute. With several replicas acks=-1 waits for all in-sync
    replicas, as long as the request allows; batches that are not committed by then get REQUEST_TIMED_OUT.
    Source: kafka.server.DelayedProduce; kafka.log.UnifiedLog.append, which flushes before it returns.
    """

    __slots__ = ("_finish", "_missing", "_refuse")

    def __init__(
        self,
        clock: Clock,
        waited: Sequence[tuple[Partition, int]],
        acks: int,
        timeout_ms: int,
        refuse: Callable[[int, KafkaError], object],
        finish: Callable[[], object],
    ) -> None:
        """`waited` has partitions and the last offsets of their batches. `refuse` is called with the number and the
        error of one that will not be acknowledged, `finish` when all are done; it makes the answer."""
        is_all = acks == ACKS_ALL
        is_for_replicas = is_all and any(isinstance(partition, ReplicatedPartition) for partition, _ in waited)
        wait_ms = min(max(timeout_ms, 0 if is_for_replicas else _DISK_WAIT_MS_MIN), _ACK_WAIT_MS_MAX)
        super().__init__(clock.call_later(wait_ms, self._time_out).cancel)
        self._refuse = refuse
        self._finish = finish
        self._missing = set(range(len(waited)))
        for number, (partition, last_offset) in enumerate(waited):
            when = partition.when_committed if is_all else partition.when_written
            when(last_offset, partial(self._on_done, number))

    def _on_done(self, number: int, error: KafkaError | None) -> None:
        if self.is_done or number not in self._missing:
            return
        self._missing.discard(number)
        if error is not None:
            self._refuse(number, error)
        if not self._missing:
            self.answer(self._finish())

    def _time_out(self) -> None:
        for number in tuple(self._missing):
            self._on_done(number, KafkaError(ErrorCode.REQUEST_TIMED_OUT))
