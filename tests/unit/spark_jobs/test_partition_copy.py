"""The copy of a partition against a real broker, without Spark: ended at any request, it repeats and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

import kafkalite
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.client.cluster_client import Retries, WriteFailed
from kafkalite.client.producer.options import parse_write_options
from kafkalite.client.topic_changes import ensure_topics
from kafkalite.common.names import format_uuid, random_uuid
from spark_jobs.partition_copy import Copied, CopyOptions, PartitionCopy, connected
from tests.support.wait import DEADLINE_S

pa = pytest.importorskip("pyarrow", reason="needs the extra 'spark'")
pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

T0 = 1_700_000_000_123
COUNT = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with kafkalite.Broker(data_dir=tmp_path_factory.mktemp("data"), port=0, log_retention_ms=-1) as broker:
        yield broker


def batches(position: int, offsets: list[int] | None = None) -> Iterator[Any]:
    """Batches of three records."""
    there = [n for n in (range(COUNT) if offsets is None else offsets) if n >= position]
    for at in range(0, len(there), 3):
        some = there[at : at + 3]
        yield pa.RecordBatch.from_pydict(
            {
                "offset": some,
                "key": pa.array([b"k"] * len(some), pa.binary()),
                "value": pa.array([None if n == 5 else b"%d" % n for n in some], pa.binary()),
                "partition": pa.array([0] * len(some), pa.int32()),
                "timestamp": pa.array([(T0 + n) * 1000 for n in some]).cast(pa.timestamp("us", "UTC")),
            }
        )


def settings(broker: Any, **changed: Any) -> CopyOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.max.block.ms": "10000"}
    producer = parse_write_options({**given, "transactional": "true"}).producer
    # three batches of about 200 bytes are a transaction
    return CopyOptions(producer, **{"name": "copy", "source": "test", "transaction_bytes": 300, **changed})


def new_topic(broker: Any) -> str:
    topic = f"t{format_uuid(random_uuid())}"
    with connected(settings(broker)) as cluster:
        ensure_topics(cluster, Retries(DEADLINE_S), {topic: 1})
    return topic


def copy(broker: Any, topic: str, source: Any = batches, end: int | None = COUNT, **changed: Any) -> Copied:
    with connected(settings(broker, **changed)) as cluster:
        return PartitionCopy(settings(broker, **changed), cluster, (topic, 0)).copy(source, 0, end)


def committed(broker: Any, topic: str) -> list[tuple[bytes | None, int]]:
    """Values and timestamps up to the last stable offset, from the files."""
    rows = kafkalite.read(broker.data_dir, topic, isolation_level="read_committed").read_all()
    times = rows["timestamp"].cast(pa.timestamp("ms", "UTC")).cast("int64").to_pylist()
    return list(zip(rows["value"].to_pylist(), times, strict=True))


def consumed(broker: Any, topic: str) -> list[tuple[bytes | None, int]]:
    """The same as a stock consumer reads it."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while (message := consumer.poll(DEADLINE_S)) is not None and message.error() is None:
        found.append((message.value(), message.timestamp()[1]))
    consumer.close()
    return found


ALL = [(None if n == 5 else b"%d" % n, T0 + n) for n in range(COUNT)]


def test_records_come_once_and_in_order_and_a_second_run_adds_what_is_new(broker: Any) -> None:
    topic = new_topic(broker)
    first = copy(broker, topic, lambda position: batches(position, list(range(11))), 11)
    assert first == Copied(topic, 0, 11, 0, 11)
    assert copy(broker, topic) == Copied(topic, 0, 9, 11, 20)
    assert copy(broker, topic) == Copied(topic, 0, 0, 20, 20)
    assert committed(broker, topic) == ALL
    assert consumed(broker, topic) == ALL


def test_a_batch_that_is_larger_than_a_transaction_is_divided(broker: Any) -> None:
    def one_batch(position: int) -> Iterator[Any]:
        yield from pa.Table.from_batches(batches(position)).combine_chunks().to_batches()

    topic = new_topic(broker)
    assert copy(broker, topic, one_batch, transaction_bytes=100) == Copied(topic, 0, COUNT, 0, COUNT)
    assert committed(broker, topic) == ALL
    last = kafkalite.read(broker.data_dir, topic).read_all()["offset"][-1].as_py()
    assert last - (COUNT - 1) >= 3, "markers of transactions stand between the records"


class Killed(BaseException):
    pass


@pytest.mark.thorough
@pytest.mark.parametrize("sent", [False, True])
def test_a_copy_that_ends_at_any_request_is_taken_up_where_it_was(
    broker: Any, monkeypatch: pytest.MonkeyPatch, sent: bool
) -> None:
    """`sent`: the request still reaches the broker. A killed process does not abort its transaction either."""
    real, ends = BlockingClient.send, 0
    for number in range(1000):
        topic = new_topic(broker)
        left = iter(range(number, -1, -1))

        def send(client: BlockingClient, request: Any, version: int, left: Any = left) -> None:
            at = next(left, -1)
            if at < 0 or (at == 0 and not sent):
                raise Killed
            real(client, request, version)
            if at == 0:
                raise Killed

        with monkeypatch.context() as patch:
            patch.setattr(BlockingClient, "send", send)
            try:
                copy(broker, topic)
            except Killed:
                ends += 1
            else:
                break
        seen = committed(broker, topic)  # the last request may still be at work
        assert seen == ALL[: len(seen)]
        copy(broker, topic)
        assert committed(broker, topic) == ALL
    assert ends > 30


def test_a_second_copy_at_the_same_time_makes_the_first_fail_and_repeats_nothing(broker: Any) -> None:
    topic = new_topic(broker)

    def interrupted(position: int) -> Iterator[Any]:
        for number, batch in enumerate(batches(position)):
            yield batch
            if number == 3:
                copy(broker, topic)

    with pytest.raises(WriteFailed):
        copy(broker, topic, interrupted)
    assert committed(broker, topic) == ALL


def test_progress_up_to_the_end_where_compaction_left_nothing(broker: Any) -> None:
    topic = new_topic(broker)
    assert copy(broker, topic, lambda position: batches(position, [3, 7]), 12) == Copied(topic, 0, 2, 0, 12)
    assert copy(broker, topic, lambda position: iter(()), 12) == Copied(topic, 0, 0, 12, 12)


def test_what_cannot_be_gone_on_with_is_refused(broker: Any) -> None:
    topic = new_topic(broker)
    copy(broker, topic)
    other = settings(broker, source="other")
    with (
        connected(other) as cluster,
        pytest.raises(WriteFailed, match="has the progress of a copy from 'test', and this one is from 'other'"),
    ):
        PartitionCopy(other, cluster, (topic, 0)).copy(batches, 0, COUNT)
    with pytest.raises(WriteFailed, match="has records, and no progress of a copy with the name 'second'"):
        copy(broker, topic, name="second")
    assert copy(broker, topic, name="second", into_existing=True).records == COUNT
    assert committed(broker, topic) == ALL + ALL
    with pytest.raises(WriteFailed, match="has offset 1 twice or not in order"):
        copy(broker, new_topic(broker), lambda position: batches(position, [0, 1, 2, 1, 2]))
