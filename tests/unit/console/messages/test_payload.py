"""Keys and values as people see them, and as filters see them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.console.decoders.schema_decoder import DecoderPool
from kafkalite.console.decoders.wire import to_text
from kafkalite.console.messages.filters import CONTAINS, JSON_PATH, REGEX
from kafkalite.console.messages.filters import test_of as filter_of
from kafkalite.console.messages.payload import Format, format_of, shown
from kafkalite.console.request.parameters import ApiError

_FIELDS = [{"name": "day", "type": {"type": "int", "logicalType": "date"}}, {"name": "word", "type": "string"}]
_SCHEMA = json.dumps({"type": "record", "name": "R", "fields": _FIELDS})
_FAR = b"\xfe\xff\xff\xff\x0f\x0aneedl"  # a day behind the year 9999


@pytest.fixture
def avro() -> Iterator[Format]:
    pool = DecoderPool()
    yield format_of("avro", _SCHEMA, None, "value", pool)
    pool.close()


def test_a_field_that_cannot_be_told_hides_no_other(avro: Format) -> None:
    found = shown(_FAR, avro)
    assert found is not None and found["format"] == "avro" and found["note"] is None
    assert json.loads(found["text"]) == {"day": {"fault": "no date", "raw": 2147483647}, "word": "needl"}
    assert filter_of(CONTAINS, "needl", avro, "value")(_FAR)
    assert filter_of(REGEX, "n.+l", avro, "value")(_FAR)
    assert filter_of(JSON_PATH, "$.word=needl", avro, "value")(_FAR)


def test_what_is_none_is_hex_with_the_reason_and_found_by_no_filter(avro: Format) -> None:
    found = shown(b"\1", avro)
    assert found is not None and found["format"] == "hex" and found["note"].startswith("not valid avro: ")
    assert not filter_of(JSON_PATH, "$.word=needl", avro, "value")(b"\1")


class Told:
    """A decoder of what it is given to tell."""

    def __init__(self, value: Any) -> None:
        self.text = to_text(value)

    def __call__(self, data: bytes) -> str:
        return self.text

    def expect(self, records: Iterable[bytes | None], /) -> None:
        """They are all the same."""


_SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-20, 20), st.integers(), st.floats(), st.text(max_size=3),
    st.sampled_from([1e16, 10**16, 10**15, -0.0, "true", "null", "7", '"', "\\", "\n", '"7"']),
)  # fmt: skip


@given(value=_SCALARS, text=st.one_of(_SCALARS.map(to_text), st.text(max_size=3), st.sampled_from(["7.0", "1e16"])))
def test_a_path_finds_in_a_decoded_record_what_it_finds_in_json(value: Any, text: str) -> None:
    decoded = filter_of(JSON_PATH, f"$.a={text}", Format("avro", Told({"a": value})), "value")
    plain = filter_of(JSON_PATH, f"$.a={text}", Format(), "value")
    assert decoded(b"") == plain(to_text({"a": value}).encode())


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("$.total>=100", True), ("$.total>100", False), ("$.total<=100", True), ("$.total<100", False),
        ("$.total!=7", True), ("$.total!=100", False), ("$.missing!=7", False), ("$.name~nn", True),
        ("$.name~x", False),
        ("$.items[1].id=8", True), ('$["a=b"]=1', True), ("$.name>1", False), ("$.total >= 99.5", True),
    ],
)  # fmt: skip
def test_a_path_is_compared(text: str, holds: bool) -> None:
    data = b'{"total": 100, "name": "Anna", "items": [{"id": 7}, {"id": 8}], "a=b": 1}'
    assert filter_of(JSON_PATH, text, Format(), "value")(data) == holds


@pytest.mark.parametrize("text", ["$.a", "$.a>text", "$.a[x]=1", "a=1", "$..=1"])
def test_a_path_that_compares_nothing_is_refused(text: str) -> None:
    with pytest.raises(ApiError):
        filter_of(JSON_PATH, text, Format(), "value")


@pytest.mark.parametrize(
    ("name", "schema", "message", "why"),
    [
        ("avro", "{", None, "key_schema is no Avro schema"),
        ("avro", None, None, "needs key_schema"),
        ("protobuf", "AA==", None, "needs key_message"),
        ("protobuf", "AA==", "a.B", "key_schema is no base64 of a FileDescriptorSet with a.B"),
    ],
)
def test_a_schema_that_is_none_is_refused(name: str, schema: str | None, message: str | None, why: str) -> None:
    pool = DecoderPool()
    try:
        with pytest.raises(ApiError, match=why):
            format_of(name, schema, message, "key", pool)
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("data", "wanted", "expected"),
    [
        (b'{"a": 1}', "auto", ("json", '{"a": 1}', None)),
        (b'{"a": 1', "auto", ("text", '{"a": 1', None)),
        (b"hello\n", "auto", ("text", "hello\n", None)),
        (b"\x00\x01", "auto", ("hex", "0001", None)),
        (b"\xff", "auto", ("hex", "ff", None)),
        (b"\xffa", "text", ("text", "\ufffda", "not valid UTF-8: wrong bytes are shown as \ufffd")),
        (b"hello", "hex", ("hex", "68656c6c6f", None)),
        (b"hello", "json", ("text", "hello", "not valid json")),
        (b"", "auto", ("text", "", None)),
    ],
)
def test_bytes_are_json_text_or_hexadecimal_by_their_content(
    data: bytes, wanted: str, expected: tuple[str, str, str | None]
) -> None:
    found = shown(data, Format(wanted))
    assert found is not None and (found["format"], found["text"], found["note"]) == expected
    assert (found["size_bytes"], found["is_cut"]) == (len(data), False)


_INTERNATIONAL = {
    "persian": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # with a zero width non-joiner
    "family": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "flag": "\U0001f3f3\ufe0f\u200d\U0001f308",
    "price": "10\u00a0000\u00a0EUR",
    "mark": "\ufeffid;name",
    "arabic": "\u0627\u0644\u0633\u0639\u0631 5\u200f",
    "log": "\x1b[31mE\x1b[0m \x1b[1mx\x1b[0m",
}


@pytest.mark.parametrize("text", _INTERNATIONAL.values(), ids=_INTERNATIONAL)
@pytest.mark.parametrize("wanted", ["auto", "text"])
def test_text_of_every_script_is_text_as_it_is(text: str, wanted: str) -> None:
    found = shown(text.encode(), Format(wanted))
    assert found is not None and (found["format"], found["text"], found["note"]) == ("text", text, None)


@pytest.mark.parametrize("text", _INTERNATIONAL.values(), ids=_INTERNATIONAL)
def test_json_with_it_is_json(text: str) -> None:
    data = json.dumps({"a": text}, ensure_ascii=False).encode()
    found = shown(data, Format())
    assert found is not None and (found["format"], found["text"]) == ("json", data.decode())
    assert (found := shown(b"\xef\xbb\xbf" + data, Format())) is not None and found["format"] == "json"


@pytest.mark.parametrize(
    "data", [(7).to_bytes(8, "big"), b"\0\0\0\0\1" + b"a long text of an Avro record, " * 9, b"ab\x01", b"\x07\x1a"]
)
def test_numbers_and_records_with_a_schema_id_are_no_text(data: bytes) -> None:
    found = shown(data, Format())
    assert found is not None and found["format"] == "hex"


def test_a_value_is_cut_at_a_limit_and_in_no_character() -> None:
    found = shown("\u00e9".encode() * 20, Format(), 9)
    assert found is not None and (found["format"], found["is_cut"], found["size_bytes"]) == ("text", True, 40)
    assert set(found["text"]) == {"\u00e9"}
    found = shown(bytes(20), Format(), 9)
    assert found is not None and (found["text"], found["is_cut"]) == ("00" * 9, True)
    assert shown(None, Format()) is None
