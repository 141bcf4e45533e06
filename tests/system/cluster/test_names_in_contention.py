"""Several tasks create, delete and grow topics of the same names, at three brokers on one real ZooKeeper, and write to
whatever they find. Each of them may be refused, for others were faster. When they are done, all brokers know the same
topics, each log belongs to the topic that there is now, and none was put aside.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from kafkalite.common.errors import ErrorCode, KafkaError
from kafkalite.log.storage.file_names import parse_partition_directory
from tests.support.three_brokers import IDS, ThreeBrokers, three_brokers
from tests.support.zookeeper import ZooKeeper

NAMES = ("orders", "payments")
PARTITION_COUNT = 3  # of a new topic; it may grow to twice as many
TASKS = 4

SHORT_SEED = 1
SHORT_ROUNDS = 20  # of each task
LONG_SEEDS = range(8)
LONG_ROUNDS = 300

TOO_LATE = {  # somebody else has made it, deleted it, made it as large, or is about to
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_PARTITIONS,
    ErrorCode.LEADER_NOT_AVAILABLE,
}
NOT_HERE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}  # any more, for a writer


async def contend(cluster: ThreeBrokers, random: Random, rounds: int, changes: Counter[ErrorCode]) -> None:
    for _ in range(rounds):
        broker, name = random.choice(IDS), random.choice(NAMES)
        try:
            await change(cluster, random, broker, name)
            changes[ErrorCode.NONE] += 1
        except KafkaError as error:
            if error.code not in TOO_LATE:
                raise
            changes[error.code] += 1
        topic = cluster.topics(broker).by_name.get(name)
        for index in list(topic.partitions) if topic is not None else ():
            code = ErrorCode((await cluster.produce(broker, name, index)).error_code)
            assert code in {ErrorCode.NONE, *NOT_HERE}, code.name


async def change(cluster: ThreeBrokers, random: Random, broker: int, name: str) -> None:
    """One change or another, at one of the brokers. Raises KafkaError."""
    topic_admin, chance = cluster.topic_admin(broker), random.random()
    if chance < 0.45:
        await topic_admin.create(name, PARTITION_COUNT, {})
    elif chance < 0.85:
        await topic_admin.delete(name)
    else:
        await topic_admin.add_partitions(name, random.randint(PARTITION_COUNT + 1, 2 * PARTITION_COUNT))


def is_settled(cluster: ThreeBrokers, name: str) -> bool:
    """Whether all brokers know the same of the topic, and have what belongs to it and nothing else."""
    first, *others = [cluster.metadata(number).topics.get(name) for number in IDS]
    if any(other != first for other in others):
        return False
    if any(name in cluster.metadata(number).view.deletions for number in IDS):
        return False  # the order may be known longer than the topic
    if first is None:
        return not any(name in cluster.topics(number).by_name or logs_of(cluster, number, name) for number in IDS)
    if not cluster.is_led(name, len(first.partitions)):
        return False
    led = {number: {index for index, state in first.partitions.items() if state.leader == number} for number in IDS}
    return all(
        logs_of(cluster, number, name) == dict.fromkeys(led[number], first.topic_id)
        and not cluster.metadata(number).is_deletion_ordered(name)
        for number in IDS
    )


def logs_of(cluster: ThreeBrokers, number: int, name: str) -> dict[int, object]:
    """The id of the topic that each of the broker's logs of that name belongs to."""
    logs = cluster.server(number).logs.logs
    return {index: log.metadata.topic_id for (topic, index), log in logs.items() if topic == name}


async def is_as_ever(cluster: ThreeBrokers, name: str) -> None:
    """The topic can be deleted, made and written to, as if nothing had been."""
    if name in cluster.topics(1).by_name:
        await cluster.topic_admin(1).delete(name)
        await cluster.until(lambda: is_settled(cluster, name))
    await cluster.create(name, PARTITION_COUNT, at=2)
    for index, leader in cluster.leaders(name).items():
        assert (await cluster.produce(leader, name, index)).base_offset == 0


Contest = Callable[[int, int], Counter[ErrorCode]]


@pytest.fixture
def contest(zookeeper: ZooKeeper, chroot: str, tmp_path: Path) -> Contest:
    async def life(seed: int, rounds: int) -> Counter[ErrorCode]:
        async with three_brokers(zookeeper.connect + chroot, tmp_path) as cluster:
            await cluster.until(lambda: all(len(cluster.metadata(each).brokers) == 3 for each in IDS))
            changes: Counter[ErrorCode] = Counter()
            async with asyncio.TaskGroup() as group:
                for number in range(TASKS):
                    group.create_task(contend(cluster, Random(f"{seed} {number}"), rounds, changes))
            for name in NAMES:
                await cluster.until(lambda name=name: is_settled(cluster, name))  # type: ignore[misc]
                await is_as_ever(cluster, name)
            return changes

    def contest(seed: int, rounds: int) -> Counter[ErrorCode]:
        changes = asyncio.run(life(seed, rounds))
        kept = [each.name for number in IDS for each in (tmp_path / f"broker-{number}").iterdir() if each.is_dir()]
        assert not [name for name in kept if name.endswith("-stray")]
        served = [parse_partition_directory(name) for name in kept if "." not in name]
        assert sorted(key for key in served if key and key[0] in NAMES) == [
            (name, index) for name in NAMES for index in range(PARTITION_COUNT)
        ]
        return changes

    return contest


def test_a_short_contest_leaves_all_of_one_mind(contest: Contest) -> None:
    changes = contest(SHORT_SEED, SHORT_ROUNDS)
    assert changes[ErrorCode.NONE] and changes.total() == TASKS * SHORT_ROUNDS


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_a_long_contest_leaves_all_of_one_mind(contest: Contest, seed: int) -> None:
    changes = contest(seed, LONG_ROUNDS)
    assert changes[ErrorCode.NONE] and changes.total() == TASKS * LONG_ROUNDS
