"""Records of a share group in flight: locks that expire, limits, forgotten partitions, deleted records, resets."""

from __future__ import annotations

from typing import Any

from kafkalite.protocol.messages import share_fetch
from tests.compatibility.differential.asking import batch, delete_before, produce
from tests.compatibility.differential.asking_shares import (
    ACCEPT,
    HEARTBEAT,
    REJECT,
    RELEASE,
    acknowledge,
    beat,
    fetch,
    first_fetch,
    joined,
)
from tests.compatibility.differential.asking_transactions import ended, new_topic, started, wrote
from tests.compatibility.differential.cases_share_groups import alter, offsets_of
from tests.compatibility.differential.engine import Explained, Teller, in_versions_of_4_3

LOCK_MS = 1000
PRODUCE, DELETE_RECORDS, OFFSETS = 9, 2, 1
DELETED = Explained(
    "of a batch whose beginning was deleted only the records that are left are acquired",
    "Kafka acquires the whole batch, with offsets before the start of the log and of the group",
    "responses.*.partitions.*.acquired_records.*.first_offset",
)


def filled(t: Teller, batches: int, records: int) -> str:
    """A topic with batches of so many records each."""
    topic = t.topic()
    for number in range(batches):
        t.aside(produce(topic, batch(*(b"%d" % (number * records + n) for n in range(records)))), PRODUCE)
    return topic


def without_topics(t: Teller, group: str, member: str, epoch: int, topic: str, **fields: Any) -> Any:
    """A fetch of what the session has."""
    return fetch(t, group, member, epoch, topic, **{"topics": []} | fields)


@in_versions_of_4_3(1, 2)
def locks_that_expire(t: Teller) -> None:
    group, topic = t.group(), filled(t, 1, 3)
    joined(t, group, "m", topic, record_lock_duration_ms=LOCK_MS, delivery_count_limit=2)
    epoch = first_fetch(t, "the records", group, "m", topic)
    t.ask("another one waits for them", fetch(t, group, "n", 0, topic, max_wait_ms=10_000), by="b")
    t.ask("too late", acknowledge(t, group, "m", epoch, topic, (0, 2, [ACCEPT])))
    t.ask("two in time", acknowledge(t, group, "n", 1, topic, (0, 1, [ACCEPT])), by="b")
    t.ask("delivered often enough", fetch(t, group, "n", 2, topic, max_wait_ms=2_000), by="b")
    t.ask("too late as well", acknowledge(t, group, "n", 3, topic, (2, 2, [ACCEPT])), by="b")
    t.aside(produce(topic, batch(b"more")), PRODUCE)
    t.ask("what comes next", fetch(t, group, "m", epoch + 1, topic, max_wait_ms=10_000))


@in_versions_of_4_3(1)
def locks_that_are_taken(t: Teller) -> None:
    group, topic = t.group(), filled(t, 4, 50)
    joined(t, group, "m", topic, partition_max_record_locks=100)
    epoch = first_fetch(t, "all locks", group, "m", topic)
    t.ask("none is left", fetch(t, group, "m", epoch, topic))
    t.ask("in the middle", acknowledge(t, group, "m", epoch + 1, topic, (50, 99, [ACCEPT])))
    t.ask("still none", fetch(t, group, "m", epoch + 2, topic))
    t.ask("at the start", acknowledge(t, group, "m", epoch + 3, topic, (0, 0, [ACCEPT]), (1, 9, [RELEASE])))
    t.ask("what was released", fetch(t, group, "m", epoch + 4, topic))
    t.ask("one more", fetch(t, group, "m", epoch + 5, topic))
    t.ask("all of them", acknowledge(t, group, "m", epoch + 6, topic, (1, 49, [REJECT])))
    t.ask("then the rest", fetch(t, group, "m", epoch + 7, topic))


