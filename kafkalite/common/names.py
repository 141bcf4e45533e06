"""The rules for names: topics, groups, Kafka's printable ids, and names of users and clients as nodes of ZooKeeper.

Source: org.apache.kafka.common.internals.Topic, org.apache.kafka.common.Uuid, java.lang.String.{hashCode, trim},
org.apache.kafka.common.utils.Sanitizer.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Collection
from functools import lru_cache
from urllib.parse import quote, unquote

from kafkalite.common.named_tuple import NamedTuple

GROUP_METADATA_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_STATE_TOPIC})

STRING_BYTES_MAX = 32_767  # of a string with a 16-bit length
TOPIC_NAME_LENGTH_MAX = 249  # so that "<name>-<partition>" and its suffixes fit a file name of 255 bytes
_TRIMMED = "".join(map(chr, range(0x21)))
_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?\Z")  # Source: org.apache.kafka.common.Uuid.fromString
_SHOWN_CHARS = 40
_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]+\Z")
ZERO_UUID = uuid.UUID(int=0)

NO_LEADER = -1
"""The id of the leader of a partition that no live broker can lead."""

TopicPartition = tuple[str, int]
"""The name of a topic and the number of one of its partitions."""


class ProducerIdAndEpoch(NamedTuple):
    """The identity of a producer: a higher epoch fences the lower ones."""

    producer_id: int
    producer_epoch: int


def fits_string(text: str) -> bool:
    """Whether the text fits a string of the protocol and of the log."""
    return len(text) * 4 <= STRING_BYTES_MAX or len(text.encode()) <= STRING_BYTES_MAX


def java_trim(text: str) -> str:
    """As String.trim: without the blanks and control characters of ASCII around it, but with those beyond."""
    return text.strip(_TRIMMED)


def topic_name_fault(name: str) -> str | None:
    """The reason why `name` is not a valid topic name; None if it is."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"Topic name is invalid: '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    if not _TOPIC_NAME.match(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def collides(a: str, b: str) -> bool:
    """Whether two topic names have the same metric name, in which '.' and '_' are the same."""
    return a.replace(".", "_") == b.replace(".", "_")


def java_hash(text: str) -> int:
    """`String.hashCode()`: over UTF-16 code units, wrapped to a signed 32-bit integer."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for i in range(0, len(data), 2):
        value = (value * 31 + (data[i] << 8 | data[i + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def java_hash_order(names: Collection[str], capacity: int = 16) -> list[str]:
    """The different names in the order of a `java.util.HashMap` that was made with this capacity and filled in the
    order given. Of names in one of its buckets the first comes first."""
    size = 1
    while size < capacity:
        size *= 2
    while len(names) > size * 3 // 4:
        size *= 2
    return sorted(names, key=lambda name: ((value := java_hash(name)) ^ (value & 0xFFFFFFFF) >> 16) & (size - 1))


@lru_cache(1024)
def partition_for_id(name: str, partition_count: int) -> int:
    """The partition of an internal topic that holds a group's or a transactional id's state."""
    value = java_hash(name)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


def format_uuid(value: uuid.UUID) -> str:
    """Kafka's 22 characters: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")


def parse_uuid(text: str) -> uuid.UUID:
    """The inverse of `format_uuid`. Raises ValueError if `text` is not such an id."""
    if not _ID.match(text):
        raise ValueError(f"not a 22-character Kafka id: {text[:_SHOWN_CHARS]!r}")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text[:22] + "=="))


def random_uuid() -> uuid.UUID:
    """A new id whose text does not start with '-', so that it is safe on command lines."""
    while True:
        value = uuid.uuid4()
        if not format_uuid(value).startswith("-"):
            return value


_SAFE = "-_."  # what java.net.URLEncoder leaves as it is, but for *


def sanitized(name: str) -> str:
    return quote(name, safe=_SAFE).replace("~", "%7E")


def desanitized(name: str) -> str:
    return unquote(name)


GROUP_CONFIGS = "groups/"
CLIENT_METRICS_CONFIGS = "client-metrics/"


def entity_path(folder: str, name: str) -> str:
    """The path of an entity's config below /config. No node of ZooKeeper may be "." or ".."."""
    node = sanitized(name)
    return folder + (node.replace(".", "%2E") if node in (".", "..") else node)
