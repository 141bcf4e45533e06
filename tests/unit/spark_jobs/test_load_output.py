"""The protocol of load.py's output: data and offsets become visible together, wherever a load ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark.sql", reason="needs the extra 'spark'")

from kafkalite.common.errors import ConfigError
from spark_jobs import load_output
from spark_jobs.load_output import open_output

KEY = ("orders", 0)
PART = "topic=orders/day=2026-01-31/part"


class Killed(BaseException):
    pass


def load(path: Path, end: int) -> None:
    """As load.py does: what comes behind the last run's offsets, in a task that is tried twice, then the commit."""
    with open_output(str(path)) as output:
        begin = output.last.offsets.get(KEY, 0)
        if begin < end:
            output.begin()
            for attempt in ("0-failed", "0-successful"):
                part = Path(output.tasks) / attempt / PART
                part.parent.mkdir(parents=True)
                part.write_text("\n".join(map(str, range(begin, end))))
            output.take(os.path.join(output.tasks, "0-successful"), [PART])
            output.publish({KEY: end}, headers=False)


def visible(path: Path) -> list[int]:
    """The records that a reader of the output sees."""
    files = [part for part in path.glob("*/*/*/part") if not part.relative_to(path).parts[0].startswith("_")]
    return sorted(int(line) for part in files for line in part.read_text().split())


def test_each_run_begins_where_the_last_one_ended(tmp_path: Path) -> None:
    path = tmp_path / "lake"
    for end in (3, 3, 7):
        load(path, end)
        assert visible(path) == list(range(end))
    assert sorted(os.listdir(path)) == ["_kafkalite", "run=000001", "run=000002"]
    assert json.loads((path / "run=000002" / "_run.json").read_text())["offsets"] == {"orders": {"0": 7}}


def test_a_load_that_ends_at_any_call_to_the_disk_leaves_no_half_and_no_second_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = 0
    for number in range(1, 1000):
        path = tmp_path / f"lake-{number}"
        load(path, 3)
        left = iter(range(number - 1, -2, -1))

        def dies(real: Any, left: Any = left) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                if next(left, -1) == 0:
                    raise Killed
                return real(*arguments, **named)

            return call

        with monkeypatch.context() as patch:
            for name in ("makedirs", "rename", "fsync", "open", "listdir", "scandir"):
                patch.setattr(load_output.os, name, dies(getattr(os, name)))
            patch.setattr(load_output.shutil, "rmtree", lambda *_, **__: None)  # a killed load cleans nothing up
            try:
                load(path, 7)
            except Killed:
                ends += 1
            else:
                break
        seen = visible(path)
        assert seen in (list(range(3)), list(range(7)))
        load(path, 9)
        assert visible(path) == list(range(9))
        assert os.listdir(path / "_kafkalite") == ["lock"], "nothing of the killed load is left"
    assert ends > 10


def test_two_loads_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lake"
    with open_output(str(path)) as first:
        with pytest.raises(ConfigError, match="another load is writing to"), open_output(str(path)):
            pass
        monkeypatch.setattr(load_output.fcntl, "flock", lambda *_: None)  # a file system without locks
        monkeypatch.setattr(load_output, "_remove_staging", lambda _: None)
        with open_output(str(path)) as second:
            second.publish({KEY: 5}, headers=False)
        with pytest.raises(ConfigError, match=r"run=000001 cannot be made.*does another load write there"):
            first.publish({KEY: 5}, headers=False)


def test_a_directory_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(ConfigError, match=r"has 'part-0\.parquet' in it"), open_output(str(tmp_path)):
        pass
    with pytest.raises(ConfigError, match="must be a directory in the file system"), open_output("s3a://lake"):
        pass
    assert os.listdir(tmp_path) == ["part-0.parquet"]


@pytest.mark.parametrize("text", ["", "{}", '{"version": 1, "headers": false, "offsets": 3}', None])
def test_a_run_without_its_offsets_is_an_error(tmp_path: Path, text: str | None) -> None:
    load(tmp_path, 3)
    state = tmp_path / "run=000001" / "_run.json"
    state.unlink()
    if text is not None:
        state.write_text(text)
    with pytest.raises(ConfigError, match=r"_run\.json does not tell where the last run ended"):
        load(tmp_path, 5)


def test_offsets_of_partitions_that_are_not_read_again_stay(tmp_path: Path) -> None:
    for key in (("bills", 1), KEY):
        with open_output(str(tmp_path)) as output:
            output.publish({key: 5}, headers=False)
    with open_output(str(tmp_path)) as output:
        assert output.last.offsets == {("bills", 1): 5, KEY: 5}