@in_versions_of_4_3(1, 2)
def forgotten_partitions(t: Teller) -> None:
    group, topic = t.group(), filled(t, 2, 2)
    joined(t, group, "m", topic)
    forgotten = [share_fetch.ShareForgottenTopic(topic_id=t.id_of(topic), partitions=[0])]
    epoch = first_fetch(t, "the first batch", group, "m", topic, max_records=2)
    t.ask("forgotten", without_topics(t, group, "m", epoch, topic, forgotten_topics_data=forgotten))
    t.ask("nothing is left", without_topics(t, group, "m", epoch + 1, topic))
    t.ask("still acknowledged", acknowledge(t, group, "m", epoch + 2, topic, (0, 0, [ACCEPT])))
    t.ask("nothing as before", without_topics(t, group, "m", epoch + 3, topic))
    t.ask("added by an acknowledgement", fetch(t, group, "m", epoch + 4, topic, (1, 1, [RELEASE]), max_records=0))
    t.ask("read as before", without_topics(t, group, "m", epoch + 5, topic))
    fields = {"forgotten_topics_data": forgotten, "max_records": 0}
    t.ask("added and forgotten", fetch(t, group, "m", epoch + 6, topic, **fields))
    t.ask("added alone", fetch(t, group, "m", epoch + 7, topic))
    t.ask("the end", without_topics(t, group, "m", -1, topic))
    epoch = first_fetch(t, "what it had", group, "n", topic)
    t.ask("all of it", acknowledge(t, group, "n", epoch, topic, (1, 3, [ACCEPT])))


@in_versions_of_4_3(1)
def deleted_records(t: Teller) -> None:
    group, topic = t.group(), filled(t, 4, 2)
    joined(t, group, "m", topic)
    epoch = first_fetch(t, "the first batch", group, "m", topic, max_records=2)
    t.aside(delete_before(topic, 3), DELETE_RECORDS)
    epoch = first_fetch(t, "what is there", group, "m", topic, epoch, DELETED, max_records=1)
    t.ask("what is gone", acknowledge(t, group, "m", epoch, topic, (0, 1, [ACCEPT])))
    t.ask("half gone", acknowledge(t, group, "m", epoch + 1, topic, (2, 3, [RELEASE])))
    t.ask("again", fetch(t, group, "m", epoch + 2, topic, max_records=1))
    t.aside(delete_before(topic, 8), DELETE_RECORDS)
    t.ask("nothing is there", fetch(t, group, "m", epoch + 3, topic))
    t.ask("released", acknowledge(t, group, "m", epoch + 4, topic, (3, 5, [RELEASE])))
    t.ask("still nothing", fetch(t, group, "m", epoch + 5, topic))
    t.aside(produce(topic, batch(b"more")), PRODUCE)
    epoch = first_fetch(t, "what comes next", group, "m", topic, epoch + 6)
    t.ask("accepted", acknowledge(t, group, "m", epoch, topic, (8, 8, [ACCEPT])))
    t.ask("the start", offsets_of(group, topic), OFFSETS)


@in_versions_of_4_3(1)
def a_group_that_is_reset(t: Teller) -> None:
    group, topic = t.group(), filled(t, 3, 2)
    joined(t, group, "m", topic)
    epoch = first_fetch(t, "the first batch", group, "m", topic, max_records=2)
    t.aside(beat(group, "m", -1), HEARTBEAT)
    t.ask("reset under a session", alter(group, topic, 4), 0)
    t.ask("an acknowledgement of before", acknowledge(t, group, "m", epoch, topic, (0, 1, [ACCEPT])))
    t.ask("a fetch after it", fetch(t, group, "m", epoch + 1, topic, max_wait_ms=1_000))
    t.ask("the start", offsets_of(group, topic), OFFSETS)


@in_versions_of_4_3(1)
def aborted_records(t: Teller) -> None:
    topic, group, producer = new_topic(t), t.group(), started(t, "a")
    wrote(t, producer, topic, 0, b"a", b"b")
    ended(t, producer, commit=False)
    wrote(t, producer, topic, 2, b"c")
    ended(t, producer)
    wrote(t, producer, topic, 3, b"d")
    joined(t, group, "m", topic, isolation_level="read_committed")
    epoch = first_fetch(t, "what is committed", group, "m", topic)
    t.ask("acknowledged", acknowledge(t, group, "m", epoch, topic, (3, 4, [ACCEPT])))
    t.ask("nothing more", fetch(t, group, "m", epoch + 1, topic))
    ended(t, producer)
    t.ask("the last one", fetch(t, group, "m", epoch + 2, topic, max_wait_ms=10_000))
