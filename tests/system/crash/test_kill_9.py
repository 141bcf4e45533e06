"""kill -9 of the daemon while acks=all records arrive; what it acknowledged is there afterwards, in order, without a
gap.

The ledger lives in this process, which nobody kills: an acknowledgement is entered with the partition and offset that
the broker gave it. After every kill the daemon starts again on its directory and port, and clients that never went
away carry on. At the end the log is read from the start and compared with the ledger.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.support.wait import DEADLINE_S
from tests.system.crash.ledger import (
    LOG,
    PARTITIONS,
    Ledger,
    number_in,
    read_all,
    reader,
)

RECORDS_PER_ROUND = 1500
LOG.addHandler(logging.NullHandler())
LOG.propagate = False
NOT_YET = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=LOG)
    # segments of 64 KiB: kills also hit rolls, and recovery has more than one segment to look at
    admin.create_topics([NewTopic(topic, PARTITIONS, 1, config={"segment.bytes": "65536"})])[topic].result(DEADLINE_S)


@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_what_was_acknowledged_survives(daemon: Any, rounds: int, until: Callable[..., None], idempotent: bool) -> None:
    create(daemon.bootstrap, "ledger")
    kill_again_and_again(daemon, until, Ledger(daemon.bootstrap, "ledger", idempotent), rounds, RECORDS_PER_ROUND)


@pytest.mark.long
@pytest.mark.timeout(4 * 3600)
def test_a_thousand_kills_in_histories_of_a_thousand_batches(daemon: Any, until: Callable[..., None]) -> None:
    create(daemon.bootstrap, "ledger")
    ledger = Ledger(daemon.bootstrap, "ledger", idempotent=True, records_per_batch=3)
    kill_again_and_again(daemon, until, ledger, 1000, 3 * 1000)


def kill_again_and_again(
    daemon: Any, until: Callable[..., None], ledger: Ledger, rounds: int, records_per_round: int
) -> None:
    """Kill the daemon at a random number of acknowledgements, `rounds` times, and compare the log with the ledger."""
    chance = random.Random(rounds)
    for number in range(rounds):
        goal = ledger.count + chance.randrange(records_per_round // 10, records_per_round)
        ledger.send(ledger.count + records_per_round - ledger.number)  # what the last round left waiting counts

        def enough(goal: int = goal) -> bool:
            ledger.producer.poll(0.005)
            return ledger.count >= goal

        until(enough, f"{goal} acknowledgements in round {number}")
        daemon.kill()
        ledger.send(records_per_round // 10)  # nobody is there; the client keeps them
        daemon.start()

    assert ledger.producer.flush(DEADLINE_S) == 0, "records that nobody answered for"
    assert ledger.refused == []
    read = read_all(daemon.bootstrap, "ledger", until)
    for index, records in read.items():
        assert [offset for offset, _ in records] == list(range(len(records))), "no gap, no repeat"
        numbers = [number for _, number in records]
        at = dict(records)
        wrong = {o: n for o, n in ledger.acknowledged[index].items() if at.get(o) != n}
        assert wrong == {}, "records that are not where they were acknowledged to be"
        if ledger.idempotent:
            assert numbers == ledger.sent[index], "each record once, in the order in which it was sent"
        else:
            assert list(dict.fromkeys(numbers)) == ledger.sent[index], "each record, in order but for repeats"
    assert ledger.count == ledger.number


def test_a_group_resumes_where_it_committed(daemon: Any, rounds: int, until: Callable[..., None]) -> None:
    """Between kills a member reads a bit and commits; the next life of the group must start exactly there."""
    chance = random.Random(rounds)
    create(daemon.bootstrap, "shared")
    ledger = Ledger(daemon.bootstrap, "shared", idempotent=True)
    partitions = [TopicPartition("shared", index) for index in range(PARTITIONS)]
    committed = dict.fromkeys(range(PARTITIONS), 0)
    seeder = reader(daemon.bootstrap, "workers")
    start = [TopicPartition("shared", index, 0) for index in committed]

    def seeded() -> bool:
        try:
            return bool(seeder.commit(offsets=start, asynchronous=False))
        except KafkaException as error:  # the coordinator of a first group may still be on its way
            assert error.args[0].code() in NOT_YET, str(error)
            return False

    until(seeded, "the first commit of the group")
    seeder.close()

    for number in range(rounds):
        ledger.send(300)
        assert ledger.producer.flush(DEADLINE_S) == 0
        member = reader(daemon.bootstrap, "workers")
        try:
            stored = {p.partition: p.offset for p in member.committed(partitions, timeout=DEADLINE_S)}
            assert stored == committed, f"offsets of the group in round {number}"
            member.subscribe(["shared"])
            seen: dict[int, list[int]] = defaultdict(list)
            wanted = chance.randrange(50, 200)

            def read_enough(seen: dict[int, list[int]] = seen, member: Consumer = member, wanted: int = wanted) -> bool:
                message = member.poll(0.2)
                if message is not None:
                    assert message.error() is None, str(message.error())
                    seen[message.partition()].append(message.offset())
                return sum(map(len, seen.values())) >= wanted

            until(read_enough, f"{wanted} records for the group in round {number}")
            for index, offsets in seen.items():
                first = committed[index]
                assert offsets == list(range(first, first + len(offsets))), f"partition {index} in round {number}"
                committed[index] = first + len(offsets)
            told = [TopicPartition("shared", index, offset) for index, offset in committed.items()]
            assert all(p.error is None for p in member.commit(offsets=told, asynchronous=False))
            daemon.kill()  # at once: the commit was answered, so it must be there
            daemon.start()
        finally:
            member.close()


def test_a_consumer_that_never_went_away_reads_everything_once(
    daemon: Any, rounds: int, until: Callable[..., None]
) -> None:
    create(daemon.bootstrap, "live")
    ledger = Ledger(daemon.bootstrap, "live", idempotent=True)
    consumer = reader(daemon.bootstrap, "spectator")
    consumer.assign([TopicPartition("live", index, 0) for index in range(PARTITIONS)])
    seen: dict[int, list[int]] = defaultdict(list)

    def seen_all() -> bool:
        ledger.producer.poll(0)
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            seen[message.partition()].append(number_in(message))
        return sum(map(len, seen.values())) >= ledger.number

    try:
        for number in range(rounds):
            ledger.send(200)
            daemon.kill()
            daemon.start()
            until(seen_all, f"all {ledger.number} records in round {number}")
        assert ledger.producer.flush(DEADLINE_S) == 0
        assert seen == ledger.sent
    finally:
        consumer.close()


def test_what_an_admin_was_told_is_done_stays_done(daemon: Any, rounds: int, until: Callable[..., None]) -> None:
    kept: dict[str, int] = {}
    gone: set[str] = set()
    for number in range(rounds):
        admin = AdminClient({"bootstrap.servers": daemon.bootstrap}, logger=LOG)
        name, doomed = f"kept-{number}", f"gone-{number}"
        wanted = [NewTopic(name, 2, 1, config={"retention.ms": str(1_000_000 + number)}), NewTopic(doomed, 1, 1)]
        for future in admin.create_topics(wanted).values():
            future.result(DEADLINE_S)
        admin.delete_topics([doomed])[doomed].result(DEADLINE_S)
        kept[name] = number
        gone.add(doomed)

        daemon.kill()
        daemon.start()

        admin = AdminClient({"bootstrap.servers": daemon.bootstrap}, logger=LOG)
        topics = admin.list_topics(timeout=DEADLINE_S).topics
        assert set(topics) & gone == set()
        assert {topic: len(topics[topic].partitions) for topic in kept if topic in topics} == dict.fromkeys(kept, 2)
        resource = ConfigResource(ResourceType.TOPIC, name)
        config = admin.describe_configs([resource])[resource].result(DEADLINE_S)
        assert config["retention.ms"].value == str(1_000_000 + number)


def test_the_daemon_stops_when_asked_and_keeps_its_word(daemon: Any, until: Callable[..., None]) -> None:
    """SIGTERM while records arrive: exit code 0, and the same promise."""
    create(daemon.bootstrap, "polite")
    ledger = Ledger(daemon.bootstrap, "polite", idempotent=True)
    ledger.send(2000)
    until(lambda: ledger.producer.poll(0.005) is not None and ledger.count >= 200, "200 acknowledgements")
    assert daemon.stop() == 0, daemon.said()
    daemon.start()
    assert ledger.producer.flush(DEADLINE_S) == 0
    read = read_all(daemon.bootstrap, "polite", until)
    assert {index: [number for _, number in records] for index, records in read.items()} == ledger.sent
