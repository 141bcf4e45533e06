"""confluent-kafka as a member of a group: `group_member.py member TASK`, asked as strangers.py says.

The task may have `settings`, librdkafka's own, such as group.protocol and group.instance.id. A topic that begins with ^
is a regular expression. Each record is committed before it is told. A partition is given up where the member polls, so
never between a record and its commit: no record is told by two members that share their partitions well.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import threading

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

PASSING = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.REBALANCE_IN_PROGRESS}  # told, and tried again
REFUSED = {  # the next owner of the partition reads the record, which may be this member
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.REBALANCE_IN_PROGRESS,
}
task = json.loads(sys.argv[2])
asked_to_leave = threading.Event()


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def await_the_end_of_input() -> None:
    sys.stdin.read()
    asked_to_leave.set()


def is_committed(record: Message) -> bool:
    """Tries until it is, or is refused for good, or the member has to go: a broker may be away for a while."""
    while not asked_to_leave.is_set():
        try:
            consumer.commit(record, asynchronous=False)
        except KafkaException as refused:
            print(f"{record.partition()}:{record.offset()} {refused}", file=sys.stderr, flush=True)
            if refused.args[0].code() in REFUSED:
                return False
        else:
            return True
    return False


threading.Thread(target=await_the_end_of_input, daemon=True).start()
consumer = Consumer(
    {
        "bootstrap.servers": task["bootstrap"],
        "group.id": task["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "topic.metadata.refresh.interval.ms": 1000,
        **task.get("settings", {}),
    }
)
consumer.subscribe([task["topic"]], on_revoke=lambda *_: None, on_lost=lambda *_: None)  # called by poll
while not asked_to_leave.is_set():
    record = consumer.poll(0.1)
    if record is None:
        continue
    if record.error() is not None:
        if record.error().code() in PASSING:
            continue
        raise KafkaException(record.error())
    if not is_committed(record):
        with contextlib.suppress(KafkaException):  # the partition is gone
            consumer.seek(TopicPartition(record.topic(), record.partition(), record.offset()))
        continue
    told = {
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp_ms": record.timestamp()[1],
        "key": encoded(record.key()),
        "value": encoded(record.value()),
    }
    print(json.dumps(told), flush=True)
consumer.close()
