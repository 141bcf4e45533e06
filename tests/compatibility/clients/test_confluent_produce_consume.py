"""confluent-kafka (librdkafka) in and out: acknowledgements, sizes, offsets, times, positions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.support.wait import DEADLINE_S

START_MS = int(time.time() * 1000) - 86_400_000  # yesterday: known to differ from now, kept by retention


def numbered(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"value": b"%d" % n, "timestamp": START_MS + 1000 * n} for n in range(first, first + count)]


def values(messages: list[Any]) -> list[int]:
    return [int(message.value()) for message in messages]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(topic: str, confluent: Any, until: Callable[..., Any], acks: str) -> None:
    sent = confluent.send(topic, numbered(50), acks=acks)

    offsets = [message.offset() for message in sent]
    if acks == "0":  # nobody answers: librdkafka does not know the offsets
        assert set(offsets) == {None}
    else:
        assert offsets == list(range(50))
    assert values(confluent.read(topic, 50)) == list(range(50))


def test_a_large_value_and_an_empty_one_come_back_as_they_went(topic: str, confluent: Any) -> None:
    large = bytes(range(256)) * (900 * 1024 // 256)
    confluent.send(topic, [{"value": large}, {"value": b""}, {"key": large}, {"value": large, "key": b""}])

    first, second, third, fourth = confluent.read(topic, 4)

    assert (first.key(), first.value()) == (None, large)
    assert (second.key(), second.value()) == (None, b"")
    assert (third.key(), third.value()) == (large, None)
    assert (fourth.key(), fourth.value()) == (b"", large)


def test_many_records_over_partitions_keep_their_order_by_key(
    bootstrap: str, create_topic: Callable[..., str], confluent: Any
) -> None:
    topic = create_topic(bootstrap, partitions=6)
    keys = 20
    records = [{"key": b"key-%d" % (n % keys), "value": b"%d" % n} for n in range(10_000)]
    # idempotent, or a batch that a young topic refuses would be sent again behind its followers
    confluent.send(topic, records, enable_idempotence=True)
    consumer = confluent.consumer()
    consumer.subscribe([topic])

    messages = confluent.take(consumer, 10_000)

    for key in range(keys):
        mine = [m for m in messages if m.key() == b"key-%d" % key]
        assert values(mine) == list(range(key, 10_000, keys))
        assert len({m.partition() for m in mine}) == 1


def test_seek_goes_back_and_forth(topic: str, confluent: Any) -> None:
    confluent.send(topic, numbered(300))
    consumer = confluent.consumer()
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert values(confluent.take(consumer, 20)) == list(range(20))

    consumer.seek(TopicPartition(topic, 0, 250))
    assert values(confluent.take(consumer, 50)) == list(range(250, 300))

    consumer.seek(TopicPartition(topic, 0, 7))
    assert values(confluent.take(consumer, 3)) == [7, 8, 9]
    assert consumer.position([TopicPartition(topic, 0)])[0].offset == 10


def test_the_end_of_a_partition_is_told_and_new_records_arrive_after_it(topic: str, confluent: Any) -> None:
    confluent.send(topic, numbered(5))
    consumer = confluent.consumer(enable_partition_eof=True, fetch_wait_max_ms=2000)
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    message = consumer.poll(10)
    assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
    assert message.offset() == 5
    producer = confluent.producer()
    producer.produce(topic, b"5")
    producer.flush(10)

    started = time.monotonic()
    message = consumer.poll(10)

    assert message is not None and message.error() is None and message.value() == b"5"
    assert time.monotonic() - started < 1, "a waiting fetch is answered when a record comes, not when its wait ends"


def test_watermarks(topic: str, confluent: Any) -> None:
    consumer = confluent.consumer()
    partition = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, timeout=DEADLINE_S) == (0, 0)
    confluent.send(topic, numbered(42))
    assert consumer.get_watermark_offsets(partition, timeout=DEADLINE_S) == (0, 42)
    with pytest.raises(KafkaException) as refused:
        consumer.get_watermark_offsets(TopicPartition(topic, 9), timeout=DEADLINE_S)
    assert refused.value.args[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_offsets_for_times(topic: str, confluent: Any) -> None:
    for n in range(0, 100, 10):  # offsets 0..9, a batch each
        confluent.send(topic, numbered(1, first=n))
    confluent.send(topic, numbered(100, first=100), linger_ms=50)  # offsets 10..109 in few batches
    consumer = confluent.consumer()

    def offset_at(timestamp_ms: int) -> int:
        return consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=DEADLINE_S)[0].offset

    assert offset_at(0) == 0
    assert offset_at(START_MS) == 0
    assert offset_at(START_MS + 1) == 1
    assert offset_at(START_MS + 10_000) == 1
    assert offset_at(START_MS + 100_000) == 10
    assert offset_at(START_MS + 150_500) == 61, "inside a batch"
    assert offset_at(START_MS + 199_000) == 109
    assert offset_at(START_MS + 199_001) == OFFSET_END, "after the last record"


def test_the_admin_lists_offsets_of_every_kind(topic: str, confluent: Any) -> None:
    confluent.send(topic, [{"value": b"x", "timestamp": START_MS + t} for t in (10, 50, 30)])
    admin = confluent.admin()

    def listed(spec: Any) -> tuple[int, int]:
        partition = TopicPartition(topic, 0)
        told = admin.list_offsets({partition: spec})[partition].result(DEADLINE_S)
        return told.offset, told.timestamp

    assert listed(OffsetSpec.earliest()) == (0, -1)
    assert listed(OffsetSpec.latest()) == (3, -1)
    assert listed(OffsetSpec.max_timestamp()) == (1, START_MS + 50)
    assert listed(OffsetSpec.for_timestamp(START_MS + 11)) == (1, START_MS + 50)
    assert listed(OffsetSpec.for_timestamp(START_MS + 51)) == (-1, -1)


def test_assign_with_manual_commit(topic: str, confluent: Any, unique: Callable[[str], str]) -> None:
    confluent.send(topic, numbered(30))
    group = unique("manual")
    reader = confluent.consumer(group_id=group)
    reader.assign([TopicPartition(topic, 0)])
    assert reader.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)[0].offset == OFFSET_INVALID, (
        "nothing committed yet"
    )
    taken = confluent.take(reader, 12)

    by_message = reader.commit(message=taken[9], asynchronous=False)
    assert by_message[0].offset == 10
    by_offset = reader.commit(offsets=[TopicPartition(topic, 0, 12, "after the twelfth")], asynchronous=False)

    assert by_offset[0].error is None
    told = confluent.consumer(group_id=group).committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)[0]
    assert (told.offset, told.metadata) == (12, "after the twelfth")
    heir = confluent.consumer(group_id=group)
    heir.assign([TopicPartition(topic, 0)])
    assert values(confluent.take(heir, 18)) == list(range(12, 30))


def test_auto_commit_on_close_and_the_next_member_goes_on(
    topic: str, confluent: Any, unique: Callable[[str], str]
) -> None:
    confluent.send(topic, numbered(20))
    group = unique("auto")
    first = confluent.consumer(group_id=group, enable_auto_commit=True)
    first.subscribe([topic])
    assert values(confluent.take(first, 20)) == list(range(20))
    confluent.open.remove(first)
    first.close()
    confluent.send(topic, numbered(5, first=20))

    second = confluent.consumer(group_id=group)
    second.subscribe([topic])

    assert values(confluent.take(second, 5)) == list(range(20, 25))


def test_paused_partitions_stay_silent(bootstrap: str, create_topic: Callable[..., str], confluent: Any) -> None:
    topic = create_topic(bootstrap, partitions=2)
    confluent.send(topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(40)])
    consumer = confluent.consumer()
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in (0, 1)])
    consumer.pause([TopicPartition(topic, 1)])
    assert {m.partition() for m in confluent.take(consumer, 20)} == {0}
    consumer.resume([TopicPartition(topic, 1)])
    assert {m.partition() for m in confluent.take(consumer, 20)} == {1}


def test_a_small_fetch_budget_still_gets_large_records(topic: str, confluent: Any) -> None:
    """KIP-74: the first batch is given whole, however small the limits of the request are."""
    confluent.send(topic, [{"value": b"%d" % n * 50_000} for n in range(10)], batch_num_messages=1)
    consumer = confluent.consumer(
        fetch_message_max_bytes=1000, fetch_max_bytes=100_000, message_max_bytes=100_000, queued_max_messages_kbytes=100
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert [m.value()[:1] for m in confluent.take(consumer, 10)] == [b"%d" % n for n in range(10)]


def test_subscribing_by_pattern_finds_topics_born_later(
    bootstrap: str, create_topic: Callable[..., str], confluent: Any, unique: Callable[[str], str]
) -> None:
    stem = unique("pattern")
    first = create_topic(bootstrap, f"{stem}-a")
    consumer = confluent.consumer(topic_metadata_refresh_interval_ms=200)
    consumer.subscribe([f"^{stem}-.*"])
    confluent.send(first, [{"value": b"0"}])
    assert confluent.take(consumer, 1)[0].topic() == first
    consumer.commit(asynchronous=False)
    second = create_topic(bootstrap, f"{stem}-b")
    confluent.send(second, [{"value": b"0"}])
    assert confluent.take(consumer, 1)[0].topic() == second
