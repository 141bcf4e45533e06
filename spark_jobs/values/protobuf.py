"""Protobuf by its own library: messages become structs, maps maps, enums the names of their values.

The schema is a FileDescriptorSet (`protoc --include_imports --descriptor_set_out=FILE`). A message that is not set is
null, a scalar without presence has its default. google.protobuf.Timestamp is a time.
Source: the Protocol Buffers encoding; Confluent's message indexes behind the schema's id.
"""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor as Field

from kafkalite.common.errors import ConfigError
from spark_jobs.values.value_format import Decode, ValueFormat, split_prefix

_PLAIN = {
    Field.CPPTYPE_INT32: pa.int32(), Field.CPPTYPE_INT64: pa.int64(), Field.CPPTYPE_UINT32: pa.int64(),
    Field.CPPTYPE_UINT64: pa.int64(), Field.CPPTYPE_DOUBLE: pa.float64(), Field.CPPTYPE_FLOAT: pa.float32(),
    Field.CPPTYPE_BOOL: pa.bool_(), Field.CPPTYPE_ENUM: pa.string(),
}  # fmt: skip
_TIMESTAMP = "google.protobuf.Timestamp"
_INDEXES_MAX = 100


def arrow_type(text: str, message: str) -> pa.DataType:
    """Raises ConfigError that names the field."""
    return _struct(_descriptor(text, message), "value", ())


def decoder(value: ValueFormat) -> Decode:
    kind: Any = message_factory.GetMessageClass(_descriptor(value.schema, value.message))

    def decode(data: bytes) -> Any:
        number, rest = split_prefix(data)
        try:
            return _values(kind.FromString(rest if number is None else _without_indexes(rest)))
        except Exception:  # the library's
            if number is None:
                raise
            return _values(kind.FromString(data))

    return decode


def _descriptor(text: str, message: str) -> Any:
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text)).file
        pool = descriptor_pool.DescriptorPool()
        for file in files:  # protoc writes imports first
            pool.Add(file)
        return pool.FindMessageTypeByName(message)
    except Exception as fault:  # of the library
        raise ConfigError(f"the descriptor set has no message {message!r}: {fault}") from None


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _is_repeated(field: Any) -> bool:
    found = getattr(field, "is_repeated", None)  # since Protobuf 6.31, and the label is deprecated
    return bool(field.label == Field.LABEL_REPEATED if found is None else found)


def _struct(message: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
    if message.full_name in within:
        raise ConfigError(f"{path} contains its own type {message.full_name}, which no column has")
    within = (*within, message.full_name)
    return pa.struct([pa.field(one.name, _type(one, f"{path}.{one.name}", within)) for one in message.fields])


def _type(field: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return pa.map_(pa.string(), _single(entry["value"], f"{path}.value", within))
    single = _single(field, path, within)
    return pa.list_(pa.field("element", single)) if _is_repeated(field) else single


def _single(field: Any, path: str, within: tuple[str, ...]) -> pa.DataType:
    if field.cpp_type == Field.CPPTYPE_STRING:
        return pa.binary() if field.type == Field.TYPE_BYTES else pa.string()
    if field.cpp_type != Field.CPPTYPE_MESSAGE:
        return _PLAIN[field.cpp_type]
    if field.message_type.full_name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    return _struct(field.message_type, path, within)


def _values(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    value = getattr(message, field.name)
    if _is_map(field):
        kind = field.message_type.fields_by_name["value"]
        return [(_key(key), _plain(kind, value[key])) for key in value]
    if _is_repeated(field):
        return [_plain(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain(field, value)


def _plain(field: Any, value: Any) -> Any:
    if field.cpp_type == Field.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    if field.cpp_type != Field.CPPTYPE_MESSAGE:
        return value
    if field.message_type.full_name == _TIMESTAMP:
        return value.seconds * 1_000_000 + value.nanos // 1000
    return _values(value)


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _without_indexes(data: bytes) -> bytes:
    """The data behind the zig-zag varints that tell the message: how many, then each; 0 alone for the first one."""
    position = 0

    def varint() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return (value >> 1) ^ -(value & 1)

    for _ in range(min(varint(), _INDEXES_MAX)):
        varint()
    return data[position:]
