"""Transactions over three brokers on a real ZooKeeper: markers, and questions to coordinators, travel between them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from kafkalite.common.errors import ErrorCode
from kafkalite.common.names import TRANSACTION_STATE_TOPIC, ProducerIdAndEpoch
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafkalite.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkalite.protocol.messages.groups import FindCoordinatorRequest
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from kafkalite.record.batch import NewRecord, build_batch, iter_batches
from kafkalite.record.record import read_records
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.transactions.transaction_requests import DIALECTS, Dialect
from tests.support.zookeeper import ZooKeeper

OK = ErrorCode.NONE
GROUP, TRANSACTION = 0, 1
LATEST = -1
PASSING = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
}
NEW = DIALECTS["new"]
Story = Callable[[ThreeBrokers], Awaitable[None]]


@pytest.fixture
def together(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> Callable[[Story], None]:
    """One life of the three, with a topic `t` of six partitions."""

    def together(story: Story) -> None:
        async def life() -> None:
            settings = {"transaction_state_log_num_partitions": 6}
            async with three_brokers(zookeeper.connect + chroot, tmp_path, **settings) as cluster:
                await cluster.create("t", 6)
                await story(cluster)

        uvloop.run(life())

    return together


class Producer:
    """Asks the coordinator and the leaders that it finds, again and again while the error is a passing one."""

    def __init__(self, cluster: ThreeBrokers, dialect: Dialect, name: str = "copy") -> None:
        self.cluster = cluster
        self.dialect = dialect
        self.name = name
        self.ids = ProducerIdAndEpoch(-1, -1)
        self.sequences: dict[int, int] = defaultdict(int)

    async def init(self) -> None:
        await coordinator(self.cluster, self.name)
        request = InitProducerIdRequest(transactional_id=self.name, transaction_timeout_ms=60_000)
        answer = await self._ask(request, self.dialect.init, lambda answer: answer.error_code)
        assert answer.error_code == OK
        self.ids = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
        self.sequences.clear()

    async def add(self, indexes: Iterable[int]) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=list(indexes))],
            v3_and_below_producer_id=self.ids.producer_id,
            v3_and_below_producer_epoch=self.ids.producer_epoch,
        )

        def error(answer: Any) -> int:
            (topic,) = answer.results_by_topic_v3_and_below
            return max(each.partition_error_code for each in topic.results_by_partition)

        return ErrorCode(error(await self._ask(request, self.dialect.add_partitions, error)))

    async def send(self, index: int, value: bytes, *, patient: bool = True) -> ErrorCode:
        """One record to the leader of a partition. Not `patient`: the first answer."""
        batch = build_batch(
            [NewRecord(None, value, timestamp=time.time_ns() // 1_000_000)],
            **self.ids._asdict(),
            base_sequence=self.sequences[index],
            transactional=True,
        )
        data = PartitionProduceData(index=index, records=memoryview(batch))
        topic = TopicProduceData(name="t", partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic], transactional_id=self.name)

        def error(answer: Any) -> int:
            return int(answer.responses[0].partition_responses[0].error_code)

        leader = self.cluster.leaders("t")[index]
        code = ErrorCode(error(await self._ask(request, self.dialect.produce, error, leader, patient=patient)))
        self.sequences[index] += code == OK
        return code

    async def commit_offset(self, group: str, offset: int) -> ErrorCode:
        """Of partition 0, at the coordinator of the group."""
        at = await coordinator(self.cluster, group, GROUP)
        if self.dialect.adds:
            request = AddOffsetsToTxnRequest(transactional_id=self.name, group_id=group, **self.ids._asdict())
            answer = await self._ask(request, self.dialect.add_offsets, lambda answer: answer.error_code)
            assert answer.error_code == OK
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        commit = TxnOffsetCommitRequest(
            transactional_id=self.name, group_id=group, topics=[topic], **self.ids._asdict()
        )

        def error(answer: Any) -> int:
            return int(answer.topics[0].partitions[0].error_code)

        return ErrorCode(error(await self._ask(commit, self.dialect.commit_offsets, error, at)))

    async def end(self, *, commit: bool) -> ErrorCode:
        request = EndTxnRequest(transactional_id=self.name, committed=commit, **self.ids._asdict())
        answer = await self._ask(request, self.dialect.end, lambda answer: answer.error_code)
        if answer.error_code == OK and not self.dialect.adds:
            assert (answer.producer_id, answer.producer_epoch) == (self.ids.producer_id, self.ids.producer_epoch + 1)
            self.ids = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)
            self.sequences.clear()
        return ErrorCode(answer.error_code)

    async def state(self) -> tuple[str, set[tuple[str, int]]]:
        """The transaction's state, and its partitions."""
        request = DescribeTransactionsRequest(transactional_ids=[self.name])
        answer = await self._ask(request, 0, lambda answer: answer.transaction_states[0].error_code)
        (state,) = answer.transaction_states
        assert state.error_code == OK
        return state.transaction_state, {(each.topic, index) for each in state.topics for index in each.partitions}

    async def await_state(self, wanted: str) -> None:
        while (await self.state())[0] != wanted:  # each question is a turn of every loop
            pass

    async def _ask(
        self,
        request: Any,
        version: int,
        error: Callable[[Any], int],
        broker: int | None = None,
        *,
        patient: bool = True,
    ) -> Any:
        while True:
            at = await coordinator(self.cluster, self.name) if broker is None else broker
            answer = await self.cluster.ask(at, request, version)
            if not patient or error(answer) not in PASSING:
                return answer


