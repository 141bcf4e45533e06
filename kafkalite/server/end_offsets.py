"""The ends of partitions anywhere in the cluster, for the lag of share groups.

Source: org.apache.kafka.coordinator.group.NetworkPartitionMetadataClient (4.3): the latest offset of uncommitted reads.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkalite.common.names import TopicPartition
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic

if TYPE_CHECKING:
    from kafkalite.replication.replica_manager import ReplicaManager
    from kafkalite.server.membership.inter_broker_requests import InterBrokerRequests

_LATEST = -1
_VERSION = 5  # of ListOffsets; every broker that may be in the cluster has it


class EndOffsets:
    """Asks the leaders. `requests` sends to other brokers; None for a broker alone."""

    def __init__(self, replica_manager: ReplicaManager, requests: InterBrokerRequests | None) -> None:
        self._replica_manager = replica_manager
        self._requests = requests

    async def find(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The high watermarks. A partition whose leader does not answer is left out."""
        found: dict[TopicPartition, int] = {}
        elsewhere: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        for topic, index in partitions:
            partition = self._replica_manager.partition(topic, index)
            if partition is not None:
                found[topic, index] = partition.high_watermark
            elif (leader := self._replica_manager.leader_of(topic, index)) is not None and leader >= 0:
                elsewhere[leader].append((topic, index))
        if self._requests is not None:
            for answer in await asyncio.gather(*(self._ask(*each) for each in elsewhere.items())):
                found |= answer
        return found

    async def _ask(self, leader: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        assert self._requests is not None
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, index in partitions:
            row = ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
            topics.setdefault(topic, ListOffsetsTopic(name=topic)).partitions.append(row)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_response(response: Any) -> None:
            if not answered.done():
                answered.set_result(response)

        self._requests.send(leader, ListOffsetsRequest(topics=[*topics.values()]), _VERSION, on_response)
        response = await answered
        rows = ((topic.name, each) for topic in response.topics for each in topic.partitions) if response else ()
        return {(topic, each.partition_index): each.offset for topic, each in rows if not each.error_code}
