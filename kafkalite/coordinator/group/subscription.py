"""The topics that a consumer subscribes to. The broker reads nothing else in a member's metadata.

The format is defined by the clients. Every version begins like version 0: version i16, topics as an array of strings.
Source: ConsumerProtocolSubscription.json; kafka.coordinator.group.GroupMetadata.computeSubscribedTopics (3.9).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION_AND_COUNT = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these subscriptions; None if one of them cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        found = _topics_of(subscription)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)


def _topics_of(subscription: bytes) -> list[str] | None:
    topics = []
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(subscription)
        if version < 0 or not 0 <= count <= len(subscription):
            return None
        position = _VERSION_AND_COUNT.size
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(subscription, position)
            start = position + _LENGTH.size
            position = start + length
            if length < 0 or position > len(subscription):
                return None
            topics.append(subscription[start:position].decode())
    except (struct.error, UnicodeDecodeError):
        return None
    return topics
