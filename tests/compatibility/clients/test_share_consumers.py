"""confluent-kafka's share consumer (librdkafka): queues over topics (KIP-932)."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import AcknowledgeType, ShareConsumer
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from tests.support.wait import DEADLINE_S

QUICK = {
    "group_share_heartbeat_interval_ms": 500,
    "group_share_min_heartbeat_interval_ms": 500,
    "group_share_assignment_interval_ms": 0,
}


class Workers:
    """Share consumers of one group, which begins at the earliest offset of its topic."""

    def __init__(self, clients: Any, group: str, topic: str) -> None:
        self.clients = clients
        self.topic = topic
        self.broker: Any = None
        self._group = group
        self._open: list[Any] = []
        self.set_group(share_auto_offset_reset="earliest")

    def set_group(self, **settings: str) -> None:
        entries = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.GROUP, self._group, incremental_configs=entries)
        for altered in self.clients.admin().incremental_alter_configs([resource]).values():
            altered.result(DEADLINE_S)

    def worker(self, **given: Any) -> Any:
        settings = self.clients.settings(given, group_id=self._group, share_acknowledgement_mode="explicit")
        consumer = ShareConsumer(settings)
        consumer.subscribe([self.topic])
        self._open.append(consumer)
        return consumer

    def send(self, count: int) -> None:
        """In small batches: a worker acquires whole batches."""
        self.clients.send(self.topic, [{"value": b"%d" % n} for n in range(count)], batch_num_messages=10)

    def close(self) -> None:
        for consumer in self._open:
            consumer.close()


def polls(*consumers: Any) -> Iterator[tuple[Any, Any]]:
    """Each consumer and message, from all in turn, until the deadline. Acknowledgements are sent after each poll."""
    deadline = time.monotonic() + DEADLINE_S
    for consumer in itertools.cycle(consumers):
        assert time.monotonic() < deadline, "the records did not come in time"
        for message in consumer.poll(0.1):
            assert message.error() is None, message.error()
            yield consumer, message
        assert not [error for error in consumer.commit_sync(DEADLINE_S).values() if error is not None]


@pytest.fixture
def workers(
    own_broker: Callable[..., Any],
    confluent_at: Callable[[str], Any],
    create_topic: Callable[..., str],
    unique: Callable[[str], str],
) -> Iterator[Workers]:
    broker = own_broker(**QUICK)
    made = Workers(confluent_at(broker.bootstrap), unique("group"), create_topic(broker.bootstrap))
    made.broker = broker
    yield made
    made.close()


def test_workers_share_the_records_of_one_partition(workers: Workers) -> None:
    two = [workers.worker(max_poll_records=50) for _ in range(2)]
    found: Counter[int] = Counter()
    per_worker: Counter[int] = Counter()
    count = 1_000
    workers.send(count)
    for consumer, message in polls(*two):
        consumer.acknowledge(message)
        found[int(message.value())] += 1
        per_worker[two.index(consumer)] += 1
        if len(found) == count:
            break
    assert found == Counter(range(count))
    assert len(per_worker) == 2, "one worker had all of them"


def test_a_record_that_is_given_back_comes_again_until_its_limit(workers: Workers) -> None:
    workers.set_group(share_delivery_count_limit="3")
    workers.send(3)
    counts: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for consumer, message in polls(workers.worker()):
        number = int(message.value())
        counts[number].append(message.delivery_count())
        consumer.acknowledge(message, (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT, AcknowledgeType.RELEASE)[number])
        if counts[2] == [1, 2, 3]:
            break
    assert counts == {0: [1], 1: [1], 2: [1, 2, 3]}


def test_after_a_restart_only_what_was_not_accepted_comes_again(workers: Workers) -> None:
    workers.send(20)
    seen = set()
    for consumer, message in polls(workers.worker()):
        number = int(message.value())
        seen.add(number)
        consumer.acknowledge(message, AcknowledgeType.RELEASE if number % 5 == 0 else AcknowledgeType.ACCEPT)
        if number % 5 == 0 and message.delivery_count() > 1 and len(seen) == 20:
            break
    workers.broker.restart()
    again: dict[int, int] = {}
    for consumer, message in polls(workers.worker()):
        consumer.acknowledge(message)
        again[int(message.value())] = message.delivery_count()
        if len(again) == 4:
            break
    assert set(again) == {0, 5, 10, 15}
    assert all(count > 1 for count in again.values())
