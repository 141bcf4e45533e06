"""Errors that clients receive, and topics that are created by their first use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiokafka
import kafka.errors
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, ResourceType

from tests.support.wait import DEADLINE_S


def error_of(confluent: Any, topic: str, **settings: Any) -> KafkaError | None:
    """The delivery error of one record."""
    answers: list[Any] = []
    producer = confluent.producer(**settings)
    producer.produce(topic, b"x", on_delivery=lambda error, message: answers.append(error))
    assert producer.flush(15) == 0, "no answer in 15 s"
    return answers[0]


def test_writing_creates_the_topic_with_the_brokers_partitions(
    confluent: Any, kafka_python: Any, bootstrap: str, unique: Callable[[str], str], until: Callable[..., Any]
) -> None:
    by_confluent, by_kafka_python, by_aiokafka = unique("born"), unique("born"), unique("born")

    confluent.send(by_confluent, [{"value": b"first"}])
    kafka_python.producer().send(by_kafka_python, b"first").get(timeout=DEADLINE_S)

    async def write() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(by_aiokafka, b"first")

    asyncio.run(asyncio.wait_for(write(), DEADLINE_S))

    admin = confluent.admin()
    cluster = admin.list_topics(timeout=DEADLINE_S)
    broker = ConfigResource(ResourceType.BROKER, str(next(iter(cluster.brokers))))
    count = int(admin.describe_configs([broker])[broker].result(DEADLINE_S)["num.partitions"].value)
    for name in (by_confluent, by_kafka_python, by_aiokafka):
        assert len(cluster.topics[name].partitions) == count
        consumer = confluent.consumer()
        consumer.subscribe([name])
        assert confluent.take(consumer, 1)[0].value() == b"first"


def test_a_reader_that_may_not_create_is_told_that_the_topic_is_unknown(
    confluent: Any, kafka_python: Any, unique: Callable[[str], str]
) -> None:
    name = unique("nowhere")
    consumer = confluent.consumer(allow_auto_create_topics=False)
    consumer.subscribe([name])
    message = consumer.poll(15)
    assert message is not None and message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert kafka_python.consumer(allow_auto_create_topics=False).partitions_for_topic(name) in (None, set())
    assert name not in confluent.admin().list_topics(timeout=DEADLINE_S).topics


def test_a_broker_that_does_not_create_topics_says_unknown(
    own_broker: Callable[..., Any], confluent_at: Callable[[str], Any], unique: Callable[[str], str]
) -> None:
    confluent = confluent_at(own_broker(auto_create_topics_enable=False).bootstrap)
    error = error_of(confluent, unique("nowhere"), topic_metadata_propagation_max_ms=0)
    assert error is not None and error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
    reader = confluent.consumer(allow_auto_create_topics=True)
    reader.subscribe([unique("nowhere")])
    message = reader.poll(15)
    assert message is not None and message.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_with_an_impossible_name_is_refused(confluent: Any) -> None:
    error = error_of(confluent, "not a name")
    assert error is not None and error.code() == KafkaError.TOPIC_EXCEPTION


def test_a_partition_that_is_not_there(topic: str, confluent: Any) -> None:
    confluent.send(topic, [{"value": b"x"}])
    answers: list[Any] = []
    producer = confluent.producer(message_timeout_ms=2000)
    producer.produce(topic, b"x", partition=7, on_delivery=lambda error, message: answers.append(error))
    producer.flush(10)
    assert answers and answers[0].code() in (KafkaError._UNKNOWN_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_a_message_larger_than_the_topic_takes_is_refused_and_the_next_is_not(
    bootstrap: str, create_topic: Callable[..., str], confluent: Any, kafka_python: Any
) -> None:
    topic = create_topic(bootstrap, max_message_bytes=10_000)
    answers: list[Any] = []
    producer = confluent.producer(batch_num_messages=1)
    for value in (b"x" * 20_000, b"fits"):
        producer.produce(topic, value, on_delivery=lambda error, message: answers.append(error and error.code()))
        producer.flush(15)
    assert answers == [KafkaError.MSG_SIZE_TOO_LARGE, None]
    with pytest.raises(kafka.errors.MessageSizeTooLargeError):
        kafka_python.producer().send(topic, b"x" * 20_000).get(timeout=DEADLINE_S)
    compressed = kafka_python.producer(compression_type="gzip").send(topic, b"x" * 20_000).get(timeout=DEADLINE_S)
    assert compressed.offset == 1, "the limit is on what travels"
    assert [m.value()[:4] for m in confluent.read(topic, 2)] == [b"fits", b"xxxx"]


def test_a_message_larger_than_the_brokers_default_is_refused(topic: str, confluent: Any) -> None:
    answers: list[Any] = []
    producer = confluent.producer(message_max_bytes=3_000_000)
    producer.produce(topic, bytes(1_048_588), on_delivery=lambda error, message: answers.append(error.code()))
    producer.flush(15)
    assert answers == [KafkaError.MSG_SIZE_TOO_LARGE]
    sent = confluent.send(topic, [{"value": bytes(1_048_588 - 90)}], message_max_bytes=3_000_000)
    assert sent[0].offset() == 0


def test_an_offset_out_of_range_is_reset_as_the_client_wishes(topic: str, confluent: Any, kafka_python: Any) -> None:
    confluent.send(topic, [{"value": b"%d" % n} for n in range(5)])

    def started_at(offset: int, policy: str) -> Any:
        consumer = confluent.consumer(auto_offset_reset=policy, enable_partition_eof=True)
        consumer.assign([TopicPartition(topic, 0, offset)])
        message = consumer.poll(10)
        assert message is not None, f"no word in 10 s for offset {offset} with {policy}"
        return message

    assert started_at(900, "earliest").value() == b"0"
    at_the_end = started_at(900, "latest")
    assert (at_the_end.error().code(), at_the_end.offset()) == (KafkaError._PARTITION_EOF, 5)
    refused = started_at(900, "error").error()
    assert refused.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
    consumer = kafka_python.consumer(auto_offset_reset="none")
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek(partition, 900)
    with pytest.raises(kafka.errors.OffsetOutOfRangeError):
        kafka_python.take(consumer, 1)
    resetting = kafka_python.consumer(auto_offset_reset="earliest")
    resetting.assign([partition])
    resetting.seek(partition, 900)
    assert kafka_python.take(resetting, 5)[0].value == b"0"


def test_a_session_timeout_outside_the_brokers_limits_is_refused(
    topic: str, confluent: Any, until: Callable[..., Any], shortest_session_ms: int
) -> None:
    consumer = confluent.consumer(session_timeout_ms=shortest_session_ms - 1, heartbeat_interval_ms=50)
    consumer.subscribe([topic])

    def refused() -> Any:
        message = consumer.poll(0.1)
        return message is not None and message.error()

    error = until(refused, "the refusal of a session timeout that is too short")
    assert error.code() == KafkaError.INVALID_SESSION_TIMEOUT, str(error)


def test_committing_too_much_metadata_is_refused(topic: str, confluent: Any) -> None:
    consumer = confluent.consumer()
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition(topic, 0, 1, "m" * 5000)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE


def test_committing_for_a_topic_that_is_not_there_is_refused(confluent: Any, unique: Callable[[str], str]) -> None:
    consumer = confluent.consumer()
    with pytest.raises(KafkaException) as refused:
        consumer.commit(offsets=[TopicPartition(unique("nowhere"), 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
