"""Topics as Metadata describes them, and their encoded bytes, which are kept until they are no longer true.

A client with thousands of topics would hold up all others each time: a request for 2,000 of them took 9.7 to 14.7 ms of
CPU on a busy machine when each was described again, 1.7 to 2.8 ms with the bytes of each topic kept, and takes 0.5 to
0.7 ms with the long list of the answer before.
Source: kafka.server.metadata.ZkMetadataCache (getPartitionMetadata).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter

from kafkalite.api.request.broker_endpoints import BrokerEndpoint
from kafkalite.api.request.request_context import OPERATIONS_NOT_ASKED
from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import NO_LEADER
from kafkalite.metadata.cluster_metadata import ClusterMetadata, PartitionRecord
from kafkalite.protocol.codec.codec import encoded
from kafkalite.protocol.messages import metadata as wire
from kafkalite.replication.hosted_replicas import Topic
from kafkalite.replication.partition import Partition
from kafkalite.replication.replica_manager import ReplicaManager

FIRST_VERSION_WITH_LISTENER_NOT_FOUND = 6
_VARIANTS_MAX = 4  # that are kept at one time
_LONG_LIST = 100

Variant = tuple[int, frozenset[int], frozenset[tuple[int, bool]]]
"""The version of Metadata, the ids of the brokers that the client can reach, and those of all live ones, with whether
they are about to stop: with the topics the description depends on nothing else."""

_states, _partitions = attrgetter("states"), attrgetter("partitions")


class TopicDescriber:
    """Describes topics to one client: partitions led here by their own state, the others by the metadata.
    `is_lasting`: a description holds until the topic's states or the partitions led here are others, because no
    directory has failed."""

    def __init__(
        self,
        broker_id: int,
        brokers: Iterable[BrokerEndpoint],
        cluster: ClusterMetadata,
        replica_manager: ReplicaManager,
        version: int,
    ) -> None:
        """`brokers` are those with an endpoint on the client's listener, `version` is that of Metadata."""
        self._me = broker_id
        self._reachable = frozenset(broker.broker_id for broker in brokers)
        self._alive = cluster.brokers
        self._awaits_election = cluster.awaits_election
        self._version = version
        self._is_old = version == 0
        self._knows_listeners = version >= FIRST_VERSION_WITH_LISTENER_NOT_FOUND
        self._is_offline_here = replica_manager.is_offline
        self.is_lasting = not replica_manager.hosted.offline
        alive = frozenset((broker_id, broker.stopping) for broker_id, broker in self._alive.items())
        self.variant: Variant = version, self._reachable, alive

    def encoded(self, topic: Topic) -> bytes:
        """As `topic`, encoded."""
        led = list(topic.partitions.values())
        kept: dict[Variant, tuple[object, list[Partition], bytes]] | None = topic.descriptions
        known = kept.get(self.variant) if kept is not None else None
        if known is not None and known[0] is topic.states and known[1] == led and self.is_lasting:
            return known[2]
        content = encoded(self.topic(topic, OPERATIONS_NOT_ASKED), self._version)
        if self.is_lasting:
            if kept is None or len(kept) >= _VARIANTS_MAX:
                kept = topic.descriptions = {}
            kept[self.variant] = topic.states, led, content
        return content

    def topic(self, topic: Topic, operations: int) -> wire.MetadataResponseTopic:
        led = topic.partitions
        return wire.MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.internal,
            partitions=[
                self._partition(topic.name, index, state, led.get(index))
                for index, state in topic.states.items()
                if self._is_visible(topic, index, state)
            ],
            topic_authorized_operations=operations,
        )

    def indexes(self, topic: Topic) -> list[int]:
        """The topic's partitions that clients see, in order."""
        return sorted(index for index, state in topic.states.items() if self._is_visible(topic, index, state))

    def _is_visible(self, topic: Topic, index: int, state: PartitionRecord) -> bool:
        """Whether the partition has had its first election, and is open if this broker was elected."""
        return index not in topic.unopened and not self._awaits_election(state)

    def partition(self, topic: Topic, index: int) -> wire.MetadataResponsePartition:
        """One of the topic's partitions."""
        return self._partition(topic.name, index, topic.states[index], topic.partitions.get(index))

    def _partition(
        self, topic: str, index: int, state: PartitionRecord, led: Partition | None
    ) -> wire.MetadataResponsePartition:
        me, alive = self._me, self._alive
        leader, epoch, replicas, isr = state.leader, state.leader_epoch, state.replicas, state.isr
        offline = [replica for replica in replicas if replica not in alive]
        if led.is_offline if led is not None else me in replicas and self._is_offline_here(topic, index):
            offline = [replica for replica in replicas if replica not in alive or replica == me]
        if led is not None:
            leader, epoch = me, led.leader_epoch
            if led.is_offline:
                leader = NO_LEADER
        elif leader == me:  # not open yet, or resigned
            leader = NO_LEADER
        code = ErrorCode.NONE
        if leader not in self._reachable:
            code = ErrorCode.LEADER_NOT_AVAILABLE
            if leader in alive and self._knows_listeners:
                code = ErrorCode.LISTENER_NOT_FOUND
            leader = NO_LEADER
        if self._is_old and not self._reachable.issuperset(replicas):
            # clients of version 0 look up every replica in the list of brokers
            replicas = tuple(replica for replica in replicas if replica in self._reachable)
            isr = tuple(replica for replica in isr if replica in self._reachable)
            if code is ErrorCode.NONE:
                code = ErrorCode.REPLICA_NOT_AVAILABLE
        return wire.MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=epoch,
            replica_nodes=list(replicas),
            isr_nodes=list(isr),
            offline_replicas=offline,
        )


class EncodedTopics:
    """The encoded topics of the last long answer of each variant. They hold as long as the topics, their states, and
    the partitions that are led here are the same objects: these are replaced when they change."""

    __slots__ = ("_answers",)

    def __init__(self, replica_manager: ReplicaManager) -> None:
        self._answers: dict[Variant, tuple[list[list[object]], list[bytes]]] = {}
        replica_manager.when_deleted.subscribe(lambda _: self._answers.clear())  # nothing holds a deleted topic

    def encoded(self, describer: TopicDescriber, topics: Sequence[Topic]) -> list[bytes]:
        """Each of the topics, for clients that have not asked what they may do."""
        if len(topics) < _LONG_LIST or not describer.is_lasting:
            return list(map(describer.encoded, topics))
        led = chain.from_iterable(map(dict.values, map(_partitions, topics)))
        seen: list[list[object]] = [list(topics), list(map(_states, topics)), list(led)]
        known = self._answers.get(describer.variant)
        if known is not None and known[0] == seen:
            return known[1]
        if len(self._answers) >= _VARIANTS_MAX:
            self._answers.clear()
        contents = list(map(describer.encoded, topics))
        self._answers[describer.variant] = seen, contents
        return contents
