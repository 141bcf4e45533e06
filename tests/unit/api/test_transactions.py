"""Transactions at a whole broker, asked by raw frames: every version, both protocols, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.apis import APIS
from kafkalite.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.metadata import ApiVersionsRequest
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkalite.record.batch import NewRecord, build_batch

OLD, NEW = 11, 12
"""The newest Produce of transaction.version 0, and the one of transaction.version 2."""


class Producer:
    """A transactional producer, one request at a time."""

    def __init__(self, asker: Any, name: str) -> None:
        self.asker = asker
        self.name = name
        self.id = self.epoch = -1
        self.topic_id = ZERO_UUID  # needed from version 13 of Produce on
        self.sequences: dict[int, int] = {}

    @property
    def identity(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}

    async def begin(self, version: int = 5) -> Producer:
        """The id, and the next epoch of the id."""
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = await self.asker.ask(request, version)
        assert answer.error_code == 0
        self.id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        return self

    async def add(self, *partitions: int, version: int = 3) -> list[int]:
        topic = AddPartitionsToTxnTopic(name="t", partitions=list(partitions))
        if version >= 4:
            transaction = AddPartitionsToTxnTransaction(**self.identity, topics=[topic])
            answer = await self.asker.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
            topics = answer.results_by_transaction[0].topic_results
        else:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=self.id,
                v3_and_below_producer_epoch=self.epoch,
                v3_and_below_topics=[topic],
            )
            topics = (await self.asker.ask(request, version)).results_by_topic_v3_and_below
        return [one.partition_error_code for each in topics for one in each.results_by_partition]

    async def produce(
        self, partition: int = 0, version: int = OLD, *, transactional: bool = True, named: bool = True
    ) -> int:
        """The error of one record; the next one has the next sequence if there is none."""
        sequence = self.sequences.get(partition, 0)
        batch = build_batch(
            [NewRecord(None, b"v", timestamp=1)],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        data = PartitionProduceData(index=partition, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.name if named else None,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="t", topic_id=self.topic_id, partition_data=[data])],
        )
        answer = (await self.asker.ask(request, version)).responses[0].partition_responses[0]
        self.message = answer.error_message
        if not answer.error_code:
            self.sequences[partition] = sequence + 1
        return int(answer.error_code)

    async def end(self, *, commit: bool = True, version: int = 4) -> int:
        answer = await self.asker.ask(EndTxnRequest(**self.identity, committed=commit), version)
        if version >= 5 and not answer.error_code:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return int(answer.error_code)

    async def commit_offset(self, group: str, offset: int, version: int = 3) -> int:
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]
        request = TxnOffsetCommitRequest(**self.identity, group_id=group, topics=topics)
        return int((await self.asker.ask(request, version)).topics[0].partitions[0].error_code)


async def stage(asker: Any, broker: Any) -> None:
    """Topic t, and the coordinator's."""
    await broker._running.topic_admin.create("t", 2, {})
    for key_type in (0, 1):
        assert (await asker.ask(FindCoordinatorRequest(key="x", key_type=key_type), 3)).error_code == 0


async def stable_offsets(asker: Any) -> list[tuple[int, int]]:
    """The last stable offset and the high watermark of partitions 0 and 1."""
    wanted = [FetchPartition(partition=i, fetch_offset=0) for i in range(2)]
    request = FetchRequest(isolation_level=1, max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=wanted)])
    partitions = (await asker.ask(request, 12)).responses[0].partitions
    return [(each.last_stable_offset, each.high_watermark) for each in partitions]


async def committed(asker: Any, group: str) -> int:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    answer = await asker.ask(OffsetFetchRequest(group_id=group, topics=topics, require_stable=True), 7)
    (found,) = answer.topics[0].partitions
    return int(found.error_code or found.committed_offset)


