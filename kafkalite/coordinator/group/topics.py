"""The topics of the cluster as groups see them whose coordinator assigns partitions.

Source: org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage,
org.apache.kafka.coordinator.group.modern.ModernGroup (metadataRefreshDeadline; 4.3).
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from kafkalite.common.text import java_order
from kafkalite.common.xxh3 import xxh3_64


class Topics(Protocol):
    """The topics of the cluster. `version` grows when a topic is created, `changes` when any topic changes."""

    @property
    def version(self) -> int: ...

    @property
    def changes(self) -> int: ...

    @property
    def names(self) -> Collection[str]: ...

    def id_of(self, name: str) -> uuid.UUID | None: ...

    def name_of(self, topic_id: uuid.UUID) -> str | None: ...

    def ids_of(self, names: Iterable[str]) -> set[uuid.UUID]: ...

    def partition_counts(self, topic_ids: Iterable[uuid.UUID]) -> Mapping[uuid.UUID, int]: ...

    def partition_counts_by_name(self, names: Iterable[str]) -> Mapping[str, int]: ...

    def hash_of(self, names: Iterable[str]) -> int: ...

    def is_changed(self, names: Iterable[str], since: int) -> bool: ...


class TopicTables(Protocol):
    """The epoch of a group, and the topics that it has a hash of."""

    @property
    def group_epoch(self) -> int: ...

    @property
    def subscribed_topics(self) -> Collection[str]: ...


class MetadataRefresh:
    """Tells when the topics of a group have to be compared with the hash that it has of them.

    They are compared at first, when one of them has changed, and when a group epoch was taken back that a comparison
    had led to.
    """

    __slots__ = ("_epoch", "_seen_changes", "_topics")

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._epoch: int | None = None  # the group epoch of the last comparison; None: not yet
        self._seen_changes = 0

    def is_due(self, tables: TopicTables) -> bool:
        if self._epoch is None or tables.group_epoch < self._epoch:
            return True
        topics = self._topics
        if topics.changes != self._seen_changes:
            if topics.is_changed(tables.subscribed_topics, self._seen_changes):
                return True
            self._seen_changes = topics.changes
        return False

    def complete(self, group_epoch: int) -> None:
        """The topics were compared."""
        self._epoch = group_epoch
        self._seen_changes = self._topics.changes

    def reset(self) -> None:
        """They have to be compared again."""
        self._epoch = None


# -- hashes by which a group notices a change of its topics. The group's stands in its record, so it is computed as
# Kafka does (KIP-1101; coordinator.group.Utils): a group that changes hands between the two keeps its epoch

_LAYOUT_VERSION = b"\0"
_pack_count = struct.Struct("<i").pack
_pack_hash = struct.Struct("<q").pack
_SIGN = 1 << 63


def topic_hash(name: str, topic_id: uuid.UUID, racks: Sequence[Collection[str]]) -> int:
    """The hash of one topic, as a signed 64-bit integer. `racks` has, by partition, the racks of its replicas (those
    brokers only that have one)."""
    parts = [_LAYOUT_VERSION, topic_id.bytes[7::-1], topic_id.bytes[:7:-1], *_text(name), _pack_count(len(racks))]
    for partition, racks_of_one in enumerate(racks):
        parts.append(_pack_count(partition))
        for rack in sorted(racks_of_one, key=java_order):
            units, count = _text(rack)
            parts += (count, units, count)
    return _signed(xxh3_64(b"".join(parts)))


def group_hash(topic_hashes: Mapping[str, int]) -> int:
    """The hash of all topics, by name, that a group is subscribed to and that exist; 0 without any."""
    if not topic_hashes:
        return 0
    return _signed(xxh3_64(b"".join(_pack_hash(topic_hashes[name]) for name in sorted(topic_hashes))))


def _text(text: str) -> tuple[bytes, bytes]:
    """The UTF-16 code units, and their count."""
    units = text.encode("utf-16-le", "surrogatepass")
    return units, _pack_count(len(units) // 2)


def _signed(value: int) -> int:
    return value - 2 * _SIGN if value >= _SIGN else value
