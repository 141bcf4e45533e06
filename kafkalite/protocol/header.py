"""Frames: a 4-byte size, a header, a message.

Request header 1 is (api key, version, correlation id, client id); header 2, for flexible versions, has tagged fields
behind the client id, which keeps its old string form. Response header 0 is the correlation id; header 1 has tagged
fields behind it, but that of ApiVersions never has: a client must understand it before it knows the broker.
Source: RequestHeader.json, ResponseHeader.json, org.apache.kafka.common.protocol.ApiKeys, KIP-511.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import Any

from kafkalite.common.errors import Malformed
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.region import FileRegion, Part
from kafkalite.protocol.apis import API_OF_REQUEST, SERVED, Api
from kafkalite.protocol.codec.codec import decode, encoder
from kafkalite.protocol.codec.schema import RECORDS, Message, malformed, read_uvarint, skip_tags
from kafkalite.protocol.messages.metadata import ApiVersionsResponse

_new_tuple = tuple.__new__
_read_request_header = Struct(">hhih").unpack_from
_write_request_header = Struct(">ihhih").pack
_read_int32 = Struct(">i").unpack_from
_write_response_header_0 = Struct(">ii").pack
_write_response_header_1 = Struct(">iiB").pack

# From which version on a request has header 2; a key that is not in the table has header 1.
_FLEXIBLE_SINCE = {key: api.request.flexible.start for key, api in SERVED.items() if api.request.flexible}
_NEVER = 1 << 16


class RequestHeader(NamedTuple):
    """The API and its version, the id that the response must carry, and the client's own name."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def decode_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header of a request frame (without its size prefix) and where the message begins. Raises Malformed.

    The headers of all versions of an API in the table are known, also of versions that are not served.
    """
    try:
        api_key, api_version, correlation_id, length = _read_request_header(frame)
        if length < 0:
            client_id = None
            position = 10
        else:
            position = 10 + length
            if position > len(frame):
                raise Malformed(f"client id of {length} bytes where {len(frame) - 10} are left")
            client_id = frame[10:position].tobytes().decode(errors="replace")  # as Java does: it is only a name
        if api_version >= _FLEXIBLE_SINCE.get(api_key, _NEVER):
            if frame[position] == 0:
                position += 1
            else:
                count, position = read_uvarint(frame, position)
                position = skip_tags(frame, position, count)
    except (struct_error, IndexError) as error:
        raise malformed("request header", frame, error) from None
    # Half the time of RequestHeader(...), whose __new__ is a Python function.
    return _new_tuple(RequestHeader, (api_key, api_version, correlation_id, client_id)), position


def response_frame(response: Message, version: int, correlation_id: int) -> list[Part]:
    """The whole response: size, header and message. One part of bytes, or bytes and file regions in turn."""
    encode, has_tags, has_records = _response_plan(type(response), version)
    parts: list[Part] = []
    encode(response, parts)
    if has_records:
        parts, size = _merged(parts)
    else:
        parts = [b"".join(parts)]  # type: ignore[arg-type]
        size = len(parts[0])
    if has_tags:
        head = _write_response_header_1(size + 5, correlation_id, 0)
    else:
        head = _write_response_header_0(size + 4, correlation_id)
    parts[0] = head + parts[0]  # type: ignore[operator]
    return parts


def request_frame(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request as a client sends it: size, header and message. Records in files are read."""
    api = API_OF_REQUEST[type(request)]
    parts: list[Part] = []
    encoder(type(request), version)(request, parts)
    name = b"" if client_id is None else client_id.encode()
    name_length = -1 if client_id is None else len(name)
    tags = b"\0" if version in type(request).flexible else b""
    body = [part.read() if isinstance(part, FileRegion) else part for part in parts]
    size = 10 + len(name) + len(tags) + sum(map(len, body))
    head = _write_request_header(size, api.key, version, correlation_id, name_length)
    return b"".join([head, name, tags, *body])


def decode_response(request: Api | type[Message], version: int, frame: memoryview) -> tuple[int, Any]:
    """The correlation id and the message of the response to a request of this type, from a frame without its size
    prefix. Raises Malformed, also when bytes are left behind the message."""
    api = request if isinstance(request, Api) else API_OF_REQUEST[request]
    try:
        (correlation_id,) = _read_int32(frame)
        position = 4
        if _has_response_tags(api.response, version):
            count, position = read_uvarint(frame, position)
            position = skip_tags(frame, position, count)
    except (struct_error, IndexError) as error:
        raise malformed("response header", frame, error) from None
    response, position = decode(api.response, version, frame, position)
    if position != len(frame):
        raise Malformed(f"{len(frame) - position} bytes behind the answer")
    return correlation_id, response


def _merged(parts: list[Part]) -> tuple[list[Part], int]:
    """The parts with neighbours of bytes joined and empty regions left out, and their size; the first one is bytes."""
    merged: list[Part] = []
    size = start = 0
    for index, part in enumerate(parts):
        if type(part) is FileRegion:
            if part.size == 0:
                parts[index] = b""
                continue
            if joined := b"".join(parts[start:index]):  # type: ignore[arg-type]
                merged.append(joined)
                size += len(joined)
            merged.append(part)
            size += part.size
            start = index + 1
    if joined := b"".join(parts[start:]):  # type: ignore[arg-type]
        merged.append(joined)
        size += len(joined)
    return merged, size


@cache
def _response_plan(
    response_type: type[Message], version: int
) -> tuple[Callable[[Message, list[Part]], None], bool, bool]:
    """The encoder, whether the header has tagged fields, whether there may be regions."""
    return (
        encoder(response_type, version),
        _has_response_tags(response_type, version),
        _carries_records(response_type),
    )


def _has_response_tags(response_type: type[Message], version: int) -> bool:
    return response_type is not ApiVersionsResponse and version in response_type.flexible


def _carries_records(message_type: type[Message]) -> bool:
    return any(
        field.kind is RECORDS or (isinstance(field.kind, type) and _carries_records(field.kind))
        for field in message_type.__fields__.values()
    )
