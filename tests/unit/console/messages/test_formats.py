"""Numbers, UUIDs, MessagePack, CBOR and the records of internal topics, as people see them."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import cbor2
import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.console.decoders.schema_decoder import DecoderPool
from kafkalite.console.messages.filters import REGEX
from kafkalite.console.messages.filters import test_of as filter_of
from kafkalite.console.messages.payload import FORMATS, format_of, shown
from kafkalite.protocol.codec.codec import encoder
from kafkalite.protocol.internal_records import decode_transaction_json
from kafkalite.protocol.records import TransactionLogKey, TransactionLogValue


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    made = DecoderPool()
    yield made
    made.close()


def read(name: str, data: bytes, pool: DecoderPool) -> tuple[str, str, str | None]:
    found: Any = shown(data, format_of(name, None, None, "value", pool))
    return found["format"], found["text"], found["note"]


ONE = UUID("0b1f6c2e-7f1d-4b5e-9a60-2f4f3a2b1c0d")
TAGGED = {"a": 1, (1, 2): cbor2.CBORTag(4711, "v")}


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("integer", b"\xff", "-1"),
        ("integer", struct.pack(">i", -70_000), "-70000"),
        ("integer", struct.pack(">q", 1 << 40), str(1 << 40)),
        ("float", struct.pack(">d", 0.1), "0.1"),
        ("float", struct.pack(">f", 0.5), "0.5"),
        ("uuid", ONE.bytes, str(ONE)),
        ("uuid", str(ONE).encode(), str(ONE)),
        ("msgpack", msgpack.packb({"a": [1, None, b"\xff"], 2: "x"}), '{"a": [1, null, {"hex": "ff"}], "2": "x"}'),
        ("cbor", cbor2.dumps(TAGGED), '{"a": 1, "[1, 2]": {"tag": 4711, "value": "v"}}'),
        ("msgpack", b"\0\0\0\0\7" + msgpack.packb({"a": 1}), '{"a": 1}'),
    ],
)
def test_a_value_is_read(name: str, data: bytes, text: str, pool: DecoderPool) -> None:
    assert read(name, data, pool) == (name, text, None)


@pytest.mark.parametrize("name", ["integer", "float", "uuid", "msgpack", "cbor"])
def test_other_bytes_are_hexadecimal_with_the_reason(name: str, pool: DecoderPool) -> None:
    form, text, note = read(name, b"\xc1\x00\xff", pool)
    assert (form, text) == ("hex", "c100ff") and note is not None and note.startswith(f"not valid {name}: ")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("msgpack", b"\x91" * 200_000 + b"\0"),
        ("msgpack", b"\xdd\xff\xff\xff\xff"),  # four billion items
        ("cbor", b"\x81" * 200_000 + b"\0"),
        ("cbor", b"\x9b\x00\x00\x01" + b"\0" * 5),  # 2^40 items
        ("cbor", b"\xd8\x1c\x81\xd8\x1d\0"),  # a list that holds itself
        ("msgpack", b"\xdd\x00\x98\x96\x80" + b"\xc0" * 10_000_000),  # ten million items that are there
        ("msgpack", b"\xdd\x00\x07\xa1\x20" + b"\x90" * 500_000),  # as many lists as items are allowed
        ("cbor", b"\x9a\x00\x0f\x42\x40" + b"\xf6" * 1_000_000),
    ],
)
def test_a_hostile_value_costs_itself(name: str, data: bytes, pool: DecoderPool) -> None:
    assert read(name, data, pool)[0] == "hex"
    assert read(name, b"\1", pool) == (name, "1", None)


@given(st.binary(max_size=60), st.sampled_from(FORMATS[:-2]))
def test_any_bytes_are_shown_in_any_format(pool: DecoderPool, data: bytes, name: str) -> None:
    read(name, data, pool)


def test_filters_are_of_the_decoded_text(pool: DecoderPool) -> None:
    number = format_of("integer", None, None, "key", pool)
    assert filter_of(REGEX, "^42$", number, "key")(struct.pack(">q", 42))


def test_a_transaction_is_json_with_the_words_of_its_schema() -> None:
    state = TransactionLogValue(producer_id=7, producer_epoch=1, transaction_timeout_ms=60_000, transaction_status=1)
    key: list[Any] = [b"\0\0"]
    value: list[Any] = [b"\0\0"]
    encoder(TransactionLogKey, 0)(TransactionLogKey(transactional_id="pay"), key)
    encoder(TransactionLogValue, 0)(state, value)
    about, text = decode_transaction_json(b"".join(key), b"".join(value), 5)
    assert json.loads(about or "") == {"transactionalId": "pay"}
    found = json.loads(text or "")["data"]
    assert (found["producerId"], found["transactionStatus"]) == (7, "Ongoing")
    assert decode_transaction_json(b"".join(key), None, 5)[1] == "<DELETE>"
