"""Messages to bytes and back, by code that is compiled when a (message, version) is first used.

A decoder returns a message or raises `Malformed`, for any bytes. An encoder appends parts to a list; the
records of a message pass through unchanged. To read the compiled code of a message, print it:
`DecoderSource(HeartbeatRequest, 4).write().text("decode(data, p)")`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, cast

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
