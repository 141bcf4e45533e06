"""The spread of partitions over brokers by their bytes and traffic: the plan of moves, and their reassignment.

Each partition with one replica weighs its share of all bytes, of all bytes written meanwhile, and of the number of
partitions. The heaviest first, a partition leaves a broker for the one with the least load, as long as that makes the
larger of both loads clearly smaller. So there are few moves, and none in a cluster that is spread already. Between
brokers of one machine a move takes no bytes with it (`log/directories/linked_copy.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.client.log_dirs import directories
from kafkalite.client.placement import alter_reassignments, list_reassignments
from kafkalite.common.clock import monotonic_s
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition

_TOGETHER = 50  # partitions that move at a time
_POLL_S = 0.05
_GAIN = 1.5  # the move of 1 leaves the target at least 0.5 below the former load of the source
_ROUNDING = 1e-9
_COUNT_SHARE = 0.5  # the weight of the number of partitions, beside 1 of bytes and 1 of traffic


class Load(NamedTuple):
    size_bytes: int
    written_bytes: int = 0


class Move(NamedTuple):
    key: TopicPartition
    source: int
    target: int


def plan_moves(
    placed: Mapping[TopicPartition, int], loads: Mapping[TopicPartition, Load], brokers: Collection[int]
) -> list[Move]:
    """The moves that spread the partitions, each on the one broker that is given, over `brokers`. Those on other
    brokers all leave them."""
    weights = _weights(placed, loads)
    load = dict.fromkeys(sorted(brokers), 0.0)
    for key, broker in placed.items():
        if broker in load:
            load[broker] += weights[key]
    moves = []
    by_weight = sorted(placed, key=lambda key: (-weights[key], key))
    for is_leaving in (True, False):
        for key in by_weight:
            source, weight = placed[key], weights[key]
            target = min(load, key=lambda broker: (load[broker], broker))
            if is_leaving is (source in load) or source == target:
                continue
            if is_leaving or load[target] + _GAIN * weight <= load[source] + _ROUNDING:
                moves.append(Move(key, source, target))
                load[target] += weight
                if not is_leaving:
                    load[source] -= weight
    return moves


def _weights(placed: Iterable[TopicPartition], loads: Mapping[TopicPartition, Load]) -> dict[TopicPartition, float]:
    nothing = Load(0)
    found = {key: loads.get(key, nothing) for key in placed}
    size = sum(one.size_bytes for one in found.values()) or 1
    written = sum(one.written_bytes for one in found.values()) or 1
    return {
        key: one.size_bytes / size + one.written_bytes / written + _COUNT_SHARE / len(found)
        for key, one in found.items()
    }


def placed_alone(cluster: ClusterClient) -> dict[TopicPartition, int]:
    """The broker of each partition that has one replica."""
    return {key: place.replicas[0] for key, place in cluster.places.items() if len(place.replicas) == 1}


def measure(
    cluster: ClusterClient, seconds: float, sleep: Callable[[float], None] = time.sleep
) -> dict[TopicPartition, Load]:
    """The size of each partition, and the bytes written to it in so many seconds. Raises Unanswered."""
    before = _sizes(cluster)
    if not seconds:
        return {key: Load(size) for key, size in before.items()}
    sleep(seconds)
    return {key: Load(size, max(0, size - before.get(key, size))) for key, size in _sizes(cluster).items()}


def _sizes(cluster: ClusterClient) -> dict[TopicPartition, int]:
    return {
        (topic.name, one.partition_index): one.partition_size
        for broker_id in cluster.brokers
        for directory in directories(cluster.client(broker_id))
        for topic in directory.topics
        for one in topic.partitions
        if not one.is_future_key
    }


def reassign(
    cluster: ClusterClient,
    moves: Sequence[Move],
    timeout_s: float,
    monotonic_s: Callable[[], float] = monotonic_s,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[Move, str | None]]:
    """Performs the moves, some at a time. Yields each when it is done, or with the reason why it is not. Raises
    Unanswered."""
    waiting = iter(moves)
    while some := list(islice(waiting, _TOGETHER)):
        refused = alter_reassignments(cluster.controller(), {key: [target] for key, _, target in some})
        pending = {move.key: move for move in some if move.key not in refused}
        yield from ((move, refused[move.key]) for move in some if move.key in refused)
        deadline_s = monotonic_s() + timeout_s
        while pending:
            ongoing = {(one.topic, one.partition) for one in list_reassignments(cluster.controller(), pending)}
            for key in [key for key in pending if key not in ongoing]:
                yield pending.pop(key), None
            if pending and monotonic_s() >= deadline_s:
                yield from ((move, f"is not done within {timeout_s:g} s, and continues") for move in pending.values())
                return
            if pending:
                sleep(_POLL_S)