def test_every_version_of_every_request(tell: Callable[..., None]) -> None:
    def versions(key: int) -> range:
        return range(APIS[key].min_version, APIS[key].max_version + 1)

    async def story(asker: Any, broker: Any) -> None:
        await stage(asker, broker)
        producer = Producer(asker, "x")
        for epoch, version in enumerate(versions(22)):
            assert (await producer.begin(version)).epoch == epoch
        for version in versions(24):
            assert await producer.add(0, 1, version=version) == [0, 0]
        for version in versions(25):
            request = AddOffsetsToTxnRequest(**producer.identity, group_id="g")
            assert (await asker.ask(request, version)).error_code == 0
        producer.topic_id = broker._running.replica_manager.by_name["t"].topic_id
        for version in versions(0)[3:]:
            assert await producer.produce(version=version) == 0
        for version in versions(28):
            assert await producer.commit_offset("g", 7, version) == 0
        for version in versions(26):
            assert await producer.end(commit=False, version=version) == 0, "an abort that is repeated is the same"
            if version < 5:
                assert await producer.add(0) == [0] and await producer.produce() == 0
        for version in versions(66):
            listed = await asker.ask(ListTransactionsRequest(), version)
            assert [each.transactional_id for each in listed.transaction_states] == ["x"]

    tell(story)


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_in_all_of_its_partitions(tell: Callable[..., None], version: int, commit: bool) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await stage(asker, broker)
        producer = await Producer(asker, "x").begin()
        for number in range(3):
            if version == OLD:
                assert await producer.add(0, 1) == [0, 0]
                added = await asker.ask(AddOffsetsToTxnRequest(**producer.identity, group_id="g"), 4)
                assert added.error_code == 0
            before, epoch = await stable_offsets(asker), producer.epoch
            for partition in (0, 1, 0):
                assert await producer.produce(partition, version) == 0
            assert await producer.commit_offset("g", 10 + number, 5 if version == NEW else 3) == 0
            assert await committed(asker, "g") == ErrorCode.UNSTABLE_OFFSET_COMMIT
            assert [lso for lso, _ in await stable_offsets(asker)] == [lso for lso, _ in before]
            assert await producer.end(commit=commit, version=5 if version == NEW else 4) == 0
            assert producer.epoch == epoch + (version == NEW)
            assert await stable_offsets(asker) == [(3 * number + 3,) * 2, (2 * number + 2,) * 2]
            assert await committed(asker, "g") == (10 + number if commit else -1)

    tell(story)


