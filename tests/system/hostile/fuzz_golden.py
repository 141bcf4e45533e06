"""Golden frames: one good request of every API in every version that is answered, as a client would send it.

The values are those of a broker under attack: topics that exist there, a group, small batches. Fields that would cost
the broker much if a flipped bit made them large are tied to a limit: topics and partitions are asked for with
assignments by hand (another count is refused), or only validated, by a byte that is true whichever bit of it flips.
`tests/system/hostile/test_frames.py` has kio, an independent codec, read each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import pack, pack_into, unpack_from
from typing import Any
from zlib import crc32

from kafkalite.common.names import ZERO_UUID
from kafkalite.protocol.apis import APIS, Api
from kafkalite.protocol.codec.schema import Field, Kind, Message
from kafkalite.protocol.header import request_frame
from kafkalite.protocol.messages.log_dirs import CLEANING_TAG, OWN_TAG
from kafkalite.protocol.messages.topics import CreatableReplicaAssignment, CreatePartitionsAssignment
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.compression import CODEC_NAMES, NONE
from kafkalite.record.message_set import build_set

PLAIN, COMPACTED, RECOMPRESSED, STAMPED, RECENT = TOPICS = (
    "hostile-plain",
    "hostile-compacted",
    "hostile-recompressed",
    "hostile-stamped",
    "hostile-recent",
)
SETTINGS: dict[str, dict[str, str]] = {
    PLAIN: {},
    COMPACTED: {"cleanup.policy": "compact"},
    RECOMPRESSED: {"compression.type": "zstd"},
    STAMPED: {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"},
    RECENT: {"message.timestamp.before.max.ms": "315360000000"},
}
"""The topics that the attacked broker has; in all but the first the broker must look into what it is sent."""
CLIENT_ID = "hostile"
_FIRST_VERSION_OF_BATCHES = 3
ALWAYS_TRUE = b"\xff"

_VALUES: dict[str, Any] = {
    "name": PLAIN,
    "topic": PLAIN,
    "topic_names": "hostile-unknown",
    "acks": -1,
    "timeout_ms": 1000,
    "max_wait_ms": 0,
    "min_bytes": 1,
    "max_bytes": 65536,
    "partition_max_bytes": 4096,
    "session_epoch": -1,
    "replica_id": -1,
    "current_leader_epoch": -1,
    "last_fetched_epoch": -1,
    "timestamp": -1,
    "committed_offset": 1,
    "generation_id_or_member_epoch": -1,
    "generation_id": 1,
    "group_id": "hostile-group",
    "groups": "hostile-group",
    "groups_names": "hostile-group",
    "key": "hostile-group",
    "coordinator_keys": "hostile-group",
    "member_id": "",
    "group_instance_id": None,
    "session_timeout_ms": 6000,
    "rebalance_timeout_ms": 100,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "transactional_id": None,
    "producer_id": -1,
    "producer_epoch": -1,
    "num_partitions": -1,
    "replication_factor": -1,
    "count": 2,
    "resource_type": 2,
    "resource_name": PLAIN,
    "configuration_keys": "retention.ms",
    "client_software_name": "hostile",
    "client_software_version": "1.0",
    "allow_auto_topic_creation": True,
    "validate_only": True,
    "states_filter": "Stable",
    "value": "604800000",
}
_OF_STRUCTS: dict[str, Any] = {
    # names of settings, of a group's protocol, and of a topic that is still to be made
    "CreatableTopicConfig.name": "retention.ms",
    "AlterableConfig.name": "retention.ms",
    "IncrementalAlterableConfig.name": "retention.ms",
    "JoinGroupRequestProtocol.name": "range",
    "CreatableTopic.name": PLAIN,
    "CreatePartitionsTopic.name": "hostile-unknown",
    "DeleteTopicState.name": "hostile-unknown",
    "QuotaFilterComponent.entity_type": "user",
    "QuotaEntity.entity_type": "user",
    "QuotaEntity.entity_name": "hostile-nobody",
    "QuotaOperation.key": "producer_byte_rate",
    "QuotaOperation.value": 1e9,
    "CreatableTopic.assignments": [CreatableReplicaAssignment(partition_index=0, broker_ids=[0])],
    "CreatePartitionsTopic.assignments": [CreatePartitionsAssignment(broker_ids=[0])],
}
_ZEROS: dict[str, Any] = {"uuid": ZERO_UUID, "string": "x", "bytes": b"\0\1\0\0\0\1\0\1t\0\0\0\0", "bool": False}


def batch(codec: int = NONE, *, count: int = 2, producer_id: int = -1, key: bytes | None = b"k") -> bytearray:
    """A small batch such as a producer sends, of the present."""
    records = [
        NewRecord(key, b"some value %d" % i, (("h", b"1"),) if i else (), 1_700_000_000_000) for i in range(count)
    ]
    sequence = 0 if producer_id >= 0 else -1
    return build_batch(records, codec=codec, producer_id=producer_id, producer_epoch=sequence, base_sequence=sequence)


def message_set(magic: int, codec: int = NONE, *, count: int = 2, key: bytes | None = b"k") -> bytes:
    """A small message set such as a producer from before 0.11 sends."""
    rows = [(i, 1_700_000_000_000, key, b"some value %d" % i) for i in range(count)]
    return build_set(rows, magic, codec=codec)


def mend_checksums(buffer: bytearray) -> None:
    """Make those of a message set right, as far as its sizes lead."""
    at = 0
    while at + 17 <= len(buffer):
        (size,) = unpack_from(">i", buffer, at + 8)
        if size < 5 or at + 12 + size > len(buffer):
            return
        pack_into(">I", buffer, at + 12, crc32(buffer[at + 16 : at + 12 + size]))
        at += 12 + size


def filled(message_type: type[Message], version: int) -> Message:
    """A message with a value in each field and one element in each array; without what is kafkalite's own."""
    values: dict[str, Any] = {}
    for name, field in message_type.__fields__.items():
        if version not in field.versions or field.tag in (OWN_TAG, CLEANING_TAG):
            continue
        own = f"{message_type.__name__}.{name}"
        if own in _OF_STRUCTS:
            values[name] = _OF_STRUCTS[own]
        else:
            values[name] = [_value(name, field, version)] if field.is_array else _value(name, field, version)
    return message_type(**values)


