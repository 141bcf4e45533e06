"""Checks of a new topic, or of one that is to grow, and the placement of the replicas of new partitions. Pure.

Replicas are placed round robin over the live brokers, with alternating racks. The first replicas go round the brokers
from `start_index` on, one each; the further replicas of a partition are at a distance from the first one that grows by
one with every round (`shift`), so that the leadership of a dead broker's partitions spreads over several neighbours.
With racks the brokers are first ordered so that racks alternate, and a rack that has a replica is skipped as long as
another one has none. A topic begins at a random broker; added partitions continue the round of the present ones.

If only some brokers have a rack, racks are ignored, as kafka-topics does with RackAwareMode.Safe. Kafka's brokers
refuse to create topics then (with an unknown server error).
Source: org.apache.kafka.admin.AdminUtils.assignReplicasToBrokers, KIP-36; kafka.zk.AdminZkClient (validateTopicCreate,
added partitions), kafka.server.ZkAdminManager.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.common.names import collides, topic_name_fault

PARTITION_COUNT_MAX = 100_000  # of one topic: each is a directory with open files
Racks = Mapping[int, str | None]
"""The rack of each live broker by its id."""


def check_new_topic(name: str, partition_count: int, others: Collection[str]) -> None:
    """Raises the KafkaError for which this topic cannot be created beside `others`: 17, 36, 37."""
    check_new_name(name, others)
    if partition_count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    _check_not_too_many(partition_count)
    if "." in name or "_" in name:
        for other in others:
            if collides(name, other):
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )


def check_new_name(name: str, others: Collection[str]) -> None:
    """Raises the KafkaError for which no topic can have this name, whatever else is asked for: 17, 36."""
    fault = topic_name_fault(name)
    if fault is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
    if name in others:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def check_more_partitions(name: str, current: int, total_count: int) -> None:
    """Raises KafkaError(INVALID_PARTITIONS) unless a topic can grow from `current` to `total_count` partitions."""
    if total_count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partitions.")
    if total_count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {current} partition(s); {total_count} would not be an increase.",
        )
    _check_not_too_many(total_count)


def _check_not_too_many(partition_count: int) -> None:
    if partition_count > PARTITION_COUNT_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must not be larger than {PARTITION_COUNT_MAX}."
        )


def assign_replicas(
    racks: Racks,
    partition_count: int,
    replication_factor: int,
    *,
    start_index: int | None = None,
    shift: int | None = None,
    first_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    """The replicas of `partition_count` partitions from `first_partition` on, the preferred leader first.

    `start_index` is the place of partition 0 among the brokers, `shift` the distance between replicas at first; both
    are random unless given. INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR.
    """
    if partition_count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(racks)}.",
        )
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    rack_aware = len(known) == len(racks)
    brokers = rack_alternated(known) if rack_aware else sorted(racks)
    import random  # takes 1 ms, and a broker by itself assigns nothing

    start_index = random.randrange(len(brokers)) if start_index is None else start_index
    shift = random.randrange(len(brokers)) if shift is None else shift
    assignment = {}
    for partition in range(first_partition, first_partition + partition_count):
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1  # another round: other neighbours than in the last one
        first = (partition + start_index) % len(brokers)
        if rack_aware:
            assignment[partition] = _across_racks(brokers, known, first, shift, replication_factor)
        else:
            others = _others(brokers, first, shift)
            assignment[partition] = (brokers[first], *(next(others) for _ in range(replication_factor - 1)))
    return assignment


def assign_added_partitions(
    racks: Racks, existing: Mapping[int, Sequence[int]], partition_count: int
) -> dict[int, tuple[int, ...]]:
    """The replicas of `partition_count` partitions after the `existing` ones, which continue their round and have as
    many replicas as partition 0. Errors as of `assign_replicas`."""
    leader, replication_factor = existing[0][0], len(existing[0])
    start_index = next((index for index, broker in enumerate(sorted(racks)) if broker >= leader), 0)
    return assign_replicas(
        racks,
        partition_count,
        replication_factor,
        start_index=start_index,
        shift=start_index,
        first_partition=len(existing),
    )


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """The brokers in an order in which racks alternate: by the name of the rack, then by id."""
    waiting: dict[str, list[int]] = {rack: [] for rack in sorted(set(racks.values()))}
    for broker in sorted(racks):
        waiting[racks[broker]].append(broker)
    return [broker for turn in zip_longest(*waiting.values()) for broker in turn if broker is not None]


def _others(brokers: Sequence[int], first: int, shift: int) -> Iterator[int]:
    """The brokers other than the one at `first`, again and again, beginning `shift` places behind it."""
    count = len(brokers)
    while True:
        yield brokers[(first + 1 + shift % (count - 1)) % count]
        shift += 1


def _across_racks(
    brokers: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """Skips a rack that has a replica while another one has none. Ends, since there are no more replicas than
    brokers."""
    rack_count = len(set(racks.values()))
    replicas = [brokers[first]]
    served = {racks[brokers[first]]}
    others = _others(brokers, first, shift * rack_count)
    while len(replicas) < replication_factor:
        broker = next(others)
        if broker not in replicas and (racks[broker] not in served or len(served) == rack_count):
            replicas.append(broker)
            served.add(racks[broker])
    return tuple(replicas)
