"""Short words for the requests and the batches that stories send."""

from __future__ import annotations

import struct
import zlib
from typing import Any
from uuid import UUID

from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from kafkalite.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from kafkalite.protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from kafkalite.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkalite.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkalite.record.batch import NewRecord, build_batch, compute_crc

TOPIC = 2  # of what kind the thing is that has settings
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3  # what to do with a setting
BEGINNING_MS = 1_700_000_000_000  # the time of a story's first record, in November 2023

# Where the fields of a batch's header lie.
_FIELDS = {
    "base_offset": (0, ">q"), "length": (8, ">i"), "leader_epoch": (12, ">i"), "magic": (16, ">b"), "crc": (17, ">I"),
    "attributes": (21, ">h"), "last_offset_delta": (23, ">i"), "base_timestamp": (27, ">q"),
    "max_timestamp": (35, ">q"), "producer_id": (43, ">q"), "producer_epoch": (51, ">h"), "base_sequence": (53, ">i"),
    "count": (57, ">i"),
}  # fmt: skip


def batch(*values: bytes | None, key: bytes | None = None, time: int = BEGINNING_MS, **settings: Any) -> bytearray:
    """A good batch: one record a value, a millisecond apart. `settings` go to `build_batch`."""
    return build_batch([NewRecord(key, value, timestamp=time + i) for i, value in enumerate(values)], **settings)


def bad(data: bytes | bytearray, *, crc: int | None = None, **fields: int) -> bytearray:
    """The batch with these fields of its header overwritten; its checksum is right unless `crc` is given."""
    changed = bytearray(data)
    for name, value in fields.items():
        at, form = _FIELDS[name]
        struct.pack_into(form, changed, at, value)
    struct.pack_into(">I", changed, 17, compute_crc(changed) if crc is None else crc)
    return changed


def message_set(magic: int, *values: bytes) -> bytes:
    """Records as they travelled before v2: offset, size, CRC-32, magic, attributes, (time,) key, value."""
    out = b""
    for offset, value in enumerate(values):
        time = struct.pack(">q", BEGINNING_MS) if magic else b""
        body = struct.pack(">bb", magic, 0) + time + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
        out += struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body
    return out


def produce(
    topic: str, *records: bytes | bytearray | None, acks: int = -1, partition: int = 0, **more: Any
) -> ProduceRequest:
    """One batch for each partition from `partition` on."""
    data = [
        PartitionProduceData(index=partition + i, records=None if one is None else memoryview(one))
        for i, one in enumerate(records)
    ]
    return ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=data)], **more
    )


def is_verified(answer: Any) -> bool:
    """Whether a transaction's coordinator was there to be asked."""
    return all(one.error_code != 19 for each in answer.responses for one in each.partition_responses)


def fetch(topic: str, offset: int = 0, partition: int = 0, **more: Any) -> FetchRequest:
    """Of one partition, at once. `more`: fields of the partition where it has them, else of the request.

    From version 13 on the teller puts the topic's id for its name, unless `topic_id` is given.
    """
    topic_id = more.pop("topic_id", ZERO_UUID)
    of_partition = {name: more.pop(name) for name in list(more) if name in FetchPartition.__fields__}
    one = FetchPartition(
        **{"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20} | of_partition
    )
    return FetchRequest(
        **{"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
        | {"topics": [FetchTopic(topic=topic, topic_id=topic_id, partitions=[one])]}
        | more
    )


def forgotten(topic: str, *partitions: int, topic_id: UUID = ZERO_UUID) -> list[ForgottenTopic]:
    return [ForgottenTopic(topic=topic, topic_id=topic_id, partitions=list(partitions))]


def list_offsets(topic: str, timestamp: int, partition: int = 0, epoch: int = -1, **more: Any) -> ListOffsetsRequest:
    one = ListOffsetsPartition(partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch)
    return ListOffsetsRequest(**{"replica_id": -1} | more, topics=[ListOffsetsTopic(name=topic, partitions=[one])])


def metadata(*names: str, **more: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **more)


def metadata_of(*ids: UUID, **more: Any) -> MetadataRequest:
    """Of topics by id, and by nothing else."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=one) for one in ids], **more)


def new_topic(name: str, partitions: int = 1, replicas: int = 1, **more: Any) -> CreatableTopic:
    configs = more.pop("configs", {})
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        **more,
    )


def create(*topics: CreatableTopic, **more: Any) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), **{"timeout_ms": 10_000} | more)


def change(kind: int, name: str, *entries: tuple[str, int, str | None], **more: bool) -> IncrementalAlterConfigsRequest:
    """`entries`: (key, operation, value)."""
    configs = [IncrementalAlterableConfig(name=key, config_operation=op, value=value) for key, op, value in entries]
    one = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[one], **more)


def delete_before(topic: str, *offsets: int, partition: int = 0) -> DeleteRecordsRequest:
    """One offset for each partition from `partition` on."""
    asked = [DeleteRecordsPartition(partition_index=partition + i, offset=offset) for i, offset in enumerate(offsets)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=asked)], timeout_ms=5000)


def join(group: str, member_id: str = "", *protocols: str, **more: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        **{
            "group_id": group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 30_000,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocols": [
                JoinGroupRequestProtocol(name=one, metadata=subscribed(one)) for one in protocols or ("range",)
            ],
        }
        | more
    )


def subscribed(user_data: str) -> bytes:
    """A consumer's subscription to no topics; Kafka reads it, and hangs on what it cannot read."""
    return struct.pack(">hii", 0, 0, len(user_data)) + user_data.encode()


def sync(group: str, generation: int, member_id: str, *assigned: str, **more: Any) -> SyncGroupRequest:
    """`assigned`: the members that get an assignment."""
    return SyncGroupRequest(
        **{
            "group_id": group,
            "generation_id": generation,
            "member_id": member_id,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": [SyncGroupRequestAssignment(member_id=one, assignment=b"yours") for one in assigned],
        }
        | more
    )
