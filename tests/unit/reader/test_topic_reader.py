"""kafkalite.read: the data source's rows without Spark, and its options in Python's spelling."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.common.errors import ConfigError, Malformed
from kafkalite.common.timestamps import parse_moment
from kafkalite.inspection.count_records import count
from kafkalite.reader.topic_reader import as_options
from kafkalite.record.batch import NewRecord, build_batch
from tests.support.local_zone import local_zone
from tests.support.places import ROOT
from tests.support.segment_writer import Topics

pa = pytest.importorskip("pyarrow", reason="needs the extra 'arrow'")

T0 = 1_700_000_000_123


def records(first: int, end: int) -> list[NewRecord]:
    return [NewRecord(b"k%d" % n, b"value %d" % n, (("n", b"%d" % n),), T0 + n) for n in range(first, end)]


def offsets(reader: Any) -> list[tuple[int, int]]:
    table = reader.read_all()
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def test_a_topic_comes_as_batches_in_the_order_of_partitions_and_offsets(topics: Any) -> None:
    topics.write(records(0, 5), records(5, 10))
    topics.write(records(10, 15), base_offset=10)
    topics.write(records(0, 3), partition=1, codec=4)
    reader = kafkalite.read(topics.path, "orders")
    assert reader.schema.names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    table = reader.read_all()
    assert table["offset"].to_pylist() == [*range(15), *range(3)]
    assert table["value"].to_pylist()[-1] == b"value 2"
    assert table["timestamp"][0].as_py() == datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)


def test_columns_are_chosen_and_ordered_by_the_caller(topics: Any) -> None:
    topics.write(records(0, 2))
    table = kafkalite.read(str(topics.path), "orders", columns=["headers", "value"]).read_all()
    assert table.to_pylist() == [
        {"headers": [{"key": "n", "value": b"%d" % n}], "value": b"value %d" % n} for n in range(2)
    ]
    assert "headers" in kafkalite.read(topics.path, "orders", include_headers=True).schema.names


def test_offsets_by_partition_are_those_of_the_topic(topics: Any) -> None:
    topics.write(records(0, 10))
    topics.write(records(0, 10), partition=1)
    both = kafkalite.read(
        topics.path, "orders", starting_offsets={0: 8, 1: 9}, ending_offsets={"orders": {0: 9, 1: -1}}
    )
    assert offsets(both) == [(0, 8), (1, 9)]
    one = kafkalite.read(topics.path, "orders", partitions=[1], starting_offsets='{"orders": {"1": 7}}')
    assert offsets(one) == [(1, 7), (1, 8), (1, 9)]


def test_filters_must_all_hold(topics: Any) -> None:
    for partition in range(3):
        topics.write(records(0, 5), records(5, 10), partition=partition)
    at = datetime(2023, 11, 14, 22, 13, 20, 126000, tzinfo=UTC)  # T0 + 3
    for filters, expected in (
        ([("offset", ">", 7)], [(p, n) for p in range(3) for n in (8, 9)]),
        ([("partition", "in", [0, 2]), ("offset", "=", 4)], [(0, 4), (2, 4)]),
        ([("partition", "<", 1), ("timestamp", "<", at)], [(0, 0), (0, 1), (0, 2)]),
        ([("timestamp", ">=", T0 + 9), ("topic", "in", {"orders"})], [(0, 9), (1, 9), (2, 9)]),
        ([("topic", "=", "bills")], []),
    ):
        assert offsets(kafkalite.read(topics.path, "orders", filters=filters)) == expected, filters


@pytest.mark.parametrize(
    "wrong",
    [("key", "=", b"k"), ("offset", "in", [1]), ("partition", "=", "1"), ("topic", "<", "b"), ("offset", "~", 1)],
)
def test_a_filter_that_cannot_be_kept_is_an_error(topics: Any, wrong: Any) -> None:
    topics.write(records(0, 1))
    with pytest.raises(ConfigError, match=r"^filters has "):
        kafkalite.read(topics.path, "orders", filters=[wrong])


def test_topics_may_be_several_or_a_pattern(topics: Any) -> None:
    for topic in ("orders", "bills", "other"):
        topics.write(records(0, 1), topic=topic)
    for wanted in (["orders", "bills"], re.compile("orders|bil.*")):
        found = kafkalite.read(topics.path, wanted, columns=["topic"]).read_all()
        assert sorted(found["topic"].to_pylist()) == ["bills", "orders"]


def test_arguments_become_the_options_of_the_data_source() -> None:
    moment = datetime(2023, 11, 14, 22, 13, 20, 123000, tzinfo=UTC)
    options = as_options(["a", Path("b")], "orders", starting_timestamp=moment, ending_timestamp=T0 + 1)
    assert options == {
        "path": "a,b",
        "subscribe": "orders",
        "startingTimestamp": str(T0),
        "endingTimestamp": str(T0 + 1),
        "startingOffsetsByTimestampStrategy": "error",
        "kafka.isolation.level": "read_uncommitted",
        "includeHeaders": "false",
        "failOnDataLoss": "true",
        "mode": "FAILFAST",
    }


@pytest.mark.parametrize("moment", [-1, -2, datetime(1492, 10, 12, tzinfo=UTC), parse_moment("--from", "1969-12-31")])
def test_a_time_before_1970_is_before_all_records(topics: Any, moment: Any) -> None:
    topics.write([NewRecord(b"k", b"no time", (), -1), *records(0, 2)])
    assert offsets(kafkalite.read(topics.path, "orders", starting_timestamp=moment)) == [(0, 0), (0, 1), (0, 2)]
    assert offsets(kafkalite.read(topics.path, "orders", ending_timestamp=moment)) == [(0, 0)], "it is of no time"


def test_a_time_as_text_is_milliseconds_or_iso_8601() -> None:
    assert parse_moment("--from", "1700000000123") == parse_moment("--from", "2023-11-14T22:13:20.123Z") == T0
    with local_zone(), pytest.raises(ConfigError, match=r"--from 2026-10-25T02:59 comes twice here.*02:59:00\+01:00"):
        parse_moment("--from", "2026-10-25T02:59")
    with pytest.raises(ConfigError, match="--from -5: must be milliseconds since 1970"):
        parse_moment("--from", "-5")


def test_timestamps_bound_a_read(topics: Any) -> None:
    topics.write(records(0, 10))
    topics.write(records(0, 10), partition=1)
    bounds = {"starting_timestamp": T0 + 8, "ending_offsets_by_timestamp": {0: T0 + 9, 1: T0 + 99}}
    assert offsets(kafkalite.read(topics.path, "orders", **bounds)) == [(0, 8), (1, 8), (1, 9)]
    with pytest.raises(ConfigError, match="starting_offsets_by_timestamp_strategy"):
        kafkalite.read(topics.path, "orders", starting_timestamp=T0 + 99)
    later = {"starting_timestamp": T0 + 99, "starting_offsets_by_timestamp_strategy": "latest"}
    assert offsets(kafkalite.read(topics.path, "orders", **later)) == []


def test_several_directories_are_read_as_one(topics: Any, tmp_path: Path) -> None:
    topics.write(records(0, 5))
    other = Topics(tmp_path / "other")
    other.write(records(0, 3), partition=1)
    found = kafkalite.read([topics.path / ".", tmp_path / "other"], "orders")
    assert offsets(found) == [*((0, n) for n in range(5)), *((1, n) for n in range(3))]


def test_corrupt_batches_are_left_out_if_that_is_asked_for(topics: Any) -> None:
    topics.write(records(0, 5), records(5, 10))
    data = bytearray(topics.segment().read_bytes())
    data[80] ^= 1
    topics.segment().write_bytes(data)
    assert offsets(kafkalite.read(topics.path, "orders", mode="PERMISSIVE")) == [(0, n) for n in range(5, 10)]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"starting_offsets": "begin"}, r"'starting_offsets' is 'begin'"),
        ({"ending_offsets": {3: 7}}, r"'ending_offsets' .*partition"),
        ({"starting_offsets": {0: 99}}, r"starting_offsets of orders-0 is 99, .*set fail_on_data_loss to false"),
        ({"isolation_level": "serializable"}, r"'isolation_level' is 'serializable'"),
        ({"columns": ["keys"]}, r"columns names 'keys'.*choose among key, value"),
        ({"columns": []}, r"columns names no column"),
        ({"partitions": [4]}, r"topic 'orders' has no partition 4"),
        ({"topic": ["orders", "bills"], "partitions": [0]}, r"partitions goes with one topic"),
        ({"topic": ["orders", "bills"], "starting_offsets": {0: 1}}, r"starting_offsets by partition goes with one"),
        ({"starting_timestamp": datetime(2026, 1, 1)}, r"starting_timestamp has no time zone"),
        ({"batch_bytes": 0}, r"'batch_bytes'.*0"),
        ({"topic": "bills"}, r"topic 'bills' not found.*topics there: orders"),
    ],
)
def test_an_argument_that_does_not_fit_is_named_at_the_call(topics: Any, arguments: Any, fault: str) -> None:
    topics.write(records(0, 5))
    with pytest.raises(ConfigError, match=fault):
        kafkalite.read(topics.path, **{"topic": "orders", **arguments})


def test_a_corrupt_batch_ends_the_stream_with_an_error_that_names_the_file(topics: Any) -> None:
    topics.write(records(0, 5), records(5, 10))
    path = topics.segment()
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    reader = kafkalite.read(topics.path, "orders")
    with pytest.raises(Malformed, match=re.escape(str(path))):
        reader.read_all()


def test_without_pyarrow_the_error_says_what_to_install() -> None:
    script = "import sys; sys.modules['pyarrow'] = None; import kafkalite; kafkalite.read('d', 't')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert "ImportError: kafkalite.read needs pyarrow: pip install 'kafkalite[arrow]'" in done.stderr


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("columns", [["offset"], ["value", "offset"], ["offset", "timestamp", "key"]])
def test_records_behind_the_last_offset_of_their_batch_are_read(topics: Any, codec: int, columns: list[str]) -> None:
    """As brokers of old took them from clients that left the last offset delta at 0; Java reads all six."""
    write_overfull(topics, codec)
    found = kafkalite.read(topics.path, "orders", columns=columns).read_all()
    assert found["offset"].to_pylist() == [2, 3, 4, 5, 6, 7]
    whole = kafkalite.read(topics.path, "orders", columns=["value"]).read_all()
    assert whole["value"].to_pylist() == [b"value %d" % n for n in (0, 1, 2, 0, 1, 2)]
    assert count(str(topics.path)).total().live_records == 6
    ending = kafkalite.read(topics.path, "orders", columns=columns, ending_offsets={0: 5}).read_all()
    assert ending["offset"].to_pylist() == [2, 3, 4]
    starting = kafkalite.read(topics.path, "orders", columns=columns, starting_offsets={0: 3}).read_all()
    assert starting["offset"].to_pylist() == [5, 6, 7]


def write_overfull(topics: Topics, codec: int) -> None:
    """Two batches of three records each that say they have one offset each, 2 and 5."""
    batches = [build_batch(records(0, 3), base_offset=base, codec=codec, last_offset_delta=0) for base in (2, 5)]
    topics.segment(2).write_bytes(b"".join(batches))


def test_the_directory_of_a_machine_is_one_path(topics: Any, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    for partition, broker_id in ((0, 3), (1, 10)):
        topics.write(records(0, 5), partition=partition)
        own = machine / f"broker{broker_id}"
        own.mkdir(parents=True)
        (own / "meta.properties").touch()
        topics.directory(partition=partition).rename(own / f"orders-{partition}")
    (machine / "zookeeper").mkdir()
    assert offsets(kafkalite.read(machine, "orders")) == [(index, n) for index in (0, 1) for n in range(5)]
    counted = count(str(machine))
    assert (counted.root, counted.total().live_records) == (str(machine), 10)
