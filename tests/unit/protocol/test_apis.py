"""The table lists what the broker promises, under Kafka's numbers and names."""

from __future__ import annotations

from typing import Any

import kafka.protocol.admin as kafka_admin
import kafka.protocol.consumer as kafka_consumer
import kafka.protocol.metadata as kafka_metadata
import kafka.protocol.producer as kafka_producer
import kafka.protocol.sasl as kafka_sasl

from kafkalite.protocol.apis import API_OF_REQUEST, APIS
from tests.support.message_verdicts import NEW_APIS

OF_JAVA = {
    api.key for api in NEW_APIS if api.versions.start == 0 or api.key in range(76, 80)
}  # test_golden_messages.py


def test_the_ranges_are_these() -> None:
    promised = """
        Produce 0-13, Fetch 0-18, ListOffsets 0-11, Metadata 0-13, OffsetCommit 0-10, OffsetFetch 0-10,
        FindCoordinator 0-6, JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5, DescribeGroups 0-6,
        ListGroups 0-5, DeleteGroups 0-2, ApiVersions 0-4, CreateTopics 0-7, DeleteTopics 0-6, CreatePartitions 0-3,
        AlterReplicaLogDirs 0-2, ElectLeaders 0-2, AlterPartitionReassignments 0-0,
        SaslHandshake 0-1, SaslAuthenticate 0-2, DescribeUserScramCredentials 0-0, AlterUserScramCredentials 0-0,
        DescribeClientQuotas 0-1, AlterClientQuotas 0-1,
        CreateDelegationToken 0-3, RenewDelegationToken 0-2, ExpireDelegationToken 0-2, DescribeDelegationToken 0-3,
        DescribeAcls 0-3, CreateAcls 0-3, DeleteAcls 0-3,
        DescribeConfigs 0-4, IncrementalAlterConfigs 0-1, AlterConfigs 0-2, DescribeCluster 0-2, DeleteRecords 0-2,
        InitProducerId 0-5, OffsetForLeaderEpoch 0-4, OffsetDelete 0-0, DescribeLogDirs 0-4,
        ListPartitionReassignments 0-0, AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-5, WriteTxnMarkers 0-2,
        TxnOffsetCommit 0-5, DescribeProducers 0-0, DescribeTransactions 0-0, ListTransactions 0-2,
        ListConfigResources 0-1, ConsumerGroupHeartbeat 0-1, ConsumerGroupDescribe 0-1, UpdateFeatures 0-2,
        DescribeQuorum 0-2, GetTelemetrySubscriptions 0-0, PushTelemetry 0-0, DescribeTopicPartitions 0-0,
        ShareGroupHeartbeat 1-1, ShareGroupDescribe 1-1, ShareFetch 1-2, ShareAcknowledge 1-2,
        InitializeShareGroupState 0-0, ReadShareGroupState 0-0, WriteShareGroupState 0-1, DeleteShareGroupState 0-0,
        ReadShareGroupStateSummary 0-1, StreamsGroupHeartbeat 0-0, StreamsGroupDescribe 0-0,
        DescribeShareGroupOffsets 0-1, AlterShareGroupOffsets 0-0,
        DeleteShareGroupOffsets 0-0
    """
    assert {f"{api.name} {api.min_version}-{api.max_version}" for api in APIS.values()} == {
        line.strip() for line in promised.replace("\n", " ").split(",")
    }


def test_numbers_names_and_flexible_versions_are_kafkas() -> None:
    modules = (kafka_admin, kafka_consumer, kafka_metadata, kafka_producer, kafka_sasl)
    for api in APIS.values():
        if api.name.endswith("DelegationToken") or api.key in OF_JAVA:
            continue  # kafka-python does not have all of them
        for ours in (api.request, api.response):
            theirs: Any = next(getattr(module, ours.__name__) for module in modules if hasattr(module, ours.__name__))
            assert api.key == theirs.API_KEY
            assert theirs.name == ours.__name__
            for version in range(api.min_version, api.max_version + 1):
                assert theirs.flexible_version_q(version) == (version in ours.flexible)
        assert API_OF_REQUEST[api.request] is api
