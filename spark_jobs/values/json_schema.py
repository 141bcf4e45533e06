"""JSON by a JSON Schema: objects become structs, or maps where only additionalProperties says what is in them.

What decides a column's type is read from the schema: type, properties, required, items, additionalProperties, format
date-time and date. Properties that the schema does not name are left out; a value of another type is a fault.
Source: JSON Schema 2020-12.
"""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa

from kafkalite.common.errors import ConfigError
from spark_jobs.values.value_format import Decode, ValueFormat, split_prefix

_PLAIN = {"boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64(), "string": pa.string()}
_PYTHON = {"boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,)}


def arrow_type(text: str, _: str) -> pa.DataType:
    """Raises ConfigError that names the field."""
    try:
        schema = json.loads(text)
    except ValueError as fault:
        raise ConfigError(f"the JSON Schema is no JSON: {fault}") from None
    return _type(schema, "value")


def decoder(value: ValueFormat) -> Decode:
    schema = json.loads(value.schema)

    def decode(data: bytes) -> Any:
        _, rest = split_prefix(data)
        return _checked(json.loads(rest), schema, "value")

    return decode


def _kind(schema: Any, path: str) -> tuple[str, bool]:
    """The one type of a schema besides null, and whether null is allowed."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    kinds = [kinds] if isinstance(kinds, str) else list(kinds or ())
    others = [each for each in kinds if each != "null"]
    if len(others) != 1:
        raise ConfigError(f"{path} has no single type, which a column needs")
    return others[0], "null" in kinds


def _type(schema: Any, path: str) -> pa.DataType:
    kind, _ = _kind(schema, path)
    if kind == "string" and schema.get("format") == "date-time":
        return pa.timestamp("us", tz="UTC")
    if kind == "string" and schema.get("format") == "date":
        return pa.date32()
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind == "array":
        return pa.list_(pa.field("element", _type(schema.get("items"), f"{path}.element")))
    if kind != "object":
        raise ConfigError(f"{path} is of the type {kind}, which no column has")
    if schema.get("properties"):
        return pa.struct([pa.field(name, _type(one, f"{path}.{name}")) for name, one in schema["properties"].items()])
    return pa.map_(pa.string(), _type(schema.get("additionalProperties"), f"{path}.value"))


def _moment(text: str, form: str | None) -> Any:
    if form == "date-time":
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return date.fromisoformat(text) if form == "date" else text


def _checked(value: Any, schema: Any, path: str) -> Any:
    """The value as Arrow takes it. Raises ValueError that names the field."""
    kind, is_nullable = _kind(schema, path)
    if value is None and (is_nullable or "." in path):
        return None
    if kind in _PYTHON:
        if not isinstance(value, _PYTHON[kind]) or (isinstance(value, bool) and kind != "boolean"):
            raise ValueError(f"{path} is {type(value).__name__}, not {kind}")
        return _moment(value, schema.get("format")) if isinstance(value, str) else value
    if kind == "array":
        if not isinstance(value, list):
            raise ValueError(f"{path} is {type(value).__name__}, not array")
        return [_checked(one, schema["items"], f"{path}.element") for one in value]
    if not isinstance(value, dict):
        raise ValueError(f"{path} is {type(value).__name__}, not object")
    if not schema.get("properties"):
        return [(name, _checked(one, schema["additionalProperties"], f"{path}.value")) for name, one in value.items()]
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        raise ValueError(f"{path} has no {missing[0]}")
    return {name: _checked(value.get(name), one, f"{path}.{name}") for name, one in schema["properties"].items()}
