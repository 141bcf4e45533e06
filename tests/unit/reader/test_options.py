"""Options that are allowed, and the errors for those that are not."""

from __future__ import annotations

import logging

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.common.options import as_table
from kafkalite.reader.option_table import OPTIONS, REFUSED
from kafkalite.reader.options import COLUMN_NAMES, column_names, parse_options
from kafkalite.reader.planning.read_options import EARLIEST, LATEST, At, Position, everywhere
from tests.support.places import ROOT

GOOD = {"path": "/data", "subscribe": "orders"}
BY_TIME = "OffsetsByTimestamp"


def test_what_is_not_said_has_its_default() -> None:
    options = parse_options(GOOD)
    assert (options.paths, options.topics) == (("/data",), ("orders",))
    assert (options.start, options.end) == (
        everywhere("startingOffsets", EARLIEST),
        everywhere("endingOffsets", LATEST),
    )
    assert (options.include_headers, options.min_partitions, options.fail_on_data_loss) == (False, 1, True)
    assert (options.batch_bytes, options.max_partition_bytes, options.permissive) == (64 << 20, 64 << 20, False)
    assert (options.read_committed, options.later_is_latest, options.columns) == (False, False, None)
    assert parse_options(GOOD, streaming=True).start == everywhere("startingOffsets", LATEST)


def test_names_may_have_any_case_and_kafka_s_own_are_let_pass() -> None:
    options = parse_options(
        {
            "PATH": "/data, /more",
            "assign": '{"orders": [1, 0, 1]}',
            "includeheaders": "TRUE",
            "startingOffsets": '{"orders": {"0": 23, "1": -2}}',
            "endingoffsets": '{"orders": {"0": -1, "1": 7}}',
            "minPartitions": "8",
            "maxRecordsPerPartition": "5",
            "failOnDataLoss": "false",
            "maxPartitionBytes": "8m",
            "batchBytes": "1000",
            "mode": "permissive",
            "columns": "value, key,value",
            "kafka.bootstrap.servers": "ignored:9092",
            "kafka.isolation.level": "READ_COMMITTED",
            "groupIdPrefix": "mine",
            "kafkaConsumer.pollTimeoutMs": "120000",
            "fetchOffset.numRetries": "3",
        }
    )
    assert options.paths == ("/data", "/more")
    assert options.assigned == {"orders": (1, 0)}
    assert options.start.position("orders", 0) == Position(At.OFFSET, 23)
    assert options.start.position("orders", 1) == EARLIEST
    assert options.end.position("orders", 0) == LATEST
    assert options.end.position("orders", 2) is None
    assert (options.include_headers, options.min_partitions, options.fail_on_data_loss) == (True, 8, False)
    assert (options.max_records_per_partition, options.max_partition_bytes, options.batch_bytes) == (5, 8 << 20, 1000)
    assert (options.permissive, options.read_committed, options.columns) == (True, True, ("value", "key"))


