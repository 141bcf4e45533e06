"""A message behind its version (i16), as keys and values of internal topics hold it.

Source: org.apache.kafka.common.protocol.MessageUtil.toVersionPrefixedBytes.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from kafkalite.common.errors import Malformed
from kafkalite.common.region import Part
from kafkalite.protocol.codec.codec import decode, encoder
from kafkalite.protocol.codec.schema import Message

M = TypeVar("M", bound=Message)

VERSION = struct.Struct(">h")


def versioned(message: Message, version: int) -> bytes:
    """The version, followed by the message in that version."""
    parts: list[Part] = [VERSION.pack(version)]
    encoder(type(message), version)(message, parts)
    return b"".join(parts)  # type: ignore[arg-type]  # no file regions in here


def version_of(data: bytes) -> int:
    """Raises Malformed when `data` is too short for a version."""
    if len(data) < VERSION.size:
        raise Malformed(f"{len(data)} bytes are too few for a version")
    version: int = VERSION.unpack_from(data)[0]
    return version


def known_version_of(data: bytes, version_max: int) -> int:
    """The version, from 0 to `version_max`. Raises Malformed for any other."""
    version = version_of(data)
    if not 0 <= version <= version_max:
        raise Malformed(f"version {version} is not known")
    return version


def read_versioned(message_type: type[M], version: int, data: bytes) -> M:
    """The message in `version` that follows the version in `data`. Raises Malformed."""
    message, _ = decode(message_type, version, memoryview(data), VERSION.size)
    return message
