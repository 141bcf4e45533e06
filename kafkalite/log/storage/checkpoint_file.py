"""Kafka's small text files: offsets of many partitions, the leader epochs of one, its topic id.

A checkpoint has a line with the version, 0, a line with the number of entries, then one entry per line. It is always
rewritten as a whole (see `Files.write_atomically`). A corrupt file is logged and counts as empty, which costs a longer
recovery, never data.
Source: org.apache.kafka.server.common.CheckpointFile, OffsetCheckpointFile, PartitionMetadataFile.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping

from kafkalite.common.names import ZERO_UUID, TopicPartition, format_uuid, parse_uuid
from kafkalite.log.storage.files import Files

logger = logging.getLogger(__name__)

_VERSION = "0"
_SHOWN_CHARS = 40


def encode_entries(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode()


def text_of(data: bytes) -> str:
    """Raises ValueError."""
    try:
        return data.decode()
    except UnicodeDecodeError as fault:
        raise ValueError(f"byte {fault.start} is no text in UTF-8") from None


def number_of(text: str) -> int:
    """Raises ValueError."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text[:_SHOWN_CHARS]!r} is no number") from None


def decode_entries(data: bytes, width: int) -> list[list[str]]:
    """The fields of every entry, `width` each. ValueError if the file is corrupt; an empty file has no entries."""
    lines = text_of(data).split("\n")
    if lines[-1] == "":
        lines.pop()
    elif len(lines) > 2:
        raise ValueError(f"the last line is cut off: {lines[-1]!r}")  # perhaps within a number
    if len(lines) < 2:
        if lines in ([], [_VERSION]):
            return []
        raise ValueError(f"unknown version {lines[0]!r}")
    if lines[0] != _VERSION:
        raise ValueError(f"unknown version {lines[0]!r}")
    entries = [line.split() for line in lines[2:]]
    if number_of(lines[1]) != len(entries):
        raise ValueError(f"{lines[1]} entries announced, {len(entries)} found")
    for entry in entries:
        if len(entry) != width:
            raise ValueError(f"malformed line {' '.join(entry)!r}")
    return entries


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """`topic partition offset` lines."""
    return encode_entries(f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())


def decode_offsets(data: bytes) -> list[tuple[TopicPartition, int]]:
    """The offset of each line. Raises ValueError for a corrupt file."""
    entries = decode_entries(data, 3)
    return [((topic, number_of(partition)), number_of(offset)) for topic, partition, offset in entries]


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """The offsets in `path`; empty when there is no such file, or a corrupt one, which is logged.

    Raises OSError for a file that cannot be read: its content is not lost.
    """
    try:
        return dict(decode_offsets(files.read(path)))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        logger.warning("cannot read %s (%s); continuing without it", path, error)
        return {}


def encode_topic_id(topic_id: uuid.UUID) -> bytes:
    """The content of partition.metadata."""
    return f"version: 0\ntopic_id: {format_uuid(topic_id)}".encode()


class LaterVersion(ValueError):
    """The file is of a version to come: it may hold more than is known of, and is not written again."""


def decode_topic_id(data: bytes) -> uuid.UUID:
    """The topic id in the content of partition.metadata. Raises ValueError."""
    lines = text_of(data).split("\n")
    fields = {name: value for name, colon, value in (line.partition(": ") for line in lines) if colon}
    version = fields.get("version", "")
    if version != _VERSION:
        raise LaterVersion(f"unknown version {version}") if version.isdecimal() else ValueError("it has no version")
    if "topic_id" not in fields:
        raise ValueError("it has no line 'topic_id: ...'")
    topic_id = parse_uuid(fields["topic_id"])
    if topic_id == ZERO_UUID:
        raise ValueError("an id of zeros")
    return topic_id


def read_topic_id(files: Files, path: str) -> uuid.UUID | None:
    """The topic id in a partition.metadata; None when there is no such file. Raises ValueError for a corrupt one,
    OSError."""
    try:
        return decode_topic_id(files.read(path))
    except FileNotFoundError:
        return None