@pytest.mark.parametrize(
    ("path", "paths"),
    [
        ("/a,/b,/a", ("/a", "/b")),
        ('["/a,b", "/c"]', ("/a,b", "/c")),
        ("file:///a", ("/a",)),
        ("file:/a", ("/a",)),
        ("c:", ("/here/c:",)),
        ("./a:b/c", ("/here/a:b/c",)),
        ("a,/here/a", ("/here/a",)),
    ],
)
def test_a_path_may_be_several_directories_and_means_the_same_on_executors(
    path: str, paths: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.getcwd", lambda: "/here")
    assert parse_options({"path": path, "subscribe": "orders"}).paths == paths
    assert parse_options({"paths": '["/a", "/b"]', "subscribe": "orders"}).paths == ("/a", "/b"), "load(paths)"


def test_a_timestamp_goes_before_timestamps_by_partition_and_these_before_offsets() -> None:
    every = {
        "startingTimestamp": "1000",
        "startingOffsetsByTimestamp": '{"orders": {"0": 2000}}',
        "startingOffsets": '{"orders": {"0": 3}}',
        "endingTimestamp": " 4000 ",
        "endingOffsetsByTimestamp": '{"orders": {"0": 5000}}',
        "endingOffsets": '{"orders": {"0": 6}}',
    }
    found = []
    for name in ("", "startingTimestamp", "startingOffsetsByTimestamp", "endingTimestamp", "endingOffsetsByTimestamp"):
        every.pop(name, None)
        options = parse_options(GOOD | every)
        found.append((options.start.option, options.start.position("orders", 0), options.end.position("orders", 0)))
    at = At.TIMESTAMP
    assert found == [
        ("startingTimestamp", (at, 1000), (at, 4000)),
        ("startingOffsetsByTimestamp", (at, 2000), (at, 4000)),
        ("startingOffsets", (At.OFFSET, 3), (at, 4000)),
        ("startingOffsets", (At.OFFSET, 3), (at, 5000)),
        ("startingOffsets", (At.OFFSET, 3), (At.OFFSET, 6)),
    ]


def test_the_last_n_offsets_have_a_spelling_of_their_own() -> None:
    last = Position(At.BEFORE_LATEST, 100)
    assert parse_options(GOOD | {"startingOffsets": "latest-100"}).start == everywhere("startingOffsets", last)
    options = parse_options(GOOD | {"endingOffsets": '{"orders": {"0": "Latest - 100", "1": "latest"}}'})
    assert (options.end.position("orders", 0), options.end.position("orders", 1)) == (last, LATEST)
    with pytest.raises(ConfigError, match='for the last 5 offsets write "latest-5"'):
        parse_options(GOOD | {"startingOffsets": '{"orders": {"0": -5}}'})


def test_partial_json_has_a_default_where_it_says_so() -> None:
    text = '{"orders": {"0": 7, "*": "latest-3"}, "*": {"1": 8, "*": -2}}'
    start = parse_options(GOOD | {"startingOffsets": text}).start
    assert [start.position("orders", index) for index in (0, 1)] == [(At.OFFSET, 7), (At.BEFORE_LATEST, 3)]
    assert [start.position("bills", index) for index in (0, 1)] == [EARLIEST, (At.OFFSET, 8)]
    assert start.named() == {("orders", 0)}


def test_options_of_streams_are_read_and_a_batch_says_that_it_ignores_them(caplog: pytest.LogCaptureFixture) -> None:
    stream = {"maxOffsetsPerTrigger": "500", "minOffsetsPerTrigger": "5", "maxTriggerDelay": "2m"}
    options = parse_options(GOOD | stream, streaming=True)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (500, 5)
    assert options.max_trigger_delay_ms == 120_000
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        parse_options(GOOD | stream)
    assert "ignores maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay" in caplog.text
    for name, value in [("endingOffsets", "latest"), (f"ending{BY_TIME}", '{"orders": {"0": 1}}')]:
        with pytest.raises(ConfigError, match=f"{name}' is not for streams"):
            parse_options(GOOD | {name: value}, streaming=True)
    with pytest.raises(ConfigError, match="'minOffsetsPerTrigger' is 5, more than 'maxOffsetsPerTrigger', 4"):
        parse_options(GOOD | stream | {"maxOffsetsPerTrigger": "4"}, streaming=True)


def test_columns_are_known_before_it_is_known_whether_a_stream_reads_them() -> None:
    assert column_names(GOOD) == COLUMN_NAMES[:-1]
    assert column_names(GOOD | {"includeHeaders": "true", "startingOffsets": "latest"}) == COLUMN_NAMES
    assert column_names(GOOD | {"columns": "offset,headers", "endingOffsets": "latest"}) == ("offset", "headers")
    with pytest.raises(ConfigError, match="names 'vaule'; choose among key, value"):
        column_names(GOOD | {"columns": "vaule"})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"path": ""}, "set the option 'path'"),
        ({"path": "s3://bucket/data"}, "'path' is 's3://bucket/data'; mount the storage"),
        ({"path": "[1]"}, "'path' must be a list of directories"),
        ({"subscribePattern": "o.*"}, "found 'subscribe' and 'subscribePattern'"),
        ({"subscribe": " , "}, "names no topic"),
        ({"startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean 'maxOffsetsPerTrigger'"),
        ({"startingOffsets": "newest"}, "it may be earliest, latest, latest-n for the last n offsets, or JSON"),
        ({"startingOffsets": "latest"}, "'startingOffsets' is latest, which is for streams only"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "is latest, which is for streams only"),
        ({"endingOffsets": "earliest"}, "'endingOffsets' is earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "'endingOffsets' is earliest"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "has True for partition '0'"),
        ({"startingOffsets": '{"orders": {"0": 5.5}}'}, "has 5.5 for partition '0'"),
        ({"startingOffsets": '{"orders": {"x": 5}}'}, "has 'x', which is no partition"),
        ({"startingOffsets": '{"orders": 5}'}, "by partition for 'orders'"),
        ({"startingOffsets": "{orders"}, "is no JSON"),
        ({"startingTimestamp": "-1"}, "may be milliseconds since 1970"),
        ({"endingTimestamp": "yesterday"}, "'endingTimestamp' has yesterday; it may be milliseconds"),
        ({f"starting{BY_TIME}": '{"orders": {"0": "latest"}}'}, "'startingOffsetsByTimestamp' has 'latest'"),
        ({f"starting{BY_TIME}Strategy": "earliest"}, "it may be error or latest"),
        ({"includeHeaders": "yes"}, "may be true or false"),
        ({"minPartitions": "0"}, "a number from 1 on"),
        ({"maxRecordsPerPartition": "-3"}, "a number from 1 on"),
        ({"batchBytes": "much"}, "'batchBytes' is 'much'; it may be a number of bytes such as"),
        ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay' is 'soon'; it may be a time"),
        ({"mode": "DROPMALFORMED"}, "it may be failfast or permissive"),
        ({"kafka.isolation.level": "serializable"}, "it may be read_uncommitted or read_committed"),
    ],
)
def test_a_fault_is_one_line_that_names_the_option(changes: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        parse_options(GOOD | changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_kafka_s_options_that_spark_refuses_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name}' is not supported"):
        parse_options(GOOD | {name: "anything"})


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"subscribePattern": "("},
        {"subscribePattern": " "},
        {"assign": "[]"},
        {"assign": '{"a": 0}'},
        {"assign": '{"a": [-1]}'},
    ],
    ids=str,
)
def test_topics_are_named_in_one_good_way(choice: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(choice), "found none")):
        parse_options({"path": "/data"} | choice)


def test_the_table_has_every_option_once_with_what_it_promises() -> None:
    names = [option.name for option in OPTIONS]
    assert len(set(names)) == len(names)
    assert all(option.allowed and option.meaning for option in OPTIONS)


def test_the_page_about_spark_shows_the_table() -> None:
    page = (ROOT / "docs/spark.md").read_text()
    assert page.split("<!-- options -->\n")[1].split("\n<!-- end of options -->")[0] == as_table(OPTIONS)