def _value(name: str, field: Field, version: int) -> Any:
    kind = field.kind
    if not isinstance(kind, Kind):
        return filled(kind, version)
    if kind.name == "records" and version < _FIRST_VERSION_OF_BATCHES:  # of Produce: Fetch requests have none
        return memoryview(message_set(version // 2, version))
    if kind.name == "records":
        return memoryview(batch(version % len(CODEC_NAMES) if version >= 7 else NONE))
    if name in _VALUES and not (_VALUES[name] is None and not field.nullable):
        return _VALUES[name]
    return _ZEROS.get(kind.name, 0)


def golden_frame(api: Api, version: int, *, flippable: bool = False) -> bytes:
    """The whole frame, size first. `flippable`: it stays harmless whichever of its bits flips."""
    frame = bytearray(request_frame(filled(api.request, version), version, 7, CLIENT_ID))
    if (
        flippable
        and "validate_only" in api.request.__fields__
        and version in api.request.__fields__["validate_only"].versions
    ):
        at = len(frame) - (2 if version in api.request.flexible else 1)
        assert frame[at] == 1, f"the last field of {api.name} v{version} is not validate_only"
        frame[at : at + 1] = ALWAYS_TRUE
    return bytes(frame)


def golden_frames() -> Iterator[tuple[Api, int, bytes]]:
    """Every API and version, flippable."""
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            yield api, version, golden_frame(api, version, flippable=True)


def framed(body: bytes | bytearray | memoryview) -> bytes:
    return pack(">i", len(body)) + bytes(body)


def correlation_of(frame: bytes) -> int | None:
    """The correlation id that an answer to `frame` carries; None where the frame is too short to have one."""
    return unpack_from(">i", frame, 8)[0] if len(frame) >= 12 else None
