"""latest.py: the compacted view, shown and written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kafkalite.common.errors import ConfigError
from kafkalite.record.batch import NewRecord

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from spark_jobs import whole_output
from spark_jobs.latest import latest, write_latest
from spark_jobs.load import load
from spark_jobs.whole_output import replace_whole

pytestmark = pytest.mark.timeout(300)
Pair = tuple[bytes | None, bytes | None]


def options(topics: Any) -> dict[str, str]:
    rest = {"kafka.isolation.level": "read_committed", "includeHeaders": "false", "failOnDataLoss": "true"}
    return {"path": str(topics.path), "subscribe": "users", **rest}


def write(topics: Any, *pairs: Pair, base_offset: int = 0, partition: int = 0) -> None:
    rows = [NewRecord(key, value) for key, value in pairs]
    topics.write(rows, base_offset=base_offset, topic="users", partition=partition)


def test_the_last_value_of_every_key_of_a_partition_stays(spark: Any, topics: Any) -> None:
    write(topics, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (None, b"no key"), (b"c", b"1"), (b"b", None))
    write(topics, (b"c", None), (b"c", b"2"), (b"", b""), base_offset=6)
    write(topics, (b"a", b"in another partition"), partition=1)
    rows = latest(load(spark, options(topics)))
    assert rows.columns == load(spark, options(topics)).columns
    found = sorted((row.partition, bytes(row.key), bytes(row.value), row.offset) for row in rows.collect())
    assert found == [(0, b"", b"", 8), (0, b"a", b"2", 2), (0, b"c", b"2", 7), (1, b"a", b"in another partition", 0)]


def test_the_output_is_replaced_whole_and_knows_its_offsets(spark: Any, topics: Any, tmp_path: Path) -> None:
    path = tmp_path / "view"
    write(topics, (b"a", b"1"), (b"b", b"1"))
    write_latest(spark, options(topics), str(path))
    write(topics, (b"a", b"2"), (b"b", None), base_offset=2)
    write_latest(spark, options(topics), str(path))
    found = spark.read.parquet(str(path)).collect()
    assert [(bytes(row.key), bytes(row.value), row.offset) for row in found] == [(b"a", b"2", 2)]
    assert json.loads((path / "_latest.json").read_text())["offsets"] == {"users": {"0": 4}}


class Killed(BaseException):
    pass


def test_a_replacement_that_ends_at_any_call_leaves_the_old_or_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(text: str) -> Any:
        def write(directory: str) -> None:
            os.makedirs(directory)
            Path(directory, "_state").write_text(text)

        return write

    ends = 0
    for number in range(1000):
        path = tmp_path / f"{number}" / "view"
        replace_whole(str(path), "_state", make("old"))
        left = iter(range(number, -1, -1))

        def dies(real: Any, left: Any = left) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                if next(left, -1) <= 0:
                    raise Killed  # and everything after it, as in a process that is gone
                return real(*arguments, **named)

            return call

        with monkeypatch.context() as patch:
            for name in ("makedirs", "rename", "fsync", "listdir"):
                patch.setattr(whole_output.os, name, dies(getattr(os, name)))
            patch.setattr(whole_output.shutil, "rmtree", dies(whole_output.shutil.rmtree))
            try:
                replace_whole(str(path), "_state", make("new"))
            except Killed:
                ends += 1
            else:
                break
        assert not path.exists() or (path / "_state").read_text() in ("old", "new")
        whole_output._clear(str(path.parent), "view")
        assert (path / "_state").read_text() in ("old", "new"), "the next run begins with what was there"
        replace_whole(str(path), "_state", make("newer"))
        assert (path / "_state").read_text() == "newer"
        assert sorted(os.listdir(path.parent)) == [".view.lock", "view"]
    assert ends > 8


def test_what_was_not_made_by_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "view").mkdir()
    with pytest.raises(ConfigError, match="was not made by this job and is left as it is"):
        replace_whole(str(tmp_path / "view"), "_state", lambda _: None)
