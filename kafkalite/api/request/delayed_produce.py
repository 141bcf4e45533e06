"""Producers whose batches are in the log but not yet as safe as the topic asks: answered when they are.

With one replica that is where flush.messages makes an acknowledgement wait for the disk. Only the connection is parked;
what other connections append meanwhile goes with the next flush. Kafka flushes before it looks at a request's timeout,
so a short one makes no error of a slow disk.
Source: kafka.server.DelayedProduce; kafka.log.UnifiedLog.append, which flushes before it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkalite.api.request.services import Services
from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.network.client_connection import DeferredResponse
from kafkalite.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from kafkalite.replication.partition import Partition

_WAIT_MS_MIN = 30_000
_WAIT_MS_MAX = 2**31 - 1


class Uncommitted(NamedTuple):
    """The answer for one partition, as it will be when everything up to `last_offset` is committed there."""

    answer: PartitionProduceResponse
    partition: Partition
    last_offset: int


def answer_when_committed(
    services: Services, response: ProduceResponse, uncommitted: list[Uncommitted], timeout_ms: int
) -> DeferredResponse:
    """`response`, as soon as all of it holds; REQUEST_TIMED_OUT for what does not after `timeout_ms`, or
    after half a minute if that is longer."""
    waiting = dict(enumerate(uncommitted))

    def teller(number: int) -> Callable[[KafkaError | None], None]:
        def tell(error: KafkaError | None) -> None:
            one = waiting.pop(number, None)
            if one is None or reply.settled:
                return
            if error is not None:
                _refuse(one.answer, error.code)
            if not waiting:
                reply.answer(response)

        return tell

    def give_up() -> None:
        for one in waiting.values():
            _refuse(one.answer, ErrorCode.REQUEST_TIMED_OUT)
        waiting.clear()
        reply.answer(response)

    timer = services.runtime.clock.call_later(min(max(timeout_ms, _WAIT_MS_MIN), _WAIT_MS_MAX), give_up)
    reply = DeferredResponse(timer.cancel)
    for number, one in list(waiting.items()):
        one.partition.when_committed(one.last_offset, teller(number))
    return reply


def _refuse(answer: PartitionProduceResponse, code: ErrorCode) -> None:
    answer.error_code = code
    answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
