"""A producer with a producer id and without transactions."""

from __future__ import annotations

from kafkalite.common.names import ProducerIdAndEpoch, TopicPartition
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from tests.support.transactions.ledger import Batch
from tests.support.transactions.steps import WAITS
from tests.support.transactions.world import OK, World


class Idempotent:
    """Sends what is not answered again before anything else. It is never refused."""

    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.world = world
        self.ids: ProducerIdAndEpoch | None = None
        self.sequences: dict[TopicPartition, int] = {}
        self.unanswered: dict[TopicPartition, Batch] = {}
        self.last: dict[TopicPartition, Batch] = {}

    def send(self, partition: TopicPartition, count: int, *, how: str = WAITS) -> None:
        world = self.world
        if self.ids is None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
            answer = world.ask(self.name, request, 4, lambda answer: [answer.error_code])
            self.ids = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        if partition in self.unanswered:
            self._produce(self.unanswered[partition], how=WAITS)
        sequence = self.sequences.get(partition, 0)
        batch = world.make_batch(self.name, partition, count, base_sequence=sequence, **self.ids._asdict())
        self.sequences[partition] = sequence + count
        self._produce(batch, how=how)

    def send_again(self, partition: TopicPartition) -> None:
        """An acknowledged batch is there already, and is not appended twice."""
        if partition in self.last and partition not in self.unanswered:
            self.world.produce(self.name, self.last[partition], 9)

    def _produce(self, batch: Batch, *, how: str) -> None:
        self.unanswered[batch.partition] = batch
        error = self.world.produce(self.name, batch, 9, how=how)
        assert error == OK, f"{self.name} got {error.name} for {batch}"
        del self.unanswered[batch.partition]
        self.last[batch.partition] = batch