async def coordinator(cluster: ThreeBrokers, key: str, key_type: int = TRANSACTION) -> int:
    while True:
        answer = await cluster.ask(next(iter(cluster.crowds)), FindCoordinatorRequest(key=key, key_type=key_type), 2)
        if answer.error_code == OK and answer.node_id in cluster.crowds:
            return int(answer.node_id)


async def end_offset(cluster: ThreeBrokers, index: int, *, read_committed: bool) -> int:
    wanted = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=index, timestamp=LATEST)])
    request = ListOffsetsRequest(replica_id=-1, isolation_level=int(read_committed), topics=[wanted])
    (topic,) = (await cluster.ask(cluster.leaders("t")[index], request, 7)).topics
    assert topic.partitions[0].error_code == OK
    return int(topic.partitions[0].offset)


async def open_count(cluster: ThreeBrokers) -> int:
    """How many partitions have an open transaction."""
    count = 0
    for index in cluster.leaders("t"):
        stable = await end_offset(cluster, index, read_committed=True)
        count += stable < await end_offset(cluster, index, read_committed=False)
    return count


async def read_committed(cluster: ThreeBrokers, index: int) -> list[bytes]:
    wanted = FetchTopic(topic="t", partitions=[FetchPartition(partition=index, partition_max_bytes=1 << 20)])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=1, topics=[wanted])
    data = (await cluster.ask(cluster.leaders("t")[index], request, 11)).responses[0].partitions[0]
    assert data.error_code == OK
    aborted = {(each.producer_id, each.first_offset) for each in data.aborted_transactions or []}
    values: list[bytes] = []
    dropped: set[int] = set()
    for header, batch in iter_batches(memoryview(data.records)):
        if header.is_control:
            dropped.discard(header.producer_id)
            continue
        if (header.producer_id, header.base_offset) in aborted:
            dropped.add(header.producer_id)
        if header.producer_id not in dropped:
            values += [record.value or b"" for record in read_records(batch)]
    return values


