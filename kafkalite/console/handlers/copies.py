"""/api/topics/NAME/copy and /analysis: records copied to another topic, and a topic counted."""

from __future__ import annotations

from collections.abc import Iterator

from kafkalite.client.cluster_client import Retries
from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.client.producer.record_writer import RecordWriter
from kafkalite.client.scan import OFFSET, Limits, Scan, Start
from kafkalite.console.brokers.topics import places_of, require_partition
from kafkalite.console.calls.route import Call, Event
from kafkalite.console.messages.analysis import analyse
from kafkalite.console.request.parameters import Row, not_found, refused
from kafkalite.record.batch import NewRecord

COPIED_MAX = 10_000
_COPIED_BYTES_MAX = 256 << 20


def copy_messages(call: Call) -> Row:
    """Copies records of a partition from an offset on, byte for byte with their headers and times, in their order. Of
    transactions it copies those that were committed."""
    topic, body = call.path["topic"], call.body
    require_partition(places_of(call.cluster, topic), topic, body["partition"])
    target = places_of(call.cluster, body["to"])
    if body["to_partition"] is not None:
        require_partition(target, body["to"], body["to_partition"])
    writer = RecordWriter(call.cluster, body["to"], Retries(call.timeout_s))
    for one in _records(call):
        writer.add(NewRecord(one.key, one.value, one.headers, one.timestamp), body["to_partition"])
    writer.flush()
    if not writer.written:
        raise not_found(f"{topic}-{body['partition']} has no committed record from offset {body['offset']} on")
    return {"ok": True, "to": body["to"], "copied": writer.written}


def _records(call: Call) -> Iterator[ScannedRecord]:
    topic, index, left = call.path["topic"], call.body["partition"], call.body["count"]
    scan = Scan(
        call.cluster,
        [(topic, index)],
        Start(OFFSET, call.body["offset"]),
        lambda records: [one for one in records if one.marker is None],
        lambda *_: None,
        timeout_s=call.timeout_s,
        committed_only=True,
        limits=Limits(max_bytes=_COPIED_BYTES_MAX, max_s=call.timeout_s),
    )
    for each in scan.forwards():
        for one in each.by_time():
            if one.fault is not None:
                raise refused(f"the batch at offset {one.offset} cannot be read: {one.fault}")
            yield one
            left -= 1
            if not left:
                return


def analyse_topic(call: Call) -> Iterator[Event]:
    topic, query = call.path["topic"], call.query
    partitions = sorted(places_of(call.cluster, topic))
    limits = Limits(query["max_records"], query["max_bytes"], query["max_ms"] / 1000)
    return analyse(call.cluster, topic, partitions, limits)
