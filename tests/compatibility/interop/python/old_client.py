"""kafka-python 1.4 as it spoke to brokers of an `api_version`: `old_client.py VERB TASK`, both ways in JSON.

produce: a record for each line on stdin, all to partition 0; tells their offsets. consume: as a member of a group (from
0.9 on), commits, and tells what it saw and what is committed.
"""

from __future__ import annotations

import json
import sys

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

task = json.loads(sys.argv[2])
pinned = {"bootstrap_servers": task["bootstrap"], "api_version": tuple(task["api_version"])}


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


def produce() -> object:
    codec = None if task["codec"] == "none" else task["codec"]
    producer = KafkaProducer(compression_type=codec, linger_ms=50, **pinned)
    sent = []
    for line in sys.stdin:
        key, value, timestamp_ms = json.loads(line)
        fields = [None if field is None else field.encode() for field in (value, key)]
        sent.append(producer.send(task["topic"], *fields, partition=0, timestamp_ms=timestamp_ms))
    producer.flush(30)
    return [one.get(30).offset for one in sent]


def consume() -> object:
    partition = TopicPartition(task["topic"], 0)
    in_group = pinned["api_version"] >= (0, 9)
    consumer = KafkaConsumer(
        group_id=task["group"], auto_offset_reset="earliest", enable_auto_commit=False, consumer_timeout_ms=30_000,
        heartbeat_interval_ms=500, **pinned,
    )  # fmt: skip
    if in_group:
        consumer.subscribe([task["topic"]])
    else:
        consumer.assign([partition])
    seen = []
    for record in consumer:
        seen.append([record.offset, record.timestamp, text(record.key), text(record.value)])
        if len(seen) == task["count"]:
            break
    end = seen[-1][0] + 1
    consumer.commit({partition: OffsetAndMetadata(end, "m")})
    ends = [consumer.beginning_offsets([partition])[partition], consumer.end_offsets([partition])[partition]]
    committed = consumer.committed(partition)
    consumer.close()
    return {"records": seen, "ends": ends, "committed": committed}


print(json.dumps({"produce": produce, "consume": consume}[sys.argv[1]]()))
