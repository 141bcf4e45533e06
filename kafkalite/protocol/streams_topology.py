"""The topology of a group of Kafka Streams as `__consumer_offsets` keeps it: record 23.

It has the same fields in the same order as that of StreamsGroupHeartbeat, so both have the same parts.
Source: StreamsGroupHeartbeatRequest.json, StreamsGroupTopologyValue.json (4.3).
"""

from __future__ import annotations

from kafkalite.protocol.codec.schema import Message, array, int32
from kafkalite.protocol.messages.streams_groups import (
    StreamsCopartitionGroup,
    StreamsKeyValue,
    StreamsSubtopology,
    StreamsTopicInfo,
    StreamsTopology,
)

__all__ = [
    "StreamsCopartitionGroup",
    "StreamsKeyValue",
    "StreamsSubtopology",
    "StreamsTopicInfo",
    "StreamsTopology",
    "StreamsTopologyValue",
]


class StreamsTopologyValue(Message, flexible="0+"):
    """Kafka's StreamsGroupTopologyValue."""

    epoch: int = int32("0+")
    subtopologies: list[StreamsSubtopology] = array(StreamsSubtopology, "0+")