async def committed_offset(cluster: ThreeBrokers, group: str, *, stable: bool) -> tuple[ErrorCode, int]:
    """The error and the offset of partition 0."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=stable)
    answer = await cluster.ask(await coordinator(cluster, group, GROUP), request, 8)
    (partition,) = answer.groups[0].topics[0].partitions
    return ErrorCode(partition.error_code), partition.committed_offset


async def groups_of_all(cluster: ThreeBrokers) -> list[str]:
    """A group at each broker."""
    groups: dict[int, str] = {}
    for number in range(100):
        groups.setdefault(await coordinator(cluster, f"g{number}", GROUP), f"g{number}")
    assert groups.keys() == set(IDS)
    return list(groups.values())


@pytest.mark.parametrize("dialect", ["mid", "late", "new"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_over_partitions_and_groups_of_all_brokers(
    together: Callable[[Story], None], dialect: str, commit: bool
) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        groups = await groups_of_all(cluster)
        producer = Producer(cluster, DIALECTS[dialect])
        await producer.init()
        for number in range(2):
            if producer.dialect.adds:
                assert await producer.add(range(6)) == OK
            for index in range(6):
                assert await producer.send(index, b"%d" % number) == OK
            for group in groups:
                assert await producer.commit_offset(group, 100 + number) == OK
                assert (await committed_offset(cluster, group, stable=True))[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
            state, partitions = await producer.state()
            assert state == "Ongoing"
            assert {index for topic, index in partitions if topic == "t"} == set(range(6))
            assert await open_count(cluster) == 6
            before = [b"%d" % each for each in range(number)] if commit else []
            assert [await read_committed(cluster, index) for index in range(6)] == [before] * 6
            assert await producer.end(commit=commit) == OK
            await producer.await_state("CompleteCommit" if commit else "CompleteAbort")
            assert await open_count(cluster) == 0
            for group in groups:
                told = await committed_offset(cluster, group, stable=True)
                assert told == (OK, 100 + number if commit else -1)
        after = [b"0", b"1"] if commit else []
        assert [await read_committed(cluster, index) for index in range(6)] == [after] * 6

    together(story)


@pytest.mark.parametrize(
    ("dialect", "error"),
    [("mid", ErrorCode.INVALID_TXN_STATE), ("late", ErrorCode.TRANSACTION_ABORTABLE)],
)
def test_a_partition_asks_the_coordinator_wherever_it_is(
    together: Callable[[Story], None], dialect: str, error: ErrorCode
) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        producer = Producer(cluster, DIALECTS[dialect])
        await producer.init()
        assert await producer.add([0]) == OK
        assert await producer.send(0, b"0") == OK
        for index in range(1, 6):  # led by every broker
            assert await producer.send(index, b"not added") == error
            assert await end_offset(cluster, index, read_committed=False) == 0
        assert await producer.end(commit=False) == OK
        await producer.await_state("CompleteAbort")
        assert await producer.send(0, b"too late") == error

    together(story)


def test_a_late_batch_of_the_last_transaction_is_refused_by_every_broker(together: Callable[[Story], None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        producer, zombie = Producer(cluster, NEW), Producer(cluster, NEW)
        await producer.init()
        for index in range(6):
            assert await producer.send(index, b"1") == OK
        zombie.ids, zombie.sequences = producer.ids, producer.sequences.copy()
        assert await producer.end(commit=True) == OK
        await producer.await_state("CompleteCommit")
        for index in range(6):
            assert await zombie.send(index, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
        assert await zombie.end(commit=True) == OK  # a repeated request for the same transaction
        assert await open_count(cluster) == 0
        assert [await read_committed(cluster, index) for index in range(6)] == [[b"1"]] * 6

    together(story)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("dialect", ["late", "new"])
def test_a_coordinator_that_was_away_finishes_what_it_prepared(
    together: Callable[[Story], None], dialect: str, commit: bool
) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        producer = Producer(cluster, DIALECTS[dialect])
        await producer.init()
        if producer.dialect.adds:
            assert await producer.add(range(6)) == OK
        for index in range(6):
            assert await producer.send(index, b"1") == OK
        own = await coordinator(cluster, producer.name)
        away = next(number for number in IDS if number != own)
        theirs = [index for index, leader in cluster.leaders("t").items() if leader == away]
        await cluster.stop(away)
        assert await producer.end(commit=commit) == OK
        prepared = "PrepareCommit" if commit else "PrepareAbort", {("t", index) for index in theirs}
        while await producer.state() != prepared:  # all others have their markers
            pass
        await cluster.stop(own)
        await cluster.start(away)
        for index in theirs:
            await cluster.until(lambda index=index: cluster.leaders("t")[index] == away)
            await cluster.until(lambda index=index: index in cluster.topics(away).by_name["t"].partitions)
            assert await end_offset(cluster, index, read_committed=True) == 0
        await cluster.start(own)
        await cluster.until(lambda: cluster.is_led("t", 6) and cluster.is_led(TRANSACTION_STATE_TOPIC, 6))
        await producer.await_state("CompleteCommit" if commit else "CompleteAbort")
        assert await open_count(cluster) == 0
        assert [await read_committed(cluster, index) for index in range(6)] == [[b"1"] if commit else []] * 6
        assert await producer.add(range(6)) == OK
        for index in range(6):
            assert await producer.send(index, b"2") == OK
        assert await producer.end(commit=True) == OK
        await producer.await_state("CompleteCommit")

    together(story)


def test_while_its_coordinator_is_away_a_producer_is_asked_to_wait(together: Callable[[Story], None]) -> None:
    async def story(cluster: ThreeBrokers) -> None:
        producer = Producer(cluster, NEW)
        await producer.init()
        own = await coordinator(cluster, producer.name)
        leaders = cluster.leaders("t")
        first, second = [index for index, leader in leaders.items() if leader != own][:2]
        assert await producer.send(first, b"1") == OK
        await cluster.stop(own)
        assert await producer.send(first, b"2") == OK  # the transaction is open in this partition
        assert await producer.send(second, b"3", patient=False) == ErrorCode.NOT_ENOUGH_REPLICAS
        await cluster.start(own)
        await cluster.until(lambda: cluster.is_led("t", 6) and cluster.is_led(TRANSACTION_STATE_TOPIC, 6))
        assert await producer.send(second, b"3") == OK
        assert await producer.end(commit=True) == OK
        await producer.await_state("CompleteCommit")
        assert await read_committed(cluster, first) == [b"1", b"2"]
        assert await read_committed(cluster, second) == [b"3"]

    together(story)
