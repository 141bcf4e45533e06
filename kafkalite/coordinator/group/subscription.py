"""The topics that a consumer subscribes to. The broker reads nothing else in a member's metadata.

Source: kafka.coordinator.group.GroupMetadata.computeSubscribedTopics (3.9).
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkalite.protocol.records import consumer_protocol

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics of all these subscriptions; None if one of them cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        found = consumer_protocol.subscribed_topics(subscription)
        if found is None:
            return None
        topics.update(found)
    return frozenset(topics)
