"""Decoders of keys and values by a schema that the reader gives: Avro and Protobuf, each by its usual library.

The five bytes in front of data of a schema registry (0, then the id of a schema) are skipped, and for Protobuf the
indexes of the message that follow them.
Source: the wire format of Confluent's Schema Registry.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import io
from typing import Any

from kafkalite.common.json_text import read_json
from kafkalite.console.messages.payload import AUTO, AVRO, PROTOBUF, Decode, Format
from kafkalite.console.request.errors import ApiError, invalid

_REGISTRY_MAGIC = 0
_REGISTRY_BYTES = 5


def available() -> dict[str, bool]:
    """The formats that are installed here."""
    modules = {AVRO: "fastavro", PROTOBUF: "google.protobuf", "parquet": "pyarrow"}
    return {name: _is_installed(module) for name, module in modules.items()}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it
        return False


def format_of(name: str, schema: str | None, message: str | None, side: str) -> Format:
    """How a key or value (`side`) is to be shown. Raises ApiError for a schema that is none, or is missing."""
    if name not in (AVRO, PROTOBUF):
        return Format(name or AUTO)
    if not schema:
        raise invalid(f"{side}_format={name} needs {side}_schema")
    if not available()[name]:
        package = {AVRO: "fastavro", PROTOBUF: "protobuf"}[name]
        raise ApiError(409, "REFUSED", f"{name} needs the package {package}: pip install kafkalite[console]")
    return Format(name, _avro(schema, side) if name == AVRO else _protobuf(schema, message, side))


def _without_registry(data: bytes) -> bytes:
    is_of_registry = len(data) >= _REGISTRY_BYTES and data[0] == _REGISTRY_MAGIC
    return data[_REGISTRY_BYTES:] if is_of_registry else data


def _avro(schema: str, side: str) -> Decode:
    fastavro: Any = importlib.import_module("fastavro")
    try:
        parsed = fastavro.parse_schema(read_json(schema, strict=True))
    except Exception as fault:  # the library's own errors have no common base
        raise invalid(f"{side}_schema is no Avro schema: {str(fault)[:200]}") from None

    def decode(data: bytes) -> Any:
        fault: Exception | None = None
        for each in dict.fromkeys((_without_registry(data), data)):
            stream = io.BytesIO(each)
            try:
                value = fastavro.schemaless_reader(stream, parsed)
            except Exception as error:
                fault = fault or error
                continue
            if stream.tell() == len(each):
                return value
            fault = fault or ValueError(f"{len(each) - stream.tell()} bytes are left over")
        raise ValueError(str(fault) or type(fault).__name__)

    return decode


def _protobuf(schema: str, message: str | None, side: str) -> Decode:
    if not message:
        raise invalid(f"{side}_format=protobuf needs {side}_message, the full name of a message")
    descriptor_pb2: Any = importlib.import_module("google.protobuf.descriptor_pb2")
    descriptor_pool: Any = importlib.import_module("google.protobuf.descriptor_pool")
    message_factory: Any = importlib.import_module("google.protobuf.message_factory")
    json_format: Any = importlib.import_module("google.protobuf.json_format")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(schema, validate=True))
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(message))
    except Exception as fault:  # the library's own errors have no common base
        raise invalid(f"{side}_schema is no base64 of a FileDescriptorSet with {message}: {str(fault)[:200]}") from None

    def decode(data: bytes) -> Any:
        fault: Exception | None = None
        for each in dict.fromkeys((_without_indexes(data), data)):
            try:
                return json_format.MessageToDict(kind.FromString(each), preserving_proto_field_name=True)
            except Exception as error:
                fault = fault or error
        raise ValueError(str(fault) or type(fault).__name__)

    return decode


def _without_indexes(data: bytes) -> bytes:
    """Without the registry's five bytes and the zig-zag varints behind them: how many indexes, then each."""
    rest = _without_registry(data)
    if len(rest) == len(data) or not rest:
        return data
    count, position = _varint(rest, 0)
    for _ in range(min(count, 100)):
        _, position = _varint(rest, position)
    return rest[position:]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(data) and shift < 35:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if not byte & 0x80:
            break
    return (value >> 1) ^ -(value & 1), position
