"""Records as lines of JSON, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common import text as text_module
from kafkalite.record import json_lines
from kafkalite.record.batch import NewRecord
from kafkalite.record.json_lines import Line, Shown, json_of, json_pieces, parse_json

ONE = Shown("orders", 3, 17, 1_700_000_000_123, b"k\xff", "gr\u00fc\u00dfe".encode(), (("a", b"1"), ("b", None)))


def test_json_holds_any_bytes() -> None:
    told = json.loads(json_of(ONE))
    assert (
        told["value"] == "gr\u00fc\u00dfe" and told["key"] == {"base64": "a/8="} and told["timestamp"] == ONE.timestamp
    )
    assert told["headers"] == [{"name": "a", "value": "1"}, {"name": "b", "value": None}]


@given(
    st.one_of(st.none(), st.binary(), st.text(st.characters(codec="utf-8")).map(str.encode)),
    st.one_of(st.none(), st.binary()),
    st.lists(st.tuples(st.text(st.characters(codec="utf-8")), st.one_of(st.none(), st.binary()))),
    st.integers(0, 1 << 50),
)
def test_json_that_was_written_is_read(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    line = json_of(Shown("t", 2, 5, timestamp, key, value, headers))
    assert parse_json(line) == Line(NewRecord(key, value, tuple(headers), timestamp), 2)


@given(
    st.one_of(st.none(), st.binary(), st.text(st.characters(codec="utf-8")).map(str.encode)),
    st.one_of(st.none(), st.binary(), st.text('"\\\x1b\u202e\u00e9\U0001f52c').map(str.encode)),
    st.lists(st.tuples(st.text(max_size=2, alphabet='a"\u2028'), st.one_of(st.none(), st.binary())), max_size=3),
)
def test_a_line_in_pieces_is_the_same(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    one = Shown("t", 2, 5, 7, key, value, headers)
    with pytest.MonkeyPatch.context() as patch:
        for module in (json_lines, text_module):
            patch.setattr(module, "PIECE_BYTES", 3)
        assert b"".join(json_pieces(one)) == json_of(one)


def test_a_line_for_a_terminal_is_json_all_the_same() -> None:
    line = json_of(ONE._replace(value="\x9b2J\x7f\u202e\x1b".encode(), key=None))
    assert json.loads(line)["value"] == "\x9b2J\x7f\u202e\x1b" and line.decode().rstrip().isprintable()


def test_a_line_may_say_less() -> None:
    assert parse_json(b'{"value": "a"}') == Line(NewRecord(None, b"a"), None)
    least = b'{"value": null, "headers": null, "partition": null, "timestamp": null, "key": null}'
    assert parse_json(least) == Line(NewRecord(None, None), None)
    assert parse_json(b'\xef\xbb\xbf {"headers":{"h":"","i":null},"value":""} \r').record.headers == (
        ("h", b""),
        ("i", None),
    )


def test_doubled_names_and_headers_stay() -> None:
    twice = b'{"base64": "", "base64": ""}'
    assert parse_json(b'{"value":%s,"headers":{"h":[1] ,"h":[ 2]}}' % twice).record[1:3] == (
        twice,
        (("h", b"[1]"), ("h", b"[ 2]")),
    )


spaces = st.text(" \t\r", max_size=2)
numbers = st.sampled_from(
    ["1.10", "1e400", "-0", "-0.0", "9" * 5_000, "1E+2", "0.1000000000000000055511151231257827"]
) | st.integers().map(str)
scalars = numbers | st.sampled_from(["true", "false"]) | st.text().map(json.dumps)


def listed(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    members = st.lists(st.tuples(st.sampled_from(['"a"', '"b"', '"\\u0061"']), spaces, values))
    arrays = st.tuples(st.lists(values), spaces).map(lambda one: f"[{(one[1] + ',').join(one[0])}{one[1]}]")
    return arrays | members.map(lambda each: f"{{{','.join(f'{name}{space}:{one}' for name, space, one in each)}}}")


@given(listed(scalars) | listed(listed(scalars)) | numbers, spaces)
def test_what_is_no_string_is_kept_as_it_is_written(text: str, space: str) -> None:
    line = (
        f'{{"headers":[{{"value":{space}{text}{space},"name":"h"}}],"key":{space}{text},{space}"value":{text}{space}}}'
    )
    record = parse_json(line.encode()).record
    assert (record.key, record.value, tuple(record.headers)) == (text.encode(), text.encode(), (("h", text.encode()),))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"[]", "is no JSON object"),
        (b"", "is no JSON: Expecting value, at character 1"),
        (b'"x"', "is no JSON object"),
        (b"nothing", "is no JSON: "),
        (b'{"value": "a"', "is no JSON: .*, at character 14"),
        (b'{"value": "a"}{', "is no JSON: Extra data, at character 15"),
        (b"{value: 1}", "is no JSON: "),
        (b'{"value" 1}', "is no JSON: "),
        (b'{"value": }', "is no JSON: "),
        (b'{"value": NaN}', "has NaN, which is no JSON"),
        (b'{"value": [-Infinity]}', "has -Infinity, which is no JSON"),
        (b'{"value": "\xff"}', "is not UTF-8 from byte 12 on"),
        (b'{"value": "a", "value": "b"}', 'has "value" twice'),
        (b'{"val": "a"}', 'has "val", and there are headers, key'),
        (b'{"va\\u001bl": "a"}', r'has "va\\x1bl"'),
        (b'{"value": "a", "header": {}}', 'has "header"'),
        (b'{"key": "a"}', 'has no "value"'),
        (b'{"value": "", "partition": "1"}', "has a partition that is no number from 0 to 2147483647"),
        (b'{"value": "", "partition": 1.0}', "has a partition"),
        (b'{"value": "", "partition": -1}', "has a partition"),
        (b'{"value": "", "partition": 4294967296}', "has a partition"),
        (b'{"value": "", "partition": ' + b"9" * 5_000 + b"}", "has a partition"),
        (b'{"value": "", "timestamp": 9223372036854775808}', "has a timestamp that is no number from -1 to 922337"),
        (b'{"value": "", "timestamp": -2}', "has a timestamp"),
        (b'{"value": {"base64": "?"}}', "has a value that is no base64"),
        (b'{"value": {"base64": "\xc3\xa9"}}', "has a value that is no base64"),
        (b'{"value": {"base64": 1234}}', "has a value that is no base64"),
        (b'{"value": "", "headers": 5}', "has headers that are neither"),
        (b'{"value": "", "headers": "ab"}', "has headers that are neither"),
        (b'{"value": "", "headers": [1]}', "has a header that is not"),
        (b'{"value": "", "headers": [{"name": 5}]}', "has a header that is not"),
        (b'{"value": "", "headers": [{"value": "x"}]}', "has a header that is not"),
        (b'{"value": "", "headers": [{"name": "a", "val": "b"}]}', 'has "val", and there are name, value'),
        (b'{"value": "", "headers": [{"name": "\\ud800"}]}', "half a character .* in its header"),
        (b'{"value": "", "headers": {"\\ud800": ""}}', "half a character .* in its header"),
        (b'{"value": "\\udfff"}', "half a character .* in its value"),
        (b'{"value": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "is nested too deeply"),
        (b'{"headers": ' + b'{"a":' * 200_000 + b"1" + b"}" * 200_000 + b"}", "is nested too deeply"),
    ],
)
def test_a_line_that_is_no_record_is_refused_in_words(line: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refusal:
        parse_json(line)
    assert not isinstance(refusal.value, UnicodeError)


@given(st.binary() | st.text().map(lambda text: text.encode(errors="surrogatepass")))
def test_any_line_is_a_record_or_refused_in_words(line: bytes) -> None:
    try:
        parse_json(b'{"value":' + line)
    except ValueError as refusal:
        assert str(refusal).startswith(("is ", "has "))
