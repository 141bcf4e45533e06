"""confluent-kafka as a member of a group: `group_member.py member TASK`, asked as strangers.py says.

The task may have `settings`, librdkafka's own, such as group.protocol and group.instance.id. A topic that begins with ^
is a regular expression. Each record is committed before it is told, so none is told twice by two members that share
their partitions well.
"""

from __future__ import annotations

import base64
import json
import sys
import threading

from confluent_kafka import Consumer, KafkaError, KafkaException

task = json.loads(sys.argv[2])
asked_to_leave = threading.Event()


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def await_the_end_of_input() -> None:
    sys.stdin.read()
    asked_to_leave.set()


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
consumer.subscribe([task["topic"]])
while not asked_to_leave.is_set():
    record = consumer.poll(0.1)
    if record is None:
        continue
    if record.error() is not None:
        if record.error().code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            continue
        raise KafkaException(record.error())
    try:
        consumer.commit(record, asynchronous=False)
    except KafkaException as refused:  # its partition was taken away: the next owner reads it
        print(f"{record.partition()}:{record.offset()} {refused}", file=sys.stderr, flush=True)
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
