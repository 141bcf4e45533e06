"""Offsets of partitions from their leaders: the start, the end, the first record of a time.

A result is complete or an error: a partition whose leader moves, loads or is unreachable is retried until the deadline,
and then the error names the partition. No value stands for an unknown offset. `known_starts` and `known_ends` are for
tables, which show the known offsets.
Source: org.apache.kafka.clients.admin.internals.ListOffsetsHandler, PartitionLeaderStrategy.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from kafkalite.client.blocking_client import name_of_error
from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import ConfigError, ErrorCode, Unanswered
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import NO_LEADER, TopicPartition
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3  # special timestamps of the request; -3 since KIP-734
_VERSION, _MAX_TIMESTAMP_VERSION = 4, 7
_NONE = -1
_RETRY_S = 0.1


class _Fault(NamedTuple):
    why: str
    is_retriable: bool


class _Found(NamedTuple):
    offset: int
    timestamp: int


class Known(NamedTuple):
    """The known offsets, and for each other partition the reason."""

    offsets: dict[TopicPartition, int]
    faults: dict[TopicPartition, str]


class LogOffsets:
    """Reads offsets of a cluster's partitions. Requests are retried for `timeout_s` at most. Raises Unanswered, which
    names a partition."""

    def __init__(
        self,
        cluster: ClusterClient,
        timeout_s: float,
        *,
        monotonic_s: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._monotonic_s = monotonic_s
        self._sleep = sleep

    def starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset of each."""
        return self._offsets(partitions, _EARLIEST)

    def ends(self, partitions: Iterable[TopicPartition], *, committed: bool = False) -> dict[TopicPartition, int]:
        """The high watermark of each, or its last stable offset."""
        return self._offsets(partitions, _LATEST, committed=committed)

    def at_time(self, partitions: Iterable[TopicPartition], time_ms: int) -> dict[TopicPartition, int]:
        """The first record at or after a time; without the partitions that have none so late. A time before 1970 is
        before all records, those without a timestamp, too."""
        return self.starts(partitions) if time_ms < 0 else self._offsets(partitions, time_ms)

    def newest_timestamps(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The largest timestamp of each, in ms; without empty partitions. Not retried: a broker older than Apache Kafka
        3.0 does not support it, and closes the connection."""
        found, faults = self._ask(partitions, _MAX_TIMESTAMP, version=_MAX_TIMESTAMP_VERSION)
        _raise_first(faults)
        return {key: one.timestamp for key, one in found.items() if one.timestamp >= 0}

    def known_starts(self, partitions: Iterable[TopicPartition]) -> Known:
        """The starts of the partitions that answer at the first or second try."""
        return self._known(partitions, _EARLIEST)

    def known_ends(self, partitions: Iterable[TopicPartition], *, committed: bool = False) -> Known:
        """The same for the ends."""
        return self._known(partitions, _LATEST, committed=committed)

    def _known(self, partitions: Iterable[TopicPartition], timestamp: int, *, committed: bool = False) -> Known:
        found, faults = self._ask(partitions, timestamp, committed=committed)
        if any(fault.is_retriable for fault in faults.values()):
            self._refresh()
            more, faults = self._ask(faults, timestamp, committed=committed)
            found |= more
        offsets = {key: one.offset for key, one in found.items() if one.offset != _NONE}
        return Known(offsets, {key: fault.why for key, fault in sorted(faults.items())})

    def _offsets(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        """The offsets of all partitions; without those that have none for the timestamp."""
        deadline_s = self._monotonic_s() + self._timeout_s
        found, faults = self._ask(partitions, timestamp, committed=committed)
        refreshed_for: set[TopicPartition] = set()
        while faults:
            absent = {key for key in faults if key not in self._cluster.places}
            is_over = self._monotonic_s() >= deadline_s or not refreshed_for.isdisjoint(absent)
            _raise_first({key: fault for key, fault in faults.items() if is_over or not fault.is_retriable})
            refreshed_for |= absent
            self._sleep(_RETRY_S)
            self._refresh()
            more, faults = self._ask(faults, timestamp, committed=committed)
            found |= more
        return {key: one.offset for key, one in found.items() if one.offset != _NONE}

    def _refresh(self) -> None:
        with suppress(Unanswered):
            self._cluster.refresh()

    def _ask(
        self, partitions: Iterable[TopicPartition], timestamp: int, *, committed: bool = False, version: int = _VERSION
    ) -> tuple[dict[TopicPartition, _Found], dict[TopicPartition, _Fault]]:
        """Sends one request to each leader. Each partition is in the offsets or in the faults."""
        by_leader: dict[int, list[TopicPartition]] = {}
        found: dict[TopicPartition, _Found] = {}
        faults: dict[TopicPartition, _Fault] = {}
        for key in sorted(set(partitions)):
            place = self._cluster.places.get(key)
            if place is None:
                faults[key] = _Fault("there is no such partition", True)  # it may have been created a moment ago
            elif place.leader == NO_LEADER:
                faults[key] = _Fault("it has no leader", True)
            else:
                by_leader.setdefault(place.leader, []).append(key)
        for leader, keys in by_leader.items():
            for key, one in self._ask_leader(leader, keys, timestamp, int(committed), version).items():
                if isinstance(one, _Fault):
                    faults[key] = one
                else:
                    found[key] = one
        return found, faults

    def _ask_leader(
        self, leader: int, keys: list[TopicPartition], timestamp: int, isolation_level: int, version: int
    ) -> Mapping[TopicPartition, _Found | _Fault]:
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, index in keys:
            one = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(one)
        request = ListOffsetsRequest(isolation_level=isolation_level, topics=list(topics.values()))
        try:
            answer = self._cluster.client(leader).ask(request, version)
        except (Unanswered, ConfigError) as fault:  # the second: a leader that has left the cluster
            return dict.fromkeys(keys, _Fault(str(fault), True))
        answers: dict[TopicPartition, _Found | _Fault] = dict.fromkeys(
            keys, _Fault(f"broker {leader} does not return them", False)
        )
        for answered in answer.topics:
            for each in answered.partitions:
                key = answered.name, each.partition_index
                if key in answers and each.error_code:
                    answers[key] = _Fault(name_of_error(each.error_code), ErrorCode.of(each.error_code).is_retriable)
                elif key in answers and (each.offset != _NONE or timestamp not in (_EARLIEST, _LATEST)):
                    answers[key] = _Found(each.offset, each.timestamp)
        return answers


def _raise_first(faults: Mapping[TopicPartition, _Fault]) -> None:
    """Raises Unanswered if there are any."""
    for (topic, index), fault in sorted(faults.items()):
        others = f" ({len(faults) - 1} more partitions likewise)" if len(faults) > 1 else ""
        raise Unanswered(f"the offsets of {topic}-{index} cannot be read: {fault.why}{others}")
