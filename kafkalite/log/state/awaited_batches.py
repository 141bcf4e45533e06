"""Batches that were refused for a transient reason before their producer had a state in the log.

A log takes any first sequence number of a producer that it does not know: it may have forgotten it. So if the first of
several batches in flight is refused (this broker does not lead yet, replicas are missing, the disk is full) and the
reason has passed when the next arrives, the next would begin the producer's state. librdkafka then takes the first one
for stored as well, and reports it as delivered: it is lost. Until the refused one comes again, later ones are refused
as out of order, as they are for a producer that is known.
Apache Kafka has this for the batches of a transaction that is being verified (VerificationStateEntry).
"""

from __future__ import annotations

from kafkalite.common.errors import ErrorCode, KafkaError

_PRODUCERS_MAX = 1_000


class AwaitedBatches:
    """The epoch and the lowest sequence number that was refused, by producer id. Beyond a thousand producers the oldest
    is forgotten."""

    __slots__ = ("_lowest",)

    def __init__(self) -> None:
        self._lowest: dict[int, tuple[int, int]] = {}

    def add(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        """A batch of a producer without a state was refused, and will come again."""
        before = self._lowest.get(producer_id)
        if before is not None and (before[0] > epoch or (before[0] == epoch and before[1] <= first_sequence)):
            return
        if before is None and len(self._lowest) >= _PRODUCERS_MAX:
            del self._lowest[next(iter(self._lowest))]
        self._lowest[producer_id] = epoch, first_sequence

    def check(self, producer_id: int, epoch: int, first_sequence: int) -> None:
        """Raises KafkaError(OUT_OF_ORDER_SEQUENCE_NUMBER) for a batch behind the one that is awaited."""
        awaited = self._lowest.get(producer_id)
        if awaited is not None and awaited[0] == epoch and first_sequence > awaited[1]:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {producer_id}: {first_sequence} (incoming), {awaited[1]} "
                "(refused before, and awaited)",
            )

    def forget(self, producer_id: int) -> None:
        """The producer has a state."""
        self._lowest.pop(producer_id, None)
