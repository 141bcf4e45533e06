"""mirror.py and replay.py in a real Spark, into a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.client.cluster_client import WriteFailed
from kafkalite.common.errors import ConfigError
from kafkalite.record.batch import NewRecord

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from spark_jobs.copy_options import add_target, copy_options
from spark_jobs.job import add_source, new_parser, source_options
from spark_jobs.latest import main as latest_main
from spark_jobs.load import load_into
from spark_jobs.load import main as load_main
from spark_jobs.load_output import open_output
from spark_jobs.mirror import mirror, name_of
from spark_jobs.partition_copy import Copied, CopyOptions
from spark_jobs.replay import main as replay_main
from spark_jobs.replay import replay
from tests.support.lake import iceberg_table, table_options

T0 = 1_700_000_000_123
DAY_MS = 86_400_000
pytestmark = pytest.mark.timeout(300)

Row = tuple[int, bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with kafkalite.Broker(data_dir=tmp_path_factory.mktemp("target"), port=0, log_retention_ms=-1) as broker:
        yield broker


def records(first: int, end: int) -> list[NewRecord]:
    headers = ((), (("n", b"1"), ("empty", None)))
    return [
        NewRecord(None if n % 3 == 0 else b"k", None if n % 5 == 0 else b"%d" % n, headers[n % 2], T0 + n * DAY_MS // 4)
        for n in range(first, end)
    ]


def expected(*ranges: tuple[int, int, int]) -> list[Row]:
    """Of partitions with the records `first` to `end`."""
    return [
        (partition, row.key, row.value, row.timestamp, list(row.headers))
        for partition, first, end in ranges
        for row in records(first, end)
    ]


def stored(broker: Any, topic: str) -> list[Row]:
    table = kafkalite.read(broker.data_dir, topic, isolation_level="read_committed", include_headers=True).read_all()
    return [
        (
            row["partition"], row["key"], row["value"], round(row["timestamp"].timestamp() * 1000),
            [(header["key"], header["value"]) for header in row["headers"] or ()],
        )
        for row in table.to_pylist()
    ]  # fmt: skip


def iceberg_snapshot(place: Path) -> int:
    return int(iceberg_table(place).current_snapshot().snapshot_id)


def target(broker: Any, name: str, source: str, *arguments: str) -> CopyOptions:
    parser = new_parser("copy", "")
    add_target(parser, name)
    return copy_options(parser.parse_args(["--to", broker.bootstrap_servers, *arguments]), source)


def source(topics: Any, *arguments: str) -> dict[str, str]:
    parser = new_parser("mirror", "")
    add_source(parser)
    return source_options(parser.parse_args(["--data-dir", str(topics.path), "--topic", "orders", *arguments]))


def test_a_mirror_copies_what_is_there_and_then_what_is_new(spark: Any, topics: Any, broker: Any) -> None:
    topics.write(records(0, 10), records(10, 20), codec=4)
    topics.write(records(0, 5), partition=2)
    topics.directory(partition=1)
    to = target(broker, "first", name_of(str(topics.path)), "--transaction-bytes", "300")
    copied = mirror(spark, source(topics), to, "m1-")
    assert sorted(copied) == [Copied("m1-orders", 0, 20, 0, 20), Copied("m1-orders", 1, 0, 0, 0),
                              Copied("m1-orders", 2, 5, 0, 5)]  # fmt: skip
    topics.write(records(20, 25), base_offset=20)
    assert sum(one.records for one in mirror(spark, source(topics), to, "m1-")) == 5
    assert stored(broker, "m1-orders") == expected((0, 0, 25), (2, 0, 5))


def test_a_mirror_notices_that_its_source_lost_records(spark: Any, topics: Any, broker: Any) -> None:
    topics.write(records(0, 10))
    to = target(broker, "second", "here")
    mirror(spark, source(topics), to, "m2-")
    topics.write(records(0, 4))
    with pytest.raises(Exception, match="orders-0 is copied up to offset 10, but ends at 4"):
        mirror(spark, source(topics), to, "m2-")
    assert mirror(spark, source(topics, "--ignore-data-loss"), to, "m2-")[0].records == 0


def test_a_target_with_fewer_partitions_is_refused(spark: Any, topics: Any, broker: Any) -> None:
    topics.write(records(0, 2))
    to = target(broker, "third", "here")
    mirror(spark, source(topics), to, "m3-")
    for partition in (1, 2, 3):
        topics.write(records(0, 2), partition=partition)
    with pytest.raises(WriteFailed, match="topic 'm3-orders' has 1 partitions there, and 4 are copied"):
        mirror(spark, source(topics), to, "m3-")


def test_what_was_loaded_is_replayed_in_order_and_once(spark: Any, topics: Any, broker: Any, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")

    def load() -> None:
        with open_output(lake) as output:
            load_into(spark, source(topics, "--headers"), output)

    topics.write(records(0, 20))
    topics.write(records(0, 30), partition=1)
    load()
    to = target(broker, "replay", lake, "--transaction-bytes", "300")
    assert sum(one.records for one in replay(spark.read.parquet(lake), to, "r-")) == 50
    with pytest.raises(ConfigError, match="the input has no rows of topic 'oders'"):
        replay(spark.read.parquet(lake), to, "r-", ["orders", "oders"])
    topics.write(records(20, 24), base_offset=20)
    load()
    again = replay(spark.read.parquet(lake), to, "r-")
    assert sorted(again) == [Copied("r-orders", 0, 4, 20, 24), Copied("r-orders", 1, 0, 30, 30)]
    assert stored(broker, "r-orders") == expected((0, 0, 24), (1, 0, 30))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["iceberg", "delta"])
@pytest.mark.parametrize("job", ["load", "latest"])
def test_a_table_is_replayed_as_it_is_or_was(
    spark: Any, topics: Any, broker: Any, tmp_path: Path, job: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyiceberg", reason="needs the extra 'tables'")
    monkeypatch.setattr(type(spark), "stop", lambda _: None)  # the session is that of all tests
    main = {"load": load_main, "latest": latest_main}[job]
    words = ["--data-dir", str(topics.path), "--topic", "orders", "--headers", *table_options(kind, tmp_path)]

    def expect(ends: tuple[int, int]) -> list[Row]:
        rows = expected(*((partition, 0, end) for partition, end in enumerate(ends)))
        if job == "load":
            return rows
        last = {(row[0], row[1]): row for row in rows if row[1] is not None}
        return [row for row in last.values() if row[2] is not None]

    topics.write(records(0, 21))
    topics.write(records(0, 30), partition=1)
    assert main(words) == 0
    first = {"iceberg": iceberg_snapshot, "delta": lambda _: 1}[kind](tmp_path)
    topics.write(records(21, 24), base_offset=21)
    assert main(words) == 0
    where = [word.replace("--output", "--input") for word in table_options(kind, tmp_path)]
    back = [*where, "--to", broker.bootstrap_servers]
    for name, arguments, ends in (("old", ["--snapshot", str(first)], (21, 30)), ("new", [], (24, 30))):
        prefix = f"{job}-{kind}-{name}-"
        assert replay_main([*back, *arguments, "--topic-prefix", prefix, "--name", prefix]) == 0
        assert stored(broker, f"{prefix}orders") == expect(ends)
    assert replay_main([*back, "--as-of", "1000"]) == 1


def test_an_input_without_offsets_cannot_be_replayed(spark: Any, broker: Any) -> None:
    rows = spark.createDataFrame([("t", 0, b"v")], "topic string, partition int, value binary")
    with pytest.raises(ConfigError, match="the input has no column 'offset'"):
        replay(rows, target(broker, "x", "here"))
