"""Batches behind a refused one, on the same connection, are refused for the same reason.

An idempotent producer has several batches on the way. If the first is refused for a reason that passes (the broker
leads the partition no more, its disk is full, replicas are missing) and the reason has passed before the next is looked
at, the next has a sequence number out of order. librdkafka answers that with another producer epoch, and then sends
batches again that other partitions may have stored. So the next is told the first one's reason: the producer sends all
of them again, in order. A producer that really lost a batch is told so after as many answers as it may have in flight.

A broker that stood still for a while, and does not know yet that another leads, lacks what that one has appended. It
tells nobody that a sequence number is out of order, for librdkafka gives up for ever then.
Source: kafkalite's own.
"""

from __future__ import annotations

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.metadata.cluster_metadata import ClusterMetadata, may_be_led_elsewhere
from kafkalite.network.client_connection import ClientConnection

IN_FLIGHT_MAX = 5
"""Of an idempotent producer: ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION_FOR_IDEMPOTENCE."""
_PARTITIONS_MAX = 1_000  # of one connection


def told(
    metadata: ClusterMetadata, connection: ClientConnection, topic: str, index: int, error: KafkaError
) -> KafkaError:
    """The error to tell the producer of a batch for this partition."""
    if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and may_be_led_elsewhere(metadata, topic, index):
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"it is not known who leads; {error.message}")
    refused, key = connection.refused_batches, (topic, index)
    if error.code.is_retriable and error.code is not ErrorCode.CORRUPT_MESSAGE:  # a corrupt batch comes again as it is
        if refused is None or len(refused) >= _PARTITIONS_MAX:
            refused = connection.refused_batches = {}
        refused[key] = (error.code, IN_FLIGHT_MAX - 1)
    elif error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and refused is not None and key in refused:
        code, left = refused.pop(key)
        if left > 1:
            refused[key] = (code, left - 1)
        return KafkaError(ErrorCode(code), f"behind a batch that was refused; {error.message}")
    return error
