"""Messages to bytes and back, by code that is compiled when a (message, version) is first used.

A decoder returns a message or raises `Malformed`, for any bytes. An encoder appends parts to a list; the
records of a message pass through unchanged. To read the compiled code of a message, print it:
`DecoderSource(HeartbeatRequest, 4).write().text("decode(data, p)")`.
Keys and values of internal topics are a message behind its version (i16): `versioned` and `read_versioned`.
Source: org.apache.kafka.common.protocol.MessageUtil.toVersionPrefixedBytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

from kafkalite.common.errors import Malformed
from kafkalite.common.region import Part
from kafkalite.protocol.codec.decoder_source import DecoderSource
from kafkalite.protocol.codec.encoder_source import EncoderSource
from kafkalite.protocol.codec.schema import Message

M = TypeVar("M", bound=Message)


def decoder(message_type: type[M], version: int) -> Callable[[memoryview, int], tuple[M, int]]:
    """A function from (frame, position) to the message there and the position behind it."""
    return _decoder(message_type, version)


def encoder(message_type: type[M], version: int) -> Callable[[M, list[Part]], None]:
    """A function that appends a message's bytes to a list of parts."""
    return _encoder(message_type, version)


def encoded(message: Message, version: int) -> bytes:
    """The bytes of a message without records."""
    parts: list[Part] = []
    encoder(type(message), version)(message, parts)
    return b"".join(parts)  # type: ignore[arg-type]  # no file regions in here


def decode(message_type: type[M], version: int, data: memoryview, position: int = 0) -> tuple[M, int]:
    """The message of this type at `position`, and the position behind it. Raises Malformed."""
    return cast("tuple[M, int]", _decoder(message_type, version)(data, position))


@cache
def _decoder(message_type: type[Message], version: int) -> Callable[..., Any]:
    source = DecoderSource(message_type, version, lambda: _counting_decoder(message_type, version)).write()
    return source.compile("decode(data, p)", f"decode {message_type.__name__} v{version}")


@cache
def _counting_decoder(message_type: type[Message], version: int) -> Callable[..., Any]:
    """The decoder for frames that are large enough to hold too many elements."""
    source = DecoderSource(message_type, version).write()
    return source.compile("decode(data, p)", f"decode large {message_type.__name__} v{version}")


@cache
def _encoder(message_type: type[Message], version: int) -> Callable[..., Any]:
    source = EncoderSource(message_type, version).write()
    return source.compile("encode(o1, out)", f"encode {message_type.__name__} v{version}")


VERSION = struct.Struct(">h")


def versioned(message: Message, version: int) -> bytes:
    """The version, followed by the message in that version."""
    return VERSION.pack(version) + encoded(message, version)


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
