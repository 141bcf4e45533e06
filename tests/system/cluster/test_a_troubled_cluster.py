"""Three brokers on one real ZooKeeper, each over a wire of its own, in trouble after trouble: cut off for a moment or
until the session has expired, met by silence, their registration taken away. Meanwhile clients write, topics come and
go, and producer ids are drawn. Which troubles come follows from a seed; how all the tasks interleave does not.

After any of these faults: what was acknowledged is there, each partition was written by one broker alone, the epochs of
its batches never go back, and no producer id was given twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.metadata import cluster_metadata
from kafkalite.metadata.cluster_metadata import RegistrationState
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.transactions import InitProducerIdRequest
from kafkalite.record.batch import NewRecord, build_batch, parse_header
from kafkalite.record.record import read_records
from kafkalite.zk.client.operations import Delete, OperationFailed, Unavailable
from kafkalite.zk.znodes import znode_paths
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.wait import DEADLINE_S
from tests.support.zookeeper import Cut, ZooKeeper
from tests.unit.api.conftest import Asker

T, PARTITION_COUNT = "orders", 6
PASSING, PASSING_COUNT = "passing", 3
PRODUCERS = 4
SESSION_TIMEOUT_MS = 800
IDS_IN_BLOCK = 5  # so that ZooKeeper is asked for producer ids all the time

SHORT_SEED = 1986  # one meets silence until its session is over, one is not registered any more, and is cut off later
SHORT_S = 2.0
LONG_S = 30.0
LONG_SEEDS = range(4)

REFUSED = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}  # clients ask again
NOT_NOW = {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}


class Kind(Enum):
    """The faults of a broker, and how many seconds each may last."""

    CUT = (0.05, 0.6)
    EXPIRED = (0.8, 2.5)
    SILENCE = (0.05, 2.5)
    UNREGISTERED = (0.2, 0.2)


class Trouble(NamedTuple):
    kind: Kind
    broker: int
    helper: int  # who takes the registration away
    lasts_s: float
    quiet_s: float  # until the next one


class Acknowledged(NamedTuple):
    offset: int
    value: bytes
    broker: int


def plan(seed: int, seconds: float) -> list[Trouble]:
    """Troubles for about that long."""
    random, troubles, planned_s = Random(seed), [], 0.0
    while planned_s < seconds:
        kind = random.choice(list(Kind))
        trouble = Trouble(
            kind, random.choice(IDS), random.choice(IDS), random.uniform(*kind.value), random.uniform(0, 0.6)
        )
        planned_s += trouble.lasts_s + trouble.quiet_s
        troubles.append(trouble)
    return troubles


class Load:
    """The requests of clients until `is_over`, and their answers. Each has a chance of its own, by `seed`."""

    def __init__(self, cluster: ThreeBrokers, seed: int) -> None:
        self.cluster = cluster
        self.seed = seed
        self.is_over = False
        self.acknowledged: dict[int, list[Acknowledged]] = defaultdict(list)
        self.codes: Counter[ErrorCode] = Counter()
        self.producer_ids: list[int] = []

    def begin(self, group: asyncio.TaskGroup) -> None:
        for number in range(PRODUCERS):
            group.create_task(self._produce(number))
        group.create_task(self._draw_producer_ids())
        group.create_task(self._change_topics())

    async def _produce(self, number: int) -> None:
        """Each value once, wherever it may lead: nothing is tried again."""
        random, askers, count = Random(f"{self.seed} {number}"), await self._connect(), 0
        while not self.is_over:
            index, broker = random.randrange(PARTITION_COUNT), random.choice(IDS)
            value = b"%d of %d" % (count, number)
            count += 1
            records = memoryview(build_batch([NewRecord(None, value, timestamp=1_000)]))
            data = TopicProduceData(name=T, partition_data=[PartitionProduceData(index=index, records=records)])
            answer = await askers[broker].ask(ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data]), 9)
            result = answer.responses[0].partition_responses[0]
            self.codes[ErrorCode(result.error_code)] += 1
            if result.error_code == ErrorCode.NONE:
                self.acknowledged[index].append(Acknowledged(result.base_offset, value, broker))
            await asyncio.sleep(0.002)

    async def _draw_producer_ids(self) -> None:
        random, askers = Random(f"{self.seed} ids"), await self._connect()
        while not self.is_over:
            answer = await askers[random.choice(IDS)].ask(InitProducerIdRequest(transactional_id=None), 4)
            assert answer.error_code in NOT_NOW, ErrorCode(answer.error_code).name
            if answer.error_code == ErrorCode.NONE:
                self.producer_ids.append(answer.producer_id)
            await asyncio.sleep(0.01)

    async def _change_topics(self) -> None:
        random = Random(f"{self.seed} topics")
        while not self.is_over:
            topic_admin = self.cluster.topic_admin(random.choice(IDS))
            with contextlib.suppress(KafkaError):  # it is there already, or not, or ZooKeeper cannot be reached
                if random.random() < 0.5:
                    await topic_admin.create(PASSING, PASSING_COUNT, {})
                else:
                    await topic_admin.delete(PASSING)
            await asyncio.sleep(0.05)

    async def _connect(self) -> dict[int, Asker]:
        return {number: await self.cluster.crowds[number].join() for number in IDS}

    def check(self) -> None:
        """Nothing that clients were told is untrue, now that the cluster is whole again."""
        assert set(self.codes) <= {ErrorCode.NONE, *REFUSED}, self.codes
        assert len(set(self.producer_ids)) == len(self.producer_ids)
        for index, leader in self.cluster.leaders(T).items():
            self._check_partition(index, leader)

    def _check_partition(self, index: int, leader: int) -> None:
        partition = self.cluster.topics(leader).partition(T, index)
        assert partition is not None
        epochs: list[int] = []
        values: list[bytes | None] = []
        for batch in partition.log.batches(0):
            header = parse_header(batch)
            assert header.base_offset == len(values)
            epochs.append(header.leader_epoch)
            values += [record.value for record in read_records(batch)]
        acknowledged = self.acknowledged[index]
        assert not [each for each in acknowledged if values[each.offset : each.offset + 1] != [each.value]], "lost"
        assert {each.broker for each in acknowledged} <= {leader}
        assert epochs == sorted(epochs)
        assert len(set(values)) == len(values)


async def suffer(cluster: ThreeBrokers, wires: dict[int, Cut], trouble: Trouble) -> None:
    """One trouble from its begin to the begin of the next."""
    wire = wires[trouble.broker]
    match trouble.kind:
        case Kind.CUT | Kind.EXPIRED:
            wire.cut()
        case Kind.SILENCE:
            wire.silence()
        case Kind.UNREGISTERED:
            with contextlib.suppress(OperationFailed, Unavailable):  # there is none, or the helper is in trouble
                await cluster.metadata(trouble.helper).session.write([Delete(znode_paths.broker(trouble.broker))])
    try:
        await asyncio.sleep(trouble.lasts_s)
    finally:
        wire.mend()
    await asyncio.sleep(trouble.quiet_s)


def is_whole(cluster: ThreeBrokers) -> bool:
    """All are members, and of one mind about both topics."""
    passing = [PASSING in cluster.topics(number).by_name for number in IDS]
    return (
        all(cluster.metadata(number).registration_state is RegistrationState.MEMBER for number in IDS)
        and cluster.is_led(T, PARTITION_COUNT)
        and (not any(passing) or cluster.is_led(PASSING, PASSING_COUNT))
    )


async def write_to_all(cluster: ThreeBrokers) -> None:
    """A record for each partition. Without a leader, looks again, as clients do."""
    async with asyncio.timeout(DEADLINE_S):
        for index in range(PARTITION_COUNT):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            while code in REFUSED:
                await cluster.until(lambda: is_whole(cluster))
                code = ErrorCode((await cluster.produce(cluster.leaders(T)[index], T, index)).error_code)
            assert code is ErrorCode.NONE


Live = Callable[[int, float], Load]


@pytest.fixture
def live(zookeeper: ZooKeeper, chroot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Live:
    monkeypatch.setattr(cluster_metadata, "PRODUCER_ID_BLOCK", IDS_IN_BLOCK)

    async def life(seed: int, seconds: float, wires: dict[int, Cut]) -> Load:
        own = {number: {"zookeeper_connect": wires[number].connect + chroot} for number in IDS}
        settings = {
            "zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS,
            "log_flush_interval_messages": 1,
            "log_retention_ms": -1,  # the records are of 1970
        }
        async with three_brokers("", tmp_path, own, **settings) as cluster:
            await cluster.until(lambda: all(len(cluster.metadata(each).brokers) == 3 for each in IDS))
            await cluster.create(T, PARTITION_COUNT)
            load = Load(cluster, seed)
            async with asyncio.TaskGroup() as group:
                load.begin(group)
                for trouble in plan(seed, seconds):
                    await suffer(cluster, wires, trouble)
                load.is_over = True
            await cluster.until(lambda: is_whole(cluster))
            load.check()
            await write_to_all(cluster)
            return load

    def live(seed: int, seconds: float) -> Load:
        with contextlib.ExitStack() as stack:
            wires = {number: stack.enter_context(Cut(zookeeper.connect)) for number in IDS}
            load = asyncio.run(life(seed, seconds, wires))
        assert not list(tmp_path.glob(f"*/{T}-*-stray"))
        return load

    return live


def test_some_troubles_cost_nothing(live: Live) -> None:
    load = live(SHORT_SEED, SHORT_S)
    assert load.codes[ErrorCode.NONE] and load.producer_ids


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_many_troubles_cost_nothing(live: Live, seed: int) -> None:
    load = live(seed, LONG_S)
    assert load.codes[ErrorCode.NONE] and load.producer_ids