def test_records_of_a_partition_that_was_not_added_are_refused(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await stage(asker, broker)
        producer = await Producer(asker, "x").begin()
        assert await producer.produce(version=10) == ErrorCode.INVALID_TXN_STATE
        assert producer.message == "Partition was not added to the transaction"
        assert await producer.produce(version=11) == ErrorCode.TRANSACTION_ABORTABLE
        assert await producer.commit_offset("g", 1) == ErrorCode.INVALID_TXN_STATE
        assert await producer.commit_offset("g", 1, 4) == ErrorCode.TRANSACTION_ABORTABLE
        assert await producer.add(0) == [0]
        assert await producer.produce() == 0
        assert await producer.produce(1) == ErrorCode.TRANSACTION_ABORTABLE
        stranger = Producer(asker, "stranger")
        stranger.id, stranger.epoch = producer.id, producer.epoch
        assert await stranger.produce(1) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await producer.end() == 0
        assert await producer.produce() == ErrorCode.TRANSACTION_ABORTABLE, "after the marker it is another transaction"
        assert await producer.produce(named=False) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    tell(story)


def test_plain_records_of_a_producer_in_a_transaction_are_refused(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await stage(asker, broker)
        producer = await Producer(asker, "x").begin()
        assert await producer.add(0) == [0] and await producer.produce() == 0
        assert await producer.produce(transactional=False) == ErrorCode.INVALID_TXN_STATE
        assert await producer.end() == 0
        assert await producer.produce(transactional=False) == 0

    tell(story)


@pytest.mark.parametrize("version", [OLD, NEW])
def test_a_zombie_is_fenced(tell: Callable[..., None], version: int) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await stage(asker, broker)
        zombie = await Producer(asker, "x").begin()
        if version == OLD:
            assert await zombie.add(0) == [0]
        assert await zombie.produce(version=version) == 0
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        busy = await asker.ask(request, 4)
        assert busy.error_code == ErrorCode.CONCURRENT_TRANSACTIONS, "its transaction is aborted first"
        heir = await Producer(asker, "x").begin()
        assert heir.id == zombie.id and heir.epoch > zombie.epoch
        assert await stable_offsets(asker) == [(2, 2), (0, 0)]
        assert await zombie.produce(version=version) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.produce(1, version) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.end() == ErrorCode.PRODUCER_FENCED
        assert await zombie.end(version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.add(0) == [ErrorCode.PRODUCER_FENCED]

    tell(story)


def test_verification_can_be_switched_off(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await stage(asker, broker)
        producer = await Producer(asker, "x").begin()

        async def switch(value: str) -> None:
            name = "transaction.partition.verification.enable"
            change = IncrementalAlterableConfig(name=name, config_operation=0, value=value)
            resource = IncrementalAlterConfigsResource(resource_type=4, resource_name="", configs=[change])
            answer = await asker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert answer.responses[0].error_code == 0

        assert await producer.produce(version=10) == ErrorCode.INVALID_TXN_STATE
        await switch("false")
        assert await producer.produce(version=10) == 0
        assert await stable_offsets(asker) == [(0, 1), (0, 0)]
        await switch("true")
        assert await producer.produce(version=10) == 0, "it is open in the partition"
        assert await producer.produce(1, version=10) == ErrorCode.INVALID_TXN_STATE

    tell(story)


def test_markers_of_another_broker_end_a_transaction_that_hangs(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await stage(asker, broker)
        producer = await Producer(asker, "x").begin()
        assert await producer.add(0) == [0] and await producer.produce() == 0

        async def described() -> list[tuple[int, int, int]]:
            topics = [DescribeProducersTopicRequest(name="t", partition_indexes=[0])]
            (partition,) = (await asker.ask(DescribeProducersRequest(topics=topics), 0)).topics[0].partitions
            assert not partition.error_code and partition.error_message is None
            return [
                (each.producer_id, each.last_sequence, each.current_txn_start_offset)
                for each in partition.active_producers
            ]

        async def write(index: int, coordinator_epoch: int, version: int) -> int:
            marker = WritableTxnMarker(
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                transaction_result=False,
                coordinator_epoch=coordinator_epoch,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[index])],
            )
            answer = await asker.ask(WriteTxnMarkersRequest(markers=[marker]), version)
            return int(answer.markers[0].topics[0].partitions[0].error_code)

        assert await described() == [(producer.id, 0, 0)]
        assert await write(0, 5, 0) == 0
        assert await described() == [(producer.id, 0, -1)]
        assert await write(0, 4, 1) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert await write(99, 5, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await stable_offsets(asker) == [(2, 2), (0, 0)]

    tell(story)


def test_transactions_are_described_and_listed(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await stage(asker, broker)
        busy, idle = await Producer(asker, "busy").begin(), await Producer(asker, "idle").begin()
        assert await busy.add(1, 0) == [0, 0]
        described = await asker.ask(DescribeTransactionsRequest(transactional_ids=["busy", "idle", "none", ""]), 0)
        first, second, missing, empty = described.transaction_states
        assert (first.transaction_state, first.transaction_timeout_ms) == ("Ongoing", 60_000)
        assert [(each.topic, each.partitions) for each in first.topics] == [("t", [0, 1])]
        assert first.transaction_start_time_ms > 0
        assert (second.transaction_state, second.topics, second.producer_id) == ("Empty", [], idle.id)
        assert missing.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST

        async def listed(**filters: Any) -> list[str]:
            answer = await asker.ask(ListTransactionsRequest(**filters), 1)
            return sorted(each.transactional_id for each in answer.transaction_states)

        assert await listed() == ["busy", "idle"]
        assert await listed(state_filters=["Ongoing", "Dead"]) == ["busy"]
        assert await listed(producer_id_filters=[idle.id, 999]) == ["idle"]
        assert await listed(duration_filter=3_600_000) == ["idle"], "as in Kafka: it never began one"
        odd = await asker.ask(ListTransactionsRequest(state_filters=["Odd", "Empty"]), 1)
        assert (odd.unknown_state_filters, len(odd.transaction_states)) == (["Odd"], 1)

    tell(story)


def test_the_producers_of_partitions_that_are_not_here(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        await stage(asker, broker)
        topics = [
            DescribeProducersTopicRequest(name=name, partition_indexes=[0, 99]) for name in ("t", "absent", "no topic")
        ]
        answer = await asker.ask(DescribeProducersRequest(topics=topics), 0)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        t, absent, invalid = (
            [(one.error_code, one.error_message) for one in each.partitions] for each in answer.topics
        )
        assert t == [(0, None), (unknown, None)]
        assert absent == [(unknown, "This server does not host this topic-partition.")] * 2
        assert {code for code, _ in invalid} == {ErrorCode.INVALID_TOPIC_EXCEPTION} and "no topic" in invalid[0][1]

    tell(story)


def test_features_are_at_their_highest_levels(tell: Callable[..., None]) -> None:
    async def story(asker: Any, broker: Any) -> None:
        request = ApiVersionsRequest(client_software_name="asker", client_software_version="1")
        for version in range(5):
            answer = await asker.ask(request, version)
            supported = [(each.name, each.min_version, each.max_version) for each in answer.supported_features]
            finalized = [
                (each.name, each.min_version_level, each.max_version_level) for each in answer.finalized_features
            ]
            assert supported == (
                [
                    ("group.version", 0, 1),
                    ("share.version", 0, 1),
                    ("streams.version", 0, 1),
                    ("transaction.version", 0, 2),
                ]
                if version >= 4
                else []
            )
            assert finalized == (
                [
                    ("group.version", 1, 1),
                    ("share.version", 1, 1),
                    ("streams.version", 1, 1),
                    ("transaction.version", 2, 2),
                ]
                if version >= 3
                else []
            )
            assert answer.finalized_features_epoch == (0 if version >= 3 else -1)

    tell(story)
