"""Avro as valid JSON, in which one field's fault costs one field."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import fastavro
import fastavro.read
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.text import read_json
from kafkalite.console.decoders import avro
from kafkalite.console.decoders.schema_decoder import DecoderPool, SchemaDecoder
from kafkalite.console.decoders.wire import AVRO, Schema


@pytest.fixture(autouse=True, scope="module")
def _readers_of_others() -> Iterator[None]:
    """The readers of logical types, which all users of fastavro in a process share, are as before when this is over."""
    readers: Any = fastavro.read.LOGICAL_READERS
    before = dict(readers)
    yield
    readers.clear()
    readers.update(before)


def record_of(**fields: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]})


def logical(kind: Any, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def zigzag(number: int) -> bytes:
    value, out = (number << 1) ^ (number >> 63), bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sized(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def told(schema: str, data: bytes) -> Any:
    return read_json(avro.compile_schema(schema, "")(data), strict=True)


@pytest.mark.parametrize(
    ("kind", "data", "expected"),
    [
        (logical("int", "date"), zigzag(2_932_897), {"fault": "no date", "raw": 2_932_897}),
        (logical("int", "date"), zigzag(-(1 << 31)), {"fault": "no date", "raw": -(1 << 31)}),
        (logical("int", "time-millis"), zigzag(86_400_000), {"fault": "no time of a day", "raw": 86_400_000}),
        (logical("long", "time-micros"), zigzag(-1), {"fault": "no time of a day", "raw": -1}),
        (logical("long", "timestamp-millis"), zigzag(1 << 60), {"fault": "no time", "raw": 1 << 60}),
        (logical("long", "local-timestamp-micros"), zigzag(-(1 << 63)), {"fault": "no time", "raw": -(1 << 63)}),
        (logical("string", "uuid"), sized(b"none"), {"fault": "no UUID", "raw": "none"}),
        (
            logical("bytes", "decimal", precision=4, scale=2),
            sized(b"\1" * 5_000),
            {"fault": "no decimal", "raw": {"hex": "01" * 5_000}},
        ),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, zigzag(1), "B"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, zigzag(2), {"fault": "no symbol", "raw": 2}),
        ("string", sized(b"a\xffb"), "a\\xffb"),
        ("double", b"\0\0\0\0\0\0\xf8\x7f", "NaN"),
        ("float", b"\0\0\x80\xff", "-Infinity"),
        ("bytes", sized(b"\0\xff"), {"hex": "00ff"}),
        ({"type": "fixed", "name": "F", "size": 2}, b"\1\2", {"hex": "0102"}),
    ],
)
def test_what_is_no_json_or_no_value_costs_one_field(kind: Any, data: bytes, expected: Any) -> None:
    schema = record_of(before="string", it=kind, behind="long")
    assert told(schema, sized(b"x") + data + zigzag(7)) == {"before": "x", "it": expected, "behind": 7}


@given(
    st.dates(),
    st.datetimes(timezones=st.just(UTC), min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),
    st.decimals(-(10**9), 10**9, places=3),
    st.uuids(),
)
@settings(deadline=None)
def test_logical_types_read_as_the_library_reads_them(day: date, at: datetime, number: Decimal, one: UUID) -> None:
    schema = record_of(
        day=logical("int", "date"),
        at=logical("long", "timestamp-micros"),
        number=logical("bytes", "decimal", precision=20, scale=3),
        one=logical("string", "uuid"),
    )
    stream = io.BytesIO()
    value = {"day": day, "at": at, "number": number, "one": one}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), value)
    found = told(schema, stream.getvalue())
    assert Decimal(found.pop("number")) == number
    assert found == {"day": str(day), "at": str(at), "one": str(one)}


def test_an_enum_may_be_named_again_in_a_namespace_and_a_union() -> None:
    enum = {"type": "enum", "name": "E", "namespace": "far.away", "symbols": ["A", "B"]}
    schema = record_of(first=enum, again=["null", "far.away.E"], many={"type": "array", "items": "far.away.E"})
    assert told(schema, zigzag(0) + zigzag(1) + zigzag(1) + zigzag(2) + zigzag(0) + zigzag(7) + b"\0") == {
        "first": "A",
        "again": "B",
        "many": ["A", {"fault": "no symbol", "raw": 7}],
    }


def test_a_record_may_hold_itself_and_an_enum() -> None:
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    fields = [{"name": "next", "type": ["null", "L"]}, {"name": "one", "type": enum}]
    schema = json.dumps({"type": "record", "name": "L", "fields": fields})
    assert told(schema, b"\2\0\0\2") == {"next": {"next": None, "one": "A"}, "one": "B"}


def test_the_five_bytes_of_a_registry_are_skipped() -> None:
    assert told('"string"', b"\0\0\0\0\7" + sized(b"x")) == "x"


_NAMES = st.sampled_from(["a", "b", "c"])
_LEAVES = st.sampled_from([
    "null", "boolean", "int", "long", "float", "double", "bytes", "string",
    logical("int", "date"), logical("int", "time-millis"), logical("long", "timestamp-millis"),
    logical("long", "local-timestamp-micros"), logical("string", "uuid"),
    logical("bytes", "decimal", precision=9, scale=2),
])  # fmt: skip


def _containers(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        of.map(lambda kind: {"type": "array", "items": kind}),
        of.map(lambda kind: {"type": "map", "values": kind}),
        of.map(lambda kind: ["null", kind] if kind != "null" and not isinstance(kind, list) else kind),
        st.dictionaries(_NAMES, of, min_size=1).map(lambda fields: {"record": fields}),
    )


def _named(kind: Any, count: list[int]) -> Any:
    """The records of a drawn schema with names of their own."""
    if isinstance(kind, list):
        return [_named(each, count) for each in kind]
    if not isinstance(kind, dict):
        return kind
    if "record" in kind:
        count[0] += 1
        name = f"R{count[0]}"
        fields = [{"name": field, "type": _named(of, count)} for field, of in kind["record"].items()]
        return {"type": "record", "name": name, "fields": fields}
    return {key: _named(each, count) if key in ("items", "values") else each for key, each in kind.items()}


SCHEMAS = st.recursive(_LEAVES, _containers, max_leaves=6).map(lambda kind: json.dumps(_named(kind, [0])))
DATA = st.one_of(
    st.binary(max_size=60),
    st.lists(st.sampled_from([zigzag(n) for n in (-(1 << 63), -2, -1, 0, 1, 2, 50, 1 << 31, 1 << 62)]), max_size=8).map(
        b"".join
    ),
)


@given(schema=SCHEMAS, records=st.lists(DATA, min_size=1, max_size=8))
@settings(deadline=None, max_examples=60)
def test_any_schema_and_any_bytes_are_json_or_a_reason(
    shared_pool: DecoderPool, schema: str, records: list[bytes]
) -> None:
    decode = SchemaDecoder(shared_pool, Schema(AVRO, schema))
    decode.expect(records)
    for data in records:
        try:
            read_json(decode(data), strict=True)
        except ValueError as fault:
            assert str(fault) and "JSON" not in str(fault)
