"""Protobuf as valid JSON, in which one field's fault costs one field, by sets of descriptors as they come."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, json_format, message_factory, timestamp_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalite.common.text import read_json
from kafkalite.console.decoders import protobuf
from kafkalite.console.decoders.schema_decoder import DecoderPool, SchemaDecoder
from kafkalite.console.decoders.wire import PROTOBUF, Schema

_KINDS = descriptor_pb2.FieldDescriptorProto


def shop_files() -> list[descriptor_pb2.FileDescriptorProto]:
    """base < middle < shop, which imports Google's files, too; in that order, and without Google's."""
    base = descriptor_pb2.FileDescriptorProto(name="base.proto", package="shop", syntax="proto3")
    base.message_type.add(name="Id").field.add(name="id", number=1, type=_KINDS.TYPE_INT64)
    middle = descriptor_pb2.FileDescriptorProto(
        name="middle.proto", package="shop", syntax="proto3", dependency=["base.proto"]
    )
    customer = middle.message_type.add(name="Customer")
    customer.field.add(name="id", number=1, type=_KINDS.TYPE_MESSAGE, type_name=".shop.Id")
    customer.field.add(name="name", number=2, type=_KINDS.TYPE_STRING)
    shop = descriptor_pb2.FileDescriptorProto(
        name="shop.proto",
        package="shop",
        syntax="proto3",
        dependency=["middle.proto", "google/protobuf/timestamp.proto", "google/protobuf/any.proto"],
    )
    order = shop.message_type.add(name="Order")
    order.field.add(name="customer", number=1, type=_KINDS.TYPE_MESSAGE, type_name=".shop.Customer")
    order.field.add(name="at", number=2, type=_KINDS.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp")
    order.field.add(name="more", number=3, type=_KINDS.TYPE_MESSAGE, type_name=".google.protobuf.Any")
    repeated = _KINDS.LABEL_REPEATED
    order.field.add(name="sums", number=4, type=_KINDS.TYPE_DOUBLE, label=repeated)
    order.field.add(name="data", number=5, type=_KINDS.TYPE_BYTES)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_KINDS.TYPE_STRING)
    entry.field.add(name="value", number=2, type=_KINDS.TYPE_UINT64)
    order.field.add(name="tags", number=6, type=_KINDS.TYPE_MESSAGE, label=repeated, type_name=".shop.Order.TagsEntry")
    color = order.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=1)
    order.field.add(name="colors", number=7, type=_KINDS.TYPE_ENUM, label=repeated, type_name=".shop.Order.Color")
    order.field.add(name="lines", number=8, type=_KINDS.TYPE_MESSAGE, label=repeated, type_name=".shop.Order")
    return [base, middle, shop]


def encoded(files: list[descriptor_pb2.FileDescriptorProto]) -> str:
    return base64.b64encode(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()).decode()


SET = encoded(shop_files())
_POOL = descriptor_pool.DescriptorPool()
for _module in (timestamp_pb2, any_pb2):
    _POOL.AddSerializedFile(_module.DESCRIPTOR.serialized_pb)  # type: ignore[attr-defined]
for _file in shop_files():
    _POOL.Add(_file)  # type: ignore[no-untyped-call]
Order: Any = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("shop.Order"))


def told(data: bytes, text: str = SET) -> Any:
    return read_json(protobuf.compile_schema(text, "shop.Order")(data), strict=True)


@pytest.mark.parametrize("seed", range(6))
def test_the_files_of_a_set_may_come_in_any_order_and_without_googles(seed: int) -> None:
    files = shop_files()
    random.Random(seed).shuffle(files)
    assert told(Order(customer={"name": "x"}).SerializeToString(), encoded(files)) == {"customer": {"name": "x"}}


def test_a_set_that_lacks_a_file_or_imports_itself_is_refused_by_name() -> None:
    base, middle, shop = shop_files()
    with pytest.raises(ValueError, match=r"lacks 'middle.proto'"):
        protobuf.compile_schema(encoded([base, shop]), "shop.Order")
    base.dependency.append("shop.proto")
    with pytest.raises(ValueError, match="imports itself"):
        protobuf.compile_schema(encoded([base, middle, shop]), "shop.Order")


def test_a_long_chain_of_imports_needs_no_stack() -> None:
    files = [
        descriptor_pb2.FileDescriptorProto(name=f"f{number}", dependency=[f"f{number + 1}"] if number < 2_000 else [])
        for number in range(2_001)
    ]
    assert next(protobuf._in_order({file.name: file for file in files})) == "f2000"


def test_a_time_out_of_range_costs_one_field() -> None:
    order = Order(customer={"name": "x", "id": {"id": 1 << 40}}, tags={"a": 1 << 63}, colors=[1, 9], sums=[1, 2.5])
    order.at.seconds = 1 << 60
    order.data = b"\xff"
    order.lines.add(data=b"a")
    found = told(order.SerializeToString())
    at = found.pop("at")
    assert at["raw"] == {"seconds": str(1 << 60)} and at["fault"]
    order.ClearField("at")
    expected = json_format.MessageToDict(order, preserving_proto_field_name=True)
    assert found == expected and found["customer"] == {"name": "x", "id": {"id": str(1 << 40)}}


def test_an_any_is_told_by_its_type_if_the_set_has_it() -> None:
    order = Order(data=b"x")
    order.more.type_url = "type.googleapis.com/shop.Id"
    order.more.value = b"\x08\x05"
    assert told(order.SerializeToString())["more"] == {"@type": "type.googleapis.com/shop.Id", "id": "5"}
    order.more.type_url = "type.googleapis.com/else.Where"
    found = told(order.SerializeToString())
    assert found["data"] == "eA==" and "else.Where" in found["more"]["fault"]
    assert found["more"]["raw"] == {"type_url": "type.googleapis.com/else.Where", "value": "CAU="}


def test_a_text_that_is_no_utf_8_costs_one_field() -> None:
    good = Order(customer={"name": "x?", "id": {"id": 1}}, tags={"a": 1}, sums=[1.5], data=b"x")
    good.at.seconds = 1
    good.more.type_url = "type.googleapis.com/shop.Id"
    data = good.SerializeToString().replace(b"x?", b"x\xff")
    expected = told(good.SerializeToString())
    expected["customer"]["name"] = "x\\xff"
    assert told(data) == expected


def test_no_number_is_text() -> None:
    order = Order(sums=[float("nan"), float("inf"), 1.5])
    assert told(order.SerializeToString()) == {"sums": ["NaN", "Infinity", 1.5]}
    order.at.seconds = 1 << 60
    assert told(order.SerializeToString())["sums"] == ["NaN", "Infinity", 1.5]


def test_registry_bytes_and_indexes_are_skipped() -> None:
    data = Order(data=b"x").SerializeToString()
    assert told(b"\0\0\0\0\7\0" + data) == told(b"\0\0\0\0\7\2\0" + data) == told(data)


_PIECES = st.sampled_from([
    Order(data=b"x").SerializeToString(), Order(colors=[3]).SerializeToString(),
    b"\x12\x0b\x08" + b"\xff" * 9 + b"\x01",
    b"\x1a\x04\x0a\x02xx", b"\x42", b"\x42\x02\x42\x00", b"\x0a\x03\x12\x01\xff", b"\x21" + b"\xff" * 8, b"\xff\x00",
])  # fmt: skip


@given(records=st.lists(st.one_of(st.binary(max_size=40), st.lists(_PIECES).map(b"".join)), min_size=1, max_size=8))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_json_or_a_reason(shared_pool: DecoderPool, records: list[bytes]) -> None:
    decode = SchemaDecoder(shared_pool, Schema(PROTOBUF, SET, "shop.Order"))
    decode.expect(records)
    for data in records:
        try:
            read_json(decode(data), strict=True)
        except ValueError as fault:
            assert str(fault) and "JSON" not in str(fault)
