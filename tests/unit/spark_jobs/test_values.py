"""Values decoded by a schema: the column's type, each kind of value, the reason of one that has none."""

from __future__ import annotations

import base64
import io
import json
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

import fastavro
import pyarrow as pa
from google.protobuf import descriptor_pb2, timestamp_pb2

from kafkalite.common.errors import ConfigError
from spark_jobs.decoding import with_decoded
from spark_jobs.values import value_format
from spark_jobs.values.value_format import ValueFormat

AVRO = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "tags", "type": {"type": "map", "values": "int"}},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "count", "type": "int"}, {"name": "state", "type": "State"}]}}},
    ],
}  # fmt: skip
ORDER = {
    "id": 7, "note": None, "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "day": date(2026, 1, 31),
    "price": Decimal("19.95"), "state": "PAID", "key": "5f3c", "tags": {"a": 1},
    "lines": [{"count": 2, "state": "NEW"}],
}  # fmt: skip


def encoded(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoded(value: ValueFormat, data: bytes) -> Any:
    return pa.array([value.decoder()(data)], value.arrow_type())[0].as_py()


def test_avro_becomes_typed_columns() -> None:
    value = ValueFormat("avro", json.dumps(AVRO))
    found = decoded(value, encoded(AVRO, ORDER))
    assert found == {**ORDER, "tags": [("a", 1)]}
    assert decoded(value, b"\0\0\0\0\7" + encoded(AVRO, ORDER)) == found
    assert value.arrow_type().field("price").type == pa.decimal128(9, 2)
    for data in (b"", encoded(AVRO, ORDER)[:-3], encoded(AVRO, ORDER) + b"x"):
        with pytest.raises(Exception, match=r"."):
            value.decoder()(data)


def test_avro_of_another_version_is_resolved_by_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    new = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "string", "default": "-"}, *old["fields"]]}
    asked = []

    def schema_of_id(_: str, number: int) -> str:
        asked.append(number)
        if number == 9:
            raise ConfigError("the registry does not tell schema 9")
        return json.dumps(old)

    from spark_jobs.values import avro

    monkeypatch.setattr(avro, "schema_of_id", schema_of_id)
    decode = ValueFormat("avro", json.dumps(new), registry="http://localhost").decoder()
    data = b"\0\0\0\0\5" + encoded(old, {"a": 3})
    assert decode(data) == decode(data) == {"a": 3, "b": "-"} and asked == [5]
    with pytest.raises(ConfigError, match="schema 9"):
        decode(b"\0\0\0\0\11" + encoded(old, {"a": 3}))


def test_a_schema_is_read_from_a_registry() -> None:
    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/schemas/ids/3":
                self.send_error(404)
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"schema": "{}"}')

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        assert value_format.schema_of_id(url, 3) == "{}"
        with pytest.raises(ConfigError, match="does not tell schema 4"):
            value_format.schema_of_id(url, 4)
        server.shutdown()
    with pytest.raises(ConfigError, match="does not tell schema 3"):
        value_format.schema_of_id(url, 3)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"name": "a", "type": ["int", "string"]}, "value.a is a union of 2 types"),
        ({"name": "a", "type": ["null", "R"]}, "value.a contains its own type R"),
    ],
)
def test_an_avro_type_that_no_column_has_is_named(field: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ValueFormat("avro", json.dumps({"type": "record", "name": "R", "fields": [field]})).arrow_type()


def descriptor_set() -> str:
    files = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(
        name="o.proto", package="shop", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="count", number=1, type=kinds.TYPE_INT32, label=1)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT64, label=1)
    for number, (name, kind, label, of) in enumerate(
        (
            ("id", kinds.TYPE_INT64, 1, ""),
            ("at", kinds.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
            ("state", kinds.TYPE_ENUM, 1, ".shop.State"),
            ("lines", kinds.TYPE_MESSAGE, 3, ".shop.Order.Line"),
            ("tags", kinds.TYPE_MESSAGE, 3, ".shop.Order.TagsEntry"),
            ("raw", kinds.TYPE_BYTES, 1, ""),
        ),
        1,
    ):
        order.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    return base64.b64encode(files.SerializeToString()).decode()


def test_protobuf_becomes_typed_columns() -> None:
    value = ValueFormat("protobuf", descriptor_set(), "shop.Order")
    data = bytes([8, 7, 18, 2, 8, 60, 24, 1, 34, 2, 8, 2, 42, 5, 10, 1, 97, 16, 3, 50, 1, 255])
    wanted = {
        "id": 7, "at": datetime(1970, 1, 1, 0, 1, tzinfo=UTC), "state": "PAID", "lines": [{"count": 2}],
        "tags": [("a", 3)], "raw": b"\xff",
    }  # fmt: skip
    assert decoded(value, data) == wanted
    assert decoded(value, b"\0\0\0\0\5\0" + data) == decoded(value, b"\0\0\0\0\5\2\0" + data) == wanted
    assert decoded(value, b"") == {"id": 0, "at": None, "state": "NEW", "lines": [], "tags": [], "raw": b""}
    with pytest.raises(ConfigError, match=r"no message 'shop\.Bill'"):
        ValueFormat("protobuf", descriptor_set(), "shop.Bill").arrow_type()


JSON = {
    "type": "object", "required": ["id"], "properties": {
        "id": {"type": "integer"}, "at": {"type": ["string", "null"], "format": "date-time"},
        "price": {"type": "number"}, "lines": {"type": "array", "items": {"type": "string"}},
        "tags": {"type": "object", "additionalProperties": {"type": "boolean"}},
    },
}  # fmt: skip


def test_json_becomes_typed_columns() -> None:
    value = ValueFormat("json", json.dumps(JSON))
    text = '{"id": 7, "at": "2026-01-31T12:00:00Z", "price": 2, "lines": ["a"], "tags": {"x": true}, "more": 1}'
    wanted = {
        "id": 7, "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "price": 2.0, "lines": ["a"], "tags": [("x", True)],
    }  # fmt: skip
    assert decoded(value, text.encode()) == wanted
    assert decoded(value, b'{"id": 7, "lines": null}') == {
        "id": 7,
        "at": None,
        "price": None,
        "lines": None,
        "tags": None,
    }
    for data, message in (
        (b"{}", "value has no id"),
        (b'{"id": "7"}', "value.id is str, not integer"),
        (b'{"id": true}', "value.id is bool, not integer"),
        (b'{"id": 1, "lines": [3]}', "value.lines.element is int, not string"),
        (b"[]", "value is list, not object"),
    ):
        with pytest.raises(ValueError, match=message):
            value.decoder()(data)
    with pytest.raises(ConfigError, match=r"value\.x has no single type"):
        ValueFormat("json", '{"type": "object", "properties": {"x": {}}}').arrow_type()


def test_rows_without_a_value_of_the_type_have_reasons() -> None:
    value = ValueFormat("json", json.dumps(JSON))
    data = [b'{"id": 1}', b"{", None, b'{"id": 99999999999999999999}', b'{"id": 2}']
    rows = pa.RecordBatch.from_pydict({"offset": list(range(5)), "value": pa.array(data, pa.binary())})
    good, dead = with_decoded(rows, value.decoder(), value.arrow_type())
    assert good["offset"].to_pylist() == [0, 2, 4]
    assert [row and row["id"] for row in good["value"].to_pylist()] == [1, None, 2]
    assert dead["offset"].to_pylist() == [1, 3] and dead["value"].to_pylist() == [data[1], data[3]]
    assert all(dead["reason"].to_pylist())
