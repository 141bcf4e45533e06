"""OffsetForLeaderEpoch."""

from __future__ import annotations

from kafkalite.protocol.messages.list_offsets import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.compatibility.differential.asking import batch, produce
from tests.compatibility.differential.engine import Explained, Teller, every_version, in_versions


def end_of(topic: str, epoch: int, partition: int = 0, current: int = -1, **more: int) -> OffsetForLeaderEpochRequest:
    one = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch, current_leader_epoch=current)
    return OffsetForLeaderEpochRequest(
        **{"replica_id": -1} | more, topics=[OffsetForLeaderTopic(topic=topic, partitions=[one])]
    )


BELOW_ALL = Explained(
    "an epoch below -1 is unknown",
    "there is no such epoch; Kafka names the start of the first one it knows, as for any that came before it",
    "topics.**",
)


@every_version("OffsetForLeaderEpoch")
def ends_of_epochs(t: Teller) -> None:
    topic = t.topic(partitions=2)
    t.aside(produce(topic, batch(b"a", b"b")), 8)
    for epoch in (0, 1, 9, -1, -2):
        but = BELOW_ALL if epoch < -1 else None
        t.ask(f"epoch {epoch}", end_of(topic, epoch), but=but)
        t.ask(f"epoch {epoch} of an empty one", end_of(topic, epoch, 1), but=but)
    t.ask("nothing", OffsetForLeaderEpochRequest(topics=[]))


@in_versions(0, 2, 4)
def where_there_is_nothing(t: Teller) -> None:
    topic = t.topic()
    t.ask("unknown topic", end_of(t.name("none"), 0))
    t.ask("unknown partition", end_of(topic, 0, 9))
    t.ask("partition -1", end_of(topic, 0, -1))


@in_versions(2, 3, 4)
def epochs_of_the_leader(t: Teller) -> None:
    topic = t.topic()
    for current in (0, 1, 9, -2):
        t.ask(f"current epoch {current}", end_of(topic, 0, current=current))


@in_versions(3, 4)
def who_asks(t: Teller) -> None:
    topic = t.topic()
    for replica in (-2, 0, 1):
        t.ask(f"replica {replica}", end_of(topic, 0, replica_id=replica))
