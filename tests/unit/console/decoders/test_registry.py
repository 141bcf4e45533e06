"""Records of a schema registry: each decoded by the schema that its id names, whatever the registry does."""

from __future__ import annotations

import base64
import gc
import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kafkalite.common.errors import ConfigError
from kafkalite.console.decoders.registry import RegistryFault, SchemaRegistry
from kafkalite.console.decoders.schema_decoder import DecoderPool
from kafkalite.console.decoders.wire import ENDS_MAX
from kafkalite.console.messages.filters import CONTAINS, JSON_PATH
from kafkalite.console.messages.filters import test_of as filter_of
from kafkalite.console.messages.payload import Format, format_of, shown
from tests.support.manual_clock import ManualClock
from tests.support.schema_registry import Registry, schema_registry

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "n", "type": "int"}, {"name": "w", "type": "string"}],
}


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    made = DecoderPool()
    yield made
    made.close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with schema_registry() as made:
        yield made


def auto(registry: Registry, pool: DecoderPool) -> Format:
    return format_of("auto", None, None, "value", pool, SchemaRegistry(registry.url, {}))


def seen(data: bytes, wanted: Format) -> Any:
    return shown(data, wanted)


def framed(schema_id: int, data: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + data


def avro(schema: Any, value: Any, *named: Any) -> bytes:
    known: dict[str, Any] = {}
    for one in named:
        fastavro.parse_schema(one, known)
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema, known), value)
    return stream.getvalue()


def test_each_record_is_decoded_by_the_schema_of_its_id(registry: Registry, pool: DecoderPool) -> None:
    first = registry.register("orders-value", json.dumps(ORDER))
    second = registry.register("words-value", '"string"')
    wanted = auto(registry, pool)
    assert wanted.decode is not None
    records = [framed(first, avro(ORDER, {"n": 7, "w": "x"})), framed(second, avro("string", "plain")), b"no schema"]
    wanted.decode.expect(records)
    found = [seen(one, wanted) for one in records]
    assert [one["format"] for one in found] == ["avro", "avro", "text"]
    assert [one["note"] for one in found] == ["schema id 1", "schema id 2", None]
    assert json.loads(found[0]["text"]) == {"n": 7, "w": "x"} and found[1]["text"] == '"plain"'
    assert filter_of(CONTAINS, "plain", wanted, "value")(records[1])
    assert filter_of(CONTAINS, "no sch", wanted, "value")(records[2])
    assert filter_of(JSON_PATH, "$.n>=7", wanted, "value")(records[0])
    assert filter_of(JSON_PATH, "$.a=1", wanted, "value")(b'{"a": 1}')
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]  # each once


def test_schemas_that_refer_to_others_are_whole(registry: Registry, pool: DecoderPool) -> None:
    size = {"type": "enum", "name": "shop.Size", "symbols": ["S", "L"]}
    item = {"type": "record", "name": "shop.Item", "fields": [{"name": "size", "type": "shop.Size"}]}
    items = {"type": "array", "items": "shop.Item"}
    cart = {"type": "record", "name": "shop.Cart", "fields": [{"name": "items", "type": items}]}
    registry.register("size", json.dumps(size))
    registry.register("item", json.dumps(item), references=[{"name": "shop.Size", "subject": "size", "version": 1}])
    of_item = {"name": "shop.Item", "subject": "item", "version": 1}
    last = registry.register("cart", json.dumps(cart), references=[of_item])
    found = seen(framed(last, avro(cart, {"items": [{"size": "L"}]}, size, item)), auto(registry, pool))
    assert json.loads(found["text"]) == {"items": [{"size": "L"}]}, found


def test_protobuf_is_decoded_by_its_place_in_the_file(registry: Registry, pool: DecoderPool) -> None:
    common = descriptor_pb2.FileDescriptorProto(name="common.proto", package="shop", syntax="proto3")
    common.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    main = descriptor_pb2.FileDescriptorProto(name="x", package="shop", syntax="proto3", dependency=["common.proto"])
    main.message_type.add(name="First").field.add(name="a", number=1, type=9, label=1)
    inner = main.message_type.add(name="Outer").nested_type.add(name="Inner")
    inner.field.add(name="price", number=1, type=11, type_name=".shop.Money", label=1)
    texts = [base64.b64encode(one.SerializeToString()).decode() for one in (common, main)]
    registry.register("common", "message Money {}", "PROTOBUF", serialized=texts[0])
    of_common = {"name": "common.proto", "subject": "common", "version": 1}
    schema_id = registry.register("x", "message First {}", "PROTOBUF", [of_common], serialized=texts[1])
    known = descriptor_pool.DescriptorPool()
    for one in (common, main):
        known.Add(one)
    message = message_factory.GetMessageClass(known.FindMessageTypeByName("shop.Outer.Inner"))()
    message.price.cents = 250
    wanted = auto(registry, pool)
    found = seen(framed(schema_id, b"\4\2\0" + message.SerializeToString()), wanted)
    assert (found["format"], json.loads(found["text"])) == ("protobuf", {"price": {"cents": "250"}}), found
    first = message_factory.GetMessageClass(known.FindMessageTypeByName("shop.First"))(a="yes")
    found = seen(framed(schema_id, b"\0" + first.SerializeToString()), wanted)
    assert json.loads(found["text"]) == {"a": "yes"}
    assert "no message at [9]" in seen(framed(schema_id, b"\2\x12"), wanted)["note"]


