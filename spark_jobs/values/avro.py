"""Avro by fastavro: records become structs, nullable unions nullable fields.

Times of a day and UUIDs are read as what they are stored as, which every table has.
Source: Apache Avro 1.12, Schema Resolution and Logical Types.
"""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa

from kafkalite.common.errors import ConfigError
from spark_jobs.values.value_format import Decode, ValueFormat, schema_of_id, split_prefix

_PLAIN = {
    "boolean": pa.bool_(), "int": pa.int32(), "long": pa.int64(), "float": pa.float32(), "double": pa.float64(),
    "bytes": pa.binary(), "string": pa.string(), "enum": pa.string(), "fixed": pa.binary(),
}  # fmt: skip
_TIME = pa.timestamp("us", tz="UTC")
_LOGICAL = {
    "date": pa.date32(), "timestamp-millis": _TIME, "timestamp-micros": _TIME,
    "local-timestamp-millis": pa.timestamp("us"), "local-timestamp-micros": pa.timestamp("us"),
}  # fmt: skip


def arrow_type(text: str, _: str) -> pa.DataType:
    """Raises ConfigError that names the field."""
    try:
        schema = json.loads(text)
        fastavro.parse_schema(schema)
    except Exception as fault:  # of the library
        raise ConfigError(f"the Avro schema is none: {fault}") from None
    return _type(schema, "value", {})


def decoder(value: ValueFormat) -> Decode:
    wanted: Any = fastavro.parse_schema(_without_objects(json.loads(value.schema)))
    writers: dict[int, Any] = {}

    def decode(data: bytes) -> Any:
        number, rest = split_prefix(data)
        writer = wanted
        if number is not None and value.registry:
            if number not in writers:
                text = schema_of_id(value.registry, number)
                writers[number] = fastavro.parse_schema(_without_objects(json.loads(text)))
            writer = writers[number]
        faults = []
        for each, schema in ((rest, writer), *(((data, wanted),) if number is not None else ())):
            stream = io.BytesIO(each)
            try:
                found = fastavro.schemaless_reader(stream, schema, wanted)
                if stream.tell() != len(each):
                    raise ValueError(f"{len(each) - stream.tell()} bytes remain")
                return found
            except Exception as fault:  # the library's errors have no common base
                faults.append(fault)
        raise ValueError(str(faults[0]) or type(faults[0]).__name__)

    return decode


def _type(schema: Any, path: str, names: dict[str, Any]) -> pa.DataType:
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        if len(kinds) != 1:
            raise ConfigError(f"{path} is a union of {len(kinds)} types, which no column has")
        return _type(kinds[0], path, names)
    if isinstance(schema, str):
        if schema in names:
            if names[schema] is None:
                raise ConfigError(f"{path} contains its own type {schema}, which no column has")
            return names[schema]
        if schema not in _PLAIN:
            raise ConfigError(f"{path} is of the type {schema}, which no column has")
        return _PLAIN[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _type(kind, path, names)
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    if logical in _LOGICAL and kind in ("int", "long"):
        return _LOGICAL[logical]
    if kind == "array":
        return pa.list_(pa.field("element", _type(schema["items"], f"{path}.element", names)))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"], f"{path}.value", names))
    if kind not in ("record", "error"):
        found = _type(kind, path, names)
        if "name" in schema:
            names[schema["name"]] = found
        return found
    names[schema["name"]] = None
    fields = [pa.field(one["name"], _type(one["type"], f"{path}.{one['name']}", names)) for one in schema["fields"]]
    names[schema["name"]] = pa.struct(fields)
    return names[schema["name"]]


def _without_objects(schema: Any) -> Any:
    """The schema without logical types that Python would have objects of its own for."""
    if isinstance(schema, list):
        return [_without_objects(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = [name for name in ("type", "items", "values") if name in schema]
    found = {**schema, **{name: _without_objects(schema[name]) for name in inner}}
    if "fields" in found:
        found["fields"] = [_without_objects(one) for one in found["fields"]]
    if found.get("logicalType") in ("uuid", "time-millis", "time-micros"):
        del found["logicalType"]
    return found
