"""One record into a topic, as a producer with acks=all sends it."""

from __future__ import annotations

import base64
import binascii
import random
from typing import TYPE_CHECKING, Any

from kafkalite.client.blocking_client import name_of_error
from kafkalite.common.checksum import partition_for_key
from kafkalite.console.request.parameters import ApiError, invalid, refused
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.compression import CODECS

if TYPE_CHECKING:
    from kafkalite.client.cluster_client import ClusterClient

_VERSION = 8
_ALL = -1
_GRACE_S = 5.0


def bytes_of(text: str | None, encoding: str, name: str) -> bytes | None:
    """Raises ApiError."""
    if text is None:
        return None
    if encoding == "text":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{name} is no base64") from None


def partition_for(key: bytes | None, partitions: list[int]) -> int:
    """By Kafka's hash of the key, as any Java client; without a key any."""
    if key is None:
        return random.choice(partitions)
    return partitions[partition_for_key(key, len(partitions))]


def headers_of(given: list[Any]) -> list[tuple[str, bytes | None]]:
    """Raises ApiError."""
    found: list[tuple[str, bytes | None]] = []
    for one in given:
        name, value = one.get("name"), one.get("value")
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise invalid("a header is {name: TEXT, value: TEXT or null}")
        try:
            name.encode()
            found.append((name, None if value is None else value.encode()))
        except UnicodeEncodeError:
            raise invalid("a header is not valid Unicode") from None
    return found


def produce(
    cluster: ClusterClient, topic: str, partition: int, record: NewRecord, compression: str, timeout_s: float
) -> int:
    """The offset. Raises ApiError for a refusal, Unanswered, ConfigError."""
    batch = build_batch([record], codec=CODECS[compression])
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=partition, records=memoryview(batch))]
    )
    request = ProduceRequest(acks=_ALL, timeout_ms=int(timeout_s * 1000), topic_data=[data])
    leader = cluster.client(cluster.leader_of((topic, partition)))
    one = leader.ask(request, _VERSION, timeout_s + _GRACE_S).responses[0].partition_responses[0]
    if one.error_code:
        name = name_of_error(one.error_code)
        if "AUTHORIZATION_FAILED" in name:
            raise ApiError(403, "NOT_PERMITTED", f"the access control lists do not allow it: {name}")
        raise refused(f"{topic}-{partition} does not take it: {one.error_message or name}")
    offset: int = one.base_offset
    return offset
