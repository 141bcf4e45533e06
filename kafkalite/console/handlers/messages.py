"""/api/topics/NAME/messages and /export: searches, whole records, files, and writing a record.

A file is JSON lines, streamed while they are read, or Parquet, which is built first.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import io
import json
import random
import time
from collections.abc import Iterable, Iterator
from typing import Any

from kafkalite.client.cluster_client import Retries
from kafkalite.client.partition_scan import PartitionScan, ScannedRecord
from kafkalite.client.producer.record_writer import RecordWriter
from kafkalite.client.scan import BEGINNING, END, PLACES, TAIL, Limits, Start
from kafkalite.common.checksum import partition_for_key
from kafkalite.common.names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kafkalite.console.brokers.topics import places_of, require_partition
from kafkalite.console.calls.route import Call, Download, Event
from kafkalite.console.messages.expressions import Expression
from kafkalite.console.messages.filters import MATCHES, filters_of
from kafkalite.console.messages.payload import AUTO, FORMATS, View, available, format_of
from kafkalite.console.messages.search import Search, Wanted
from kafkalite.console.request.parameters import OFFSET_MAX, ApiError, Parameter, Row, invalid, not_found
from kafkalite.protocol.internal_records import decode_group_record, decode_transaction_json
from kafkalite.record.batch import NewRecord
from kafkalite.record.compression import CODECS
from kafkalite.record.json_lines import json_pieces

LIMIT_MAX = 1000
EXPORTED_MAX = 1_000_000
NEWEST_MAX = 10_000  # the newest ones come first, so all of them are in memory before the first is written
PARQUET_BYTES_MAX = 512 << 20
_EXPORT_PIECE_BYTES = 64 << 10
_ROWS_PER_GROUP = 20_000
WHOLE_BYTES_MAX = 20 << 20
_UNCOMMITTED = "read_uncommitted"

FORMAT_PARAMETERS = (
    Parameter("key_format", default="auto", one_of=FORMATS),
    Parameter("value_format", default="auto", one_of=FORMATS),
    Parameter("key_schema", doc="Avro: a schema as JSON. Protobuf: base64 of a FileDescriptorSet"),
    Parameter("value_schema"),
    Parameter("key_message", text_max=500, doc="Protobuf: the full name of the message"),
    Parameter("value_message", text_max=500),
)
_FILTER_PARAMETERS = tuple(
    parameter
    for side in ("key", "value", "header")
    for parameter in (
        Parameter(side, text_max=4096, doc="only records that match"),
        Parameter(f"{side}_match", default="contains", one_of=MATCHES),
    )
)
LIMIT_PARAMETERS = (
    Parameter("max_records", "integer", 100_000, at_least=1, at_most=10_000_000, doc="how many may be read"),
    Parameter("max_bytes", "integer", 256 << 20, at_least=1, at_most=64 << 30),
    Parameter("max_ms", "integer", 60_000, at_least=1, at_most=600_000),
)
BOUND_PARAMETERS = (
    Parameter("offset", "integer", 0, at_least=0),
    Parameter("time_ms", "integer", 0),
    Parameter("until_ms", "integer", doc="only records before the first one that is as late as this"),
    Parameter("offsets", doc="PARTITION:OFFSET with commas between: offsets of some partitions", text_max=32 << 10),
    Parameter("partitions", "array", items="integer", at_least=0),
    Parameter("isolation", default=_UNCOMMITTED, one_of=(_UNCOMMITTED, "read_committed")),
    Parameter("control", "boolean", False, doc="show the markers of transactions"),
    *LIMIT_PARAMETERS,
    *_FILTER_PARAMETERS,
    Parameter("filter", text_max=4096, doc="only records for which this expression in CEL is true"),
    *FORMAT_PARAMETERS,
)
SEARCH_PARAMETERS = (
    Parameter("from", default=END, one_of=PLACES),
    Parameter("limit", "integer", 50, at_least=1, at_most=LIMIT_MAX),
    *BOUND_PARAMETERS,
)
EXPORT_PARAMETERS = (
    Parameter("format", default="jsonl", one_of=("jsonl", "parquet")),
    Parameter("from", default=BEGINNING, one_of=tuple(place for place in PLACES if place != TAIL)),
    Parameter("limit", "integer", 10_000, at_least=1, at_most=EXPORTED_MAX),
    *BOUND_PARAMETERS,
)


_INTERNAL = {GROUP_METADATA_TOPIC: decode_group_record, TRANSACTION_STATE_TOPIC: decode_transaction_json}


def view_of(call: Call) -> View:
    """The formats that a query selects. Raises ApiError for an invalid schema."""
    query = call.query
    names = [query[f"{side}_format"] for side in ("key", "value")]
    if names == [AUTO, AUTO] and call.path["topic"] in _INTERNAL:
        return View(internal=_INTERNAL[call.path["topic"]])
    key, value = (
        format_of(
            query[f"{side}_format"],
            query[f"{side}_schema"],
            query[f"{side}_message"],
            side,
            call.decoders,
            call.registry,
        )
        for side in ("key", "value")
    )
    return View(key, value)


def _wanted(call: Call, view: View) -> Wanted:
    topic, query = call.path["topic"], call.query
    places = places_of(call.cluster, topic)
    partitions = sorted(set(places if query["partitions"] is None else query["partitions"]))
    for index in partitions:
        require_partition(places, topic, index)
    offsets = _offsets(query["offsets"])
    if offsets and query["partitions"] is None:
        partitions = [index for index in partitions if index in offsets]
    return Wanted(
        topic,
        partitions,
        Start(
            query["from"],
            query["offset"],
            query["time_ms"],
            {(topic, index): offsets[index] for index in offsets},
            query["until_ms"],
        ),
        None if query["from"] == TAIL else query["limit"],
        query["isolation"] != _UNCOMMITTED,
        query["control"],
        filters_of(query, view.key, view.value),
        Limits(query["max_records"], query["max_bytes"], query["max_ms"] / 1000),
        None if query["filter"] is None else Expression(query["filter"], view, call.decoders),
    )


def _offsets(text: str | None) -> dict[int, int]:
    found = {}
    for word in (text or "").split(","):
        if not word.strip():
            continue
        index, colon, offset = word.strip().partition(":")
        if not colon or not all(each.isascii() and each.isdigit() and len(each) < 20 for each in (index, offset)):
            raise invalid(f"offsets: {word[:40]!r} must be PARTITION:OFFSET, such as 0:1200")
        found[int(index)] = min(int(offset), OFFSET_MAX)
    return found


def search_messages(call: Call) -> Iterator[Event]:
    view = view_of(call)
    return Search(call.cluster, _wanted(call, view), view).events()


def export_messages(call: Call) -> Download:
    topic, query = call.path["topic"], call.query
    if query["from"] == END and query["limit"] > NEWEST_MAX:
        raise invalid(f"from=end exports at most {NEWEST_MAX:,} records; use from=beginning, offset or time")
    view = view_of(call)
    records = Search(call.cluster, _wanted(call, view), view).records()
    if query["format"] == "parquet":
        data = parquet(records)
        return Download(f"{topic}.parquet", "application/vnd.apache.parquet", iter((data,)))
    return Download(f"{topic}.jsonl", "application/jsonl", json_lines(records))


def read_message(call: Call) -> Row | Download:
    """One whole record; with `part` the bytes of its key or value."""
    topic, index, offset = call.path["topic"], call.path["partition"], call.path["offset"]
    require_partition(places_of(call.cluster, topic), topic, index)
    one = _record_at(PartitionScan(call.cluster, topic, index, committed_only=False), offset)
    if one is None:
        raise not_found(f"{topic}-{index} has no record at offset {offset}")
    part = call.query["part"]
    if part is not None:
        data = one.key if part == "key" else one.value
        if data is None:
            raise not_found(f"the {part} of the record at offset {offset} is null")
        return Download(f"{topic}-{index}-{offset}.{part}", "application/octet-stream", iter((data,)))
    if len(one.key or b"") + len(one.value or b"") > WHOLE_BYTES_MAX:
        raise ApiError(413, "TOO_LARGE", f"more than {WHOLE_BYTES_MAX >> 20} MiB; download it with part=value")
    return view_of(call)._replace(limit=None).of(one)


def _record_at(scan: PartitionScan, offset: int) -> ScannedRecord | None:
    found = scan.read(offset, min(offset + 1, OFFSET_MAX))
    return found[0] if found and found[0].offset == offset else None


def produce_message(call: Call) -> Row:
    topic, body = call.path["topic"], call.body
    places = places_of(call.cluster, topic)
    key = _bytes_of(body["key"], body["key_encoding"], "key")
    value = _bytes_of(body["value"], body["value_encoding"], "value")
    index = body["partition"]
    if index is None:  # by Kafka's hash of the key, as Java's clients choose; without a key any partition
        index = random.randrange(len(places)) if key is None else partition_for_key(key, len(places))
    require_partition(places, topic, index)
    now_ms = int(time.time() * 1000) if body["timestamp_ms"] is None else body["timestamp_ms"]
    record = NewRecord(key, value, _headers_of(body["headers"] or []), now_ms)
    writer = RecordWriter(call.cluster, topic, Retries(call.timeout_s), CODECS[body["compression"]])
    writer.add(record, index)
    writer.flush()
    return {"ok": True, "partition": index, "offset": writer.base_offsets[index], "timestamp_ms": now_ms}


def _bytes_of(text: str | None, encoding: str, name: str) -> bytes | None:
    """Raises ApiError."""
    if text is None:
        return None
    if encoding == "text":
        return text.encode()
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"{name} is no base64") from None


def _headers_of(given: list[Any]) -> list[tuple[str, bytes | None]]:
    """Raises ApiError."""
    found: list[tuple[str, bytes | None]] = []
    for one in given:
        name, value = one.get("name"), one.get("value")
        if not isinstance(name, str) or not (value is None or isinstance(value, str)):
            raise invalid("a header is {name: TEXT, value: TEXT or null}")
        try:
            name.encode()
            found.append((name, None if value is None else value.encode()))
        except UnicodeEncodeError:
            raise invalid("a header is not valid Unicode") from None
    return found


def json_lines(records: Iterator[ScannedRecord]) -> Iterator[bytes]:
    """A JSON object per line, as `kafkalite consume --json` writes it and `kafkalite produce --json` reads it. A batch
    that cannot be read is an "error", which the latter refuses."""
    waiting, size = list[bytes](), 0
    for one in records:
        for piece in _line(one):
            waiting.append(piece)
            size += len(piece)
            if size >= _EXPORT_PIECE_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
    yield b"".join(waiting)


def _line(one: ScannedRecord) -> Iterable[bytes]:
    if one.fault is not None:
        fault = {"topic": one.topic, "partition": one.partition, "offset": one.offset, "error": _unreadable(one)}
        return (json.dumps(fault, separators=(",", ":")).encode() + b"\n",)
    return json_pieces(one.shown())


def _unreadable(one: ScannedRecord) -> str:
    return f"the batch at offset {one.offset} of partition {one.partition} cannot be read: {one.fault}"


def parquet(records: Iterator[ScannedRecord]) -> bytes:
    """A Parquet file, with keys and values as binary columns. Raises ApiError if it is too large, a batch cannot be
    read, or pyarrow is missing."""
    if not available()["parquet"]:
        raise ApiError(409, "REFUSED", "Parquet needs the package pyarrow: pip install kafkalite[arrow]")
    pyarrow: Any = importlib.import_module("pyarrow")
    writer_module: Any = importlib.import_module("pyarrow.parquet")
    header = pyarrow.struct([("name", pyarrow.string()), ("value", pyarrow.binary())])
    schema = pyarrow.schema(
        [
            ("partition", pyarrow.int32()),
            ("offset", pyarrow.int64()),
            ("timestamp", pyarrow.timestamp("ms", "UTC")),
            ("key", pyarrow.binary()),
            ("value", pyarrow.binary()),
            ("headers", pyarrow.list_(header)),
        ]
    )
    out = io.BytesIO()
    with writer_module.ParquetWriter(out, schema, compression="zstd") as writer:
        for rows in _groups(records):
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            if out.tell() > PARQUET_BYTES_MAX:
                raise ApiError(413, "TOO_LARGE", f"more than {PARQUET_BYTES_MAX >> 20} MiB; export it as JSON lines")
    return out.getvalue()


def _groups(records: Iterator[ScannedRecord]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for one in records:
        if one.fault is not None:
            raise ApiError(409, "REFUSED", _unreadable(one))
        headers = [{"name": name, "value": value} for name, value in one.headers]
        rows.append(
            {
                "partition": one.partition,
                "offset": one.offset,
                "timestamp": one.timestamp,
                "key": one.key,
                "value": one.value,
                "headers": headers,
            }
        )
        size += len(one.value or b"")
        if len(rows) >= _ROWS_PER_GROUP or size > PARQUET_BYTES_MAX // 8:
            yield rows
            rows, size = [], 0
    yield rows
