"""Loads that decode values: typed columns, dead letters, new fields, an end between the two commits."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kafkalite.record.batch import NewRecord

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")
pytest.importorskip("pyiceberg", reason="needs the extra 'tables'")
pytest.importorskip("deltalake", reason="needs the extra 'tables'")

from kafkalite.common.errors import ConfigError
from spark_jobs import load as load_job
from spark_jobs.decoded_values import add_values, open_values
from spark_jobs.job import add_source, new_parser, source_options
from spark_jobs.tables.options import TABLE_FORMATS, add_table, open_table
from tests.support.lake import read_table, table_options

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]


class Load:
    def __init__(self, spark: Any, topics: Any, place: Path, kind: str) -> None:
        self.spark, self.topics, self.place, self.kind = spark, topics, place, kind
        self.end = 0

    def write(self, *values: bytes | None) -> None:
        rows = [NewRecord(b"k", value) for value in values]
        self.end = self.topics.write(rows, base_offset=self.end)

    def run(self, *, fails: bool = False, **properties: str) -> None:
        schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in properties.items()}}
        file = self.place / "schema.json"
        file.write_text(json.dumps(schema))
        parser = new_parser("load", "")
        add_source(parser)
        add_table(parser, "kafkalite-load")
        add_values(parser)
        parser.add_argument("--output")
        words = ["--data-dir", str(self.topics.path), "--topic", "orders", *table_options(self.kind, self.place)]
        options = parser.parse_args([*words, "--value", "json", "--value-schema", str(file)])
        with ExitStack() as stack:
            self.load(stack, options, fails)

    def load(self, stack: ExitStack, options: argparse.Namespace, fails: bool) -> None:
        table = stack.enter_context(open_table(options))
        values = open_values(options, stack)
        if fails:
            stack.enter_context(pytest.raises(KeyboardInterrupt))

            def commit(*_: Any) -> str:
                raise KeyboardInterrupt

            table.commit = commit  # type: ignore[method-assign]
        load_job.load_into(self.spark, source_options(options), table, values=values)

    def rows(self) -> list[tuple[int, Any]]:
        rows = read_table(self.kind, self.place).sort_by("offset").to_pylist()
        return [(row["offset"], row["value"]) for row in rows]

    def dead(self) -> list[tuple[int, bytes, str]]:
        rows = read_table(self.kind, self.place, "orders_dead_letters").sort_by("offset").to_pylist()
        assert all(row["topic"] == "orders" and row["partition"] == 0 and row["key"] == b"k" for row in rows)
        return [(row["offset"], row["value"], row["reason"]) for row in rows]


@pytest.fixture(params=TABLE_FORMATS)
def load(spark: Any, topics: Any, tmp_path: Path, request: Any) -> Load:
    return Load(spark, topics, tmp_path, request.param)


def test_values_are_typed_and_those_that_are_none_are_dead_letters(load: Load) -> None:
    load.write(b'{"id": 1}', None, b'{"id": 2}')
    load.run(id="integer")
    assert load.dead() == []
    load.write(b'{"id": "3"}', b'{"id": 4}', b"\xff")
    load.run(id="integer")
    assert load.rows() == [(0, {"id": 1}), (1, None), (2, {"id": 2}), (4, {"id": 4})]
    assert [row[:2] for row in load.dead()] == [(3, b'{"id": "3"}'), (5, b"\xff")]
    assert load.dead()[0][2] == "value.id is str, not integer"


def test_a_run_that_ends_between_the_two_commits_leaves_no_row_twice(load: Load) -> None:
    load.write(b'{"id": 1}', b"{")
    load.run(id="integer", fails=True)
    load.write(b'{"id": 2}', b"[")
    load.run(id="integer")
    assert load.rows() == [(0, {"id": 1}), (2, {"id": 2})]
    assert [row[0] for row in load.dead()] == [1, 3]


def test_new_fields_are_added_and_another_type_is_an_error_that_names_the_field(load: Load) -> None:
    load.write(b'{"id": 1}')
    load.run(id="integer")
    load.write(b'{"id": 2, "note": "x"}')
    load.run(id="integer", note="string")
    assert load.rows() == [(0, {"id": 1, "note": None}), (1, {"id": 2, "note": "x"})]
    load.write(b'{"id": 3}')
    with pytest.raises(ConfigError, match=r"'value\.id' in .* is int64, and not string"):
        load.run(id="string", note="string")
    load.run(id="integer")
    assert load.rows()[2] == (2, {"id": 3, "note": None})
