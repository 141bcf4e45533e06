"""The format "kafkalite" in a real Spark."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalite.record.batch import NewRecord, build_batch
from tests.support.places import ROOT

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

T0 = 1_700_000_000_123
pytestmark = pytest.mark.timeout(300)


def read(spark: Any, topics: Any, topic: str = "orders", **options: str) -> Any:
    return spark.read.format("kafkalite").options(**topics.options, subscribe=topic, **options).load()


def test_rows_are_those_of_spark_s_kafka_source(spark: Any, topics: Any) -> None:
    """Found without registration; several partitions and segments, all codecs, nulls, both timestamp types."""
    expected = []
    for partition, codecs in enumerate([(0, 1, 2), (3, 4)]):
        offset = 0
        for codec in codecs:
            rows = [
                NewRecord(None if i % 3 == 0 else b"k%d" % i, None if i % 4 == 0 else b"v" * (i * 7), (), T0 + i)
                for i in range(40)
            ]
            how = {"codec": codec, "timestamp_type": codec % 2}
            end = topics.write(rows[:25], rows[25:], base_offset=offset, partition=partition, **how)
            for i, row in enumerate(rows):
                at = row.timestamp if codec % 2 == 0 else T0 + (24 if i < 25 else 39)
                expected.append((row.key, row.value, "orders", partition, offset + i, at, codec % 2))
            offset = end
    rows = read(spark, topics)
    assert rows.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    columns = ["key", "value", "topic", "partition", "offset", "unix_millis(timestamp)", "timestampType"]
    shown = "date_format(timestamp, 'yyyy-MM-dd HH:mm:ss.SSS')"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")  # how times are shown, not what they are
    try:
        found = sorted((tuple(row) for row in rows.selectExpr(*columns, shown).collect()), key=lambda row: row[3:5])
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert [row[:-1] for row in found] == expected
    assert found[0][-1] == "2023-11-15 03:58:20.123"


def test_headers_come_when_asked_for(spark: Any, topics: Any) -> None:
    headers = [(), (("a", b"1"), ("b", None), ("a", b"")), (), (("é", b"\xff"),), ((b"\xff", b""),)]
    topics.write([NewRecord(None, b"v", each, T0) for each in headers], codec=4)
    found = read(spark, topics, includeHeaders="true").orderBy("offset").select("headers").collect()
    assert [row[0] and [tuple(pair) for pair in row[0]] for row in found] == [
        None,
        [("a", b"1"), ("b", None), ("a", b"")],
        None,
        [("é", b"\xff")],
        [("�", b"")],
    ]


def test_markers_and_what_is_just_written_are_not_rows(spark: Any, topics: Any) -> None:
    end = topics.write([NewRecord(b"k", b"v", (), T0)] * 3, producer_id=1, producer_epoch=0, transactional=True)
    marker = build_batch([NewRecord(b"\0\0\0\1", bytes(6), (), T0)], base_offset=end, control=True, transactional=True)
    last = build_batch([NewRecord(None, b"last", (), -1)], base_offset=end + 1)
    torn = build_batch([NewRecord(None, b"torn")], base_offset=end + 2)[:-1]
    with open(topics.segment(), "ab") as file:
        file.write(marker + last + torn)
    found = read(spark, topics).selectExpr("offset", "unix_millis(timestamp)").orderBy("offset").collect()
    assert [tuple(row) for row in found] == [(0, T0), (1, T0), (2, T0), (4, -1)]


def test_a_user_s_schema_may_leave_columns_out(spark: Any, topics: Any) -> None:
    topics.write([NewRecord(b"k", b"v", (("h", None),), T0)] * 3)
    reader = spark.read.format("kafkalite").options(**topics.options, subscribe="orders")
    assert [tuple(row) for row in reader.schema("value binary, offset long").load().collect()] == [
        (b"v", 0),
        (b"v", 1),
        (b"v", 2),
    ]
    with pytest.raises(Exception, match="there is no column 'value string'"):
        reader.schema("value string").load().collect()


def test_nothing_is_no_rows(spark: Any, topics: Any) -> None:
    topics.directory()
    assert read(spark, topics).count() == 0
    # a time that microseconds cannot express does not keep the other columns from being read
    topics.write([NewRecord(None, b"nanoseconds", (), T0 * 1_000_000)])
    assert [(row.value, row.timestamp) for row in read(spark, topics).collect()] == [(b"nanoseconds", None)]


def test_faults_reach_the_user_in_plain_words(spark: Any, topics: Any) -> None:
    topics.write([NewRecord(None, b"v")])
    with pytest.raises(Exception, match=r"topic 'bills' not found in .*; topics there: orders"):
        read(spark, topics, "bills").collect()
    with pytest.raises(Exception, match="did you mean 'startingOffsets'"):
        read(spark, topics, startingOffset="earliest")
    rows = read(spark, topics)
    data = bytearray(topics.segment().read_bytes())
    topics.write([NewRecord(None, b"v")], base_offset=1)
    data[-2] ^= 1
    topics.segment().write_bytes(data)
    with pytest.raises(Exception, match=r"00000\.log: the batch at position 0, offsets 0 to 0, is corrupt"):
        rows.collect()


def test_corrupt_batches_are_left_out_where_the_user_says_so(spark: Any, topics: Any) -> None:
    topics.write([NewRecord(None, b"a")], [NewRecord(None, b"b")], [NewRecord(None, b"c")])
    rows = read(spark, topics, mode="PERMISSIVE").select("offset", "value")
    data = bytearray(topics.segment().read_bytes())
    data[len(data) * 2 // 3 - 2] ^= 1
    topics.segment().write_bytes(data)
    assert [tuple(row) for row in rows.orderBy("offset").collect()] == [(0, b"a"), (2, b"c")]


def test_columns_that_cannot_be_null_say_so(spark: Any, topics: Any) -> None:
    topics.write([NewRecord(None, None)])
    nullable = {field.name for field in read(spark, topics, includeHeaders="true").schema.fields if field.nullable}
    assert nullable == {"key", "value", "timestamp", "headers"}


def test_the_source_and_the_workers_need_no_event_loop() -> None:
    import subprocess
    import sys

    code = (
        "import sys; import kafkalite.spark.data_source, kafkalite.reader.chunk_reader; "
        "print([name for name in ('asyncio', 'uvloop', 'kazoo') if name in sys.modules])"
    )
    root = str(ROOT)
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
