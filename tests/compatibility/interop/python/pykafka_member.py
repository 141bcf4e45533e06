"""A member of a group of pykafka's balanced consumers: `pykafka_member.py TASK`, in JSON.

Says "PARTITION OFFSET VALUE" for each record; commits and leaves when its input ends.
"""

from __future__ import annotations

import json
import sys
import threading

from pykafka import KafkaClient
from pykafka.common import OffsetType

task = json.loads(sys.argv[1])
client = KafkaClient(hosts=task["bootstrap"], broker_version="0.9.0")
consumer = client.topics[task["topic"].encode()].get_balanced_consumer(
    consumer_group=task["group"].encode(),
    zookeeper_connect=task["zookeeper"],
    managed=False,
    auto_offset_reset=OffsetType.EARLIEST,
    auto_commit_enable=True,
    auto_commit_interval_ms=300,
    consumer_timeout_ms=200,
    rebalance_backoff_ms=500,
    rebalance_max_retries=20,
)
ended = threading.Event()


def listen() -> None:
    sys.stdin.read()
    ended.set()


threading.Thread(target=listen, daemon=True).start()
while not ended.is_set():
    record = consumer.consume()
    if record is not None:
        print(record.partition_id, record.offset, record.value.decode(), flush=True)
consumer.commit_offsets()
consumer.stop()
