"""Record batches written as files: each format read back, bytes as text and back."""

from __future__ import annotations

import base64
import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.common import text as text_module
from kafkalite.common.errors import ConfigError
from kafkalite.common.timestamps import DATE_MS_MAX, DATE_MS_MIN, parse_timestamp

pa = pytest.importorskip("pyarrow", reason="needs the extra 'arrow'")

from kafkalite.reader import record_writer  # noqa: E402
from kafkalite.reader.chunk_reader import COLUMNS  # noqa: E402
from kafkalite.reader.record_writer import open_writer  # noqa: E402

SCHEMA = pa.schema([pa.field(name, column.arrow) for name, column in COLUMNS.items()])
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
KEYS = [None, b"", b"text", b"base64:", b"\xff", 'é\n,"'.encode()]


class Pipe(io.BytesIO):
    """A stream that, like a pipe, does not know its position."""

    def seekable(self) -> bool:
        return False

    def tell(self) -> int:
        raise OSError("not seekable")


def batch(keys: list[bytes | None], headers: list[Any] | None = None, timestamps: list[Any] | None = None) -> Any:
    count = len(keys)
    columns = {
        "key": keys, "value": keys, "topic": ["orders"] * count, "partition": [0] * count, "offset": [*range(count)],
        "timestamp": timestamps or [MOMENT] * count, "timestampType": [0] * count, "headers": headers or [None] * count,
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(columns, schema=SCHEMA)


def written(format_name: str, *batches: Any, encoding: str = "auto") -> bytes:
    stream = Pipe()
    writer = open_writer(stream, format_name, SCHEMA, encoding)
    for each in batches:
        writer.write_batch(each)
    writer.close()
    return stream.getvalue()


@pytest.mark.parametrize("format_name", ["parquet", "arrow", "arrow-stream"])
def test_binary_formats_keep_every_column_and_type(format_name: str) -> None:
    import pyarrow.parquet

    rows = batch(KEYS, [[{"key": "h", "value": b"\xff"}], [], None, None, None, None])
    data = written(format_name, rows, rows)
    readers: dict[str, Any] = {
        "parquet": pyarrow.parquet.read_table,
        "arrow": lambda source: pa.ipc.open_file(source).read_all(),
        "arrow-stream": lambda source: pa.ipc.open_stream(source).read_all(),
    }
    found = readers[format_name](pa.BufferReader(data))
    assert found.schema.equals(SCHEMA)
    assert found.to_pylist() == [*rows.to_pylist(), *rows.to_pylist()]


def test_small_batches_share_a_row_group() -> None:
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(pa.BufferReader(written("parquet", *[batch(KEYS)] * 20)))
    assert (file.metadata.num_rows, file.metadata.num_row_groups) == (120, 1)


def test_no_batches_are_a_whole_file() -> None:
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(pa.BufferReader(written("parquet"))).num_rows == 0
    assert written("jsonl") == b""
    assert written("csv").decode().count("\n") == 1


def unwritten(text: str | None) -> bytes | None:
    """A key or value as a reader of the encoding auto takes it back."""
    if text is None:
        return None
    return base64.b64decode(text[7:]) if text.startswith("base64:") else text.encode()


def test_json_lines_give_every_value_back() -> None:
    headers = [[{"key": "h", "value": b"\xff"}, {"key": "h", "value": None}], [], None, None, None, None]
    lines = [json.loads(line) for line in written("jsonl", batch(KEYS, headers)).decode().splitlines()]
    assert [unwritten(line["key"]) for line in lines] == KEYS
    assert [line["key"] for line in lines][2:5] == ["text", "base64:YmFzZTY0Og==", "base64:/w=="]
    assert lines[0]["headers"] == [{"key": "h", "value": "base64:/w=="}, {"key": "h", "value": None}]
    assert lines[0]["timestamp"] == "2023-11-14T22:13:20.123Z"
    assert (lines[1]["headers"], lines[2]["headers"], lines[5]["offset"]) == ([], None, 5)


def test_csv_gives_every_value_back_but_null_is_an_empty_field() -> None:
    text = written("csv", batch(KEYS, [[{"key": "h", "value": b"1"}], None, None, None, None, None])).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [unwritten(row["key"]) for row in rows] == [b"", *KEYS[1:]]
    assert json.loads(rows[0]["headers"]) == [{"key": "h", "value": "1"}]
    first, second = text.splitlines()[1:3]
    assert first.startswith(",,") and second.startswith('"","",'), "null and an empty value differ in their quotes"
    assert rows[3]["timestamp"] == "2023-11-14T22:13:20.123Z"


@given(st.lists(st.one_of(st.none(), st.integers(-(10**15), 10**15), st.just(-1)), min_size=1, max_size=20))
def test_timestamps_are_dates_in_utc_or_numbers_with_their_unit(millis: list[int | None]) -> None:
    column = pa.array([None if one is None else one * 1000 for one in millis], SCHEMA.field("timestamp").type)
    rows = batch([b"k"] * len(millis), timestamps=column)
    texts = [json.loads(line)["timestamp"] for line in written("jsonl", rows).splitlines()]
    assert texts == [row["timestamp"] or None for row in csv.DictReader(io.StringIO(written("csv", rows).decode()))]
    for one, text in zip(millis, texts, strict=True):
        if one is None or one == -1:
            assert text is None
        elif text.endswith(" ms"):
            assert int(text[:-3]) == one and not DATE_MS_MIN <= one <= DATE_MS_MAX
        else:
            assert text.endswith("Z") and parse_timestamp("t", text) == one


@pytest.mark.parametrize("format_name", ["csv", "jsonl"])
def test_other_encodings_are_plain(format_name: str) -> None:
    assert base64.b64encode(b"base64:") in written(format_name, batch([b"base64:"]), encoding="base64")
    assert b"base64:" in written(format_name, batch([b"base64:"]), encoding="utf-8")
    with pytest.raises(ConfigError, match="the key at topic orders, partition 0, offset 1 is not UTF-8"):
        written(format_name, batch([b"a", b"\xff"]), encoding="utf-8")


@pytest.mark.parametrize("encoding", ["auto", "base64"])
@pytest.mark.parametrize("format_name", ["csv", "jsonl"])
def test_a_large_record_is_written_as_a_small_one(
    format_name: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [*KEYS, '\U0001f469\u200d\U0001f52c \x00 \u2028 "\\'.encode() * 3, b"base64:\xff" * 4]
    headers = [None, [{"key": 'a"', "value": b"\xff"}], None, *[[{"key": "a", "value": b"b" * 9}]] * 5]
    rows = batch(keys, headers)
    expected = written(format_name, rows, rows.slice(2), encoding=encoding)
    monkeypatch.setattr(record_writer, "_TO_TEXT_BYTES", 5)
    monkeypatch.setattr(text_module, "PIECE_BYTES", 3)
    assert written(format_name, rows, rows.slice(2), encoding=encoding) == expected


def test_a_large_value_that_is_no_text_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "_TO_TEXT_BYTES", 5)
    with pytest.raises(ConfigError, match="the value at topic orders, partition 0, offset 0 is not UTF-8"):
        written("jsonl", batch([b"text \xff"]).drop_columns(["key"]), encoding="utf-8")
