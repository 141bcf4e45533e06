"""InitProducerId (22): the id and epoch of an idempotent or a transactional producer."""

from __future__ import annotations

from kafkalite.protocol.codec.schema import Message, int16, int32, int64, string


class InitProducerIdRequest(Message, flexible="2+"):
    transactional_id: str | None = string("0+", nullable="0+")
    transaction_timeout_ms: int = int32("0+")
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    producer_id: int = int64("0+", default=-1)
    producer_epoch: int = int16("0+")