def test_json_by_a_schema_is_json(registry: Registry, pool: DecoderPool) -> None:
    schema_id = registry.register("j", '{"type": "object"}', "JSON")
    found = seen(framed(schema_id, b'{"a": 1}'), auto(registry, pool))
    assert (found["format"], found["text"], found["note"]) == ("json", '{"a": 1}', "schema id 1")
    assert seen(framed(schema_id, b"{"), auto(registry, pool))["format"] == "hex"


def test_a_failure_that_is_kept_holds_no_record(registry: Registry, pool: DecoderPool) -> None:
    """Tracebacks of kept exceptions held every record of a search: 75 MiB for 20,000 records with unknown ids."""
    schemas = SchemaRegistry(registry.url, {})
    record = framed(99, b"x" * 1000)
    held = sys.getrefcount(record)
    for _ in range(3):
        wanted = format_of("auto", None, None, "value", pool, schemas)
        assert wanted.decode is not None
        wanted.decode.expect([record])
        assert seen(record, wanted)["format"] == "hex"
        del wanted
    gc.collect()
    assert sys.getrefcount(record) == held


def test_a_schema_that_is_not_there_costs_its_records_only(registry: Registry, pool: DecoderPool) -> None:
    registry.register("w", '"string"')
    wanted = auto(registry, pool)
    found = seen(framed(99, b"abc"), wanted)
    assert (
        found["format"] == "hex" and found["note"] == "schema id 99: the schema registry answers: Schema 99 not found"
    )
    assert seen(framed(1, b"\2x"), wanted)["text"] == '"x"'
    registry.register("bad", '{"type": "recrd"}')
    assert "its schema cannot be used" in seen(framed(2, b"x"), auto(registry, pool))["note"]


def test_a_registry_that_is_away_is_asked_again_after_a_while(registry: Registry) -> None:
    clock = ManualClock()
    registry.register("w", '"string"')
    asked = SchemaRegistry(registry.url, {}, monotonic_s=lambda: clock.monotonic_ms() / 1000)
    registry.is_away = True
    for _ in range(3):
        with pytest.raises(RegistryFault, match="away"):
            asked.schema(1)
    assert len(registry.asked) == 1
    registry.is_away = False
    clock.advance(11_000)
    assert asked.schema(1).kind == "avro"


def test_its_login_is_sent_and_a_dead_address_is_skipped(registry: Registry) -> None:
    registry.register("w", '"string"')
    urls = f"http://127.0.0.1:1,{registry.url}"
    SchemaRegistry(urls, {"basic.auth.user.info": "alice:secret"}).schema(1)
    assert registry.logins == ["Basic " + base64.b64encode(b"alice:secret").decode()]
    for url in ("localhost:8081", "file:///etc/passwd"):
        with pytest.raises(ConfigError):
            SchemaRegistry(url, {})


def test_bytes_of_a_registry_are_recognised_without_one(pool: DecoderPool) -> None:
    found = seen(framed(17, b"\xff\x00\x80abcdef"), format_of("auto", None, None, "value", pool))
    assert "schema id 17" in found["note"]
    assert seen((5).to_bytes(8, "big"), Format())["note"] is None


def test_records_that_end_decoders_are_few_whatever_their_schemas(registry: Registry, pool: DecoderPool) -> None:
    itself = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}
    ids = [registry.register(f"s{number}", json.dumps(itself)) for number in range(8)]
    wanted = auto(registry, pool)
    deep = [framed(schema_id, b"\2" * 400_000) for schema_id in ids]
    assert wanted.decode is not None
    wanted.decode.expect(deep)
    notes = [seen(one, wanted)["note"] for one in deep]
    assert [("nested too deeply" in note, "have ended the decoder" in note) for note in notes] == [
        *[(True, False)] * ENDS_MAX,
        *[(False, True)] * (len(ids) - ENDS_MAX),
    ]


def test_protobuf_as_text_is_compiled_where_a_compiler_is_installed(registry: Registry, pool: DecoderPool) -> None:
    has_compiler = importlib.util.find_spec("grpc_tools") is not None
    registry.register("common", 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }', "PROTOBUF")
    main = 'syntax = "proto3"; package shop; import "shop/common.proto"; message Price { Money money = 1; }'
    of_common = {"name": "shop/common.proto", "subject": "common", "version": 1}
    schema_id = registry.register("price", main, "PROTOBUF", [of_common])
    found = seen(framed(schema_id, b"\0" + b"\x0a\x02\x08\x07"), auto(registry, pool))
    if has_compiler:
        assert json.loads(found["text"]) == {"money": {"cents": "7"}}, found
    else:
        assert "grpcio-tools" in found["note"]
    evil = registry.register("evil", main, "PROTOBUF", [{**of_common, "name": "../../evil.proto"}])
    assert seen(framed(evil, b"\0x"), auto(registry, pool))["format"] == "hex"
