"""`kafkalite read` as an operator meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafkalite.cli.main import main
from kafkalite.record.batch import NewRecord
from tests.support.places import ROOT
from tests.support.segment_writer import Topics
from tests.support.wait import DEADLINE_S

pa = pytest.importorskip("pyarrow", reason="needs the extra 'arrow'")

T0 = 1_700_000_000_123


@pytest.fixture
def data(tmp_path: Path) -> Topics:
    topics = Topics(tmp_path / "data")
    rows = [NewRecord(b"k%d" % n, b"value %d" % n, (), T0 + n) for n in range(10)]
    topics.write(rows[:5], rows[5:])
    return topics


def run(data: Topics, *arguments: object) -> int:
    return main(["read", "orders", "--data-dir", str(data.path), *map(str, arguments)])


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("out.parquet", lambda path: pytest.importorskip("pyarrow.parquet").read_table(path)),
        ("out.arrow", lambda path: pa.ipc.open_file(pa.memory_map(str(path))).read_all()),
        ("out.arrows", lambda path: pa.ipc.open_stream(pa.memory_map(str(path))).read_all()),
        ("out.csv", lambda path: pytest.importorskip("pyarrow.csv").read_csv(path)),
        ("out.ndjson", lambda path: pa.Table.from_pylist([json.loads(line) for line in path.open()])),
    ],
)
def test_the_name_of_the_output_tells_the_format(data: Topics, tmp_path: Path, name: str, read: Any) -> None:
    path = tmp_path / name
    path.write_text("what was there before")
    assert run(data, "--output", path) == 0
    assert read(path)["offset"].to_pylist() == list(range(10))
    assert set(os.listdir(tmp_path)) == {"data", name}


def test_stdout_has_json_lines_or_what_is_asked_for(data: Topics, capfdbinary: Any) -> None:
    options = ("--columns", "offset,value", "--starting-offsets", '{"orders": {"0": 8}}')
    assert run(data, *options) == 0
    assert capfdbinary.readouterr().out == b'{"offset":8,"value":"value 8"}\n{"offset":9,"value":"value 9"}\n'
    assert run(data, *options, "--format", "parquet") == 0
    table = pytest.importorskip("pyarrow.parquet").read_table(pa.BufferReader(capfdbinary.readouterr().out))
    assert table["offset"].to_pylist() == [8, 9]


@pytest.mark.parametrize("format_name", ["jsonl", "csv"])
def test_nothing_in_a_record_steers_a_terminal(data: Topics, format_name: str) -> None:
    nasty = "\x1b[2J\x9b\u202ea"
    data.write([NewRecord(b"k", f"{nasty}\n".encode(), (), T0)])
    command = [sys.executable, "-m", "kafkalite", "read", "orders", "--data-dir", str(data.path), "-f", format_name]
    piped = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, cwd=ROOT, check=True).stdout.decode()
    assert (nasty in piped) == (format_name == "csv")
    ours, theirs = os.openpty()
    try:
        subprocess.run(command, stdout=theirs, timeout=DEADLINE_S, cwd=ROOT, check=True)
        shown = os.read(ours, 65_536).decode().replace("\r\n", "\n")
    finally:
        os.close(ours)
        os.close(theirs)
    assert not any(char in shown for char in "\x1b\x9b\u202e") and shown.count("\n") == piped.count("\n")
    if format_name == "jsonl":
        assert json.loads(shown.splitlines()[-1])["value"] == f"{nasty}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--output", "out.txt"], "names no format; give --format, or end it in one of .parquet"),
        (["--output", "no/such/out.csv"], "no/such/.out.csv.partial"),
        (["--starting-offsets", "first"], "'--starting-offsets' is 'first'"),
        (["--columns", "keys"], "--columns names 'keys'"),
        (["--partitions", "a"], "--partitions is 'a'; write it as 0,1,2"),
        (["--partitions", "7"], "topic 'orders' has no partition 7"),
        (
            ["--starting-timestamp", "yesterday"],
            "--starting-timestamp yesterday: must be milliseconds since 1970, or a time",
        ),
        (["--topic-pattern", "x"], "name the topics to read, or give --topic-pattern, not both"),
        (["--data-dir", "/no/such"], "/no/such"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(
    data: Topics, arguments: list[str], complaint: str, capsys: Any, monkeypatch: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(data, *arguments) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("kafkalite: ") and err.count("\n") == 1
    assert complaint in err


def test_an_output_that_fails_midway_leaves_the_old_file_and_nothing_else(
    data: Topics, tmp_path: Path, capsys: Any
) -> None:
    segment = data.segment()
    damaged = bytearray(segment.read_bytes())
    damaged[80] ^= 1
    segment.write_bytes(damaged)
    path = tmp_path / "out.csv"
    path.write_text("before")
    assert run(data, "--output", path) == 1
    assert str(segment) in capsys.readouterr().err
    assert path.read_text() == "before"
    assert set(os.listdir(tmp_path)) == {"data", "out.csv"}


def test_a_read_that_is_killed_leaves_no_file_under_the_final_name(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    script = (
        "import os, sys; from kafkalite.cli.read_command import _output\n"
        "with _output(sys.argv[1]) as stream: stream.write(b'half'); stream.flush(); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, timeout=DEADLINE_S, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [name.startswith(".out.jsonl.partial-") for name in os.listdir(tmp_path)] == [True]


def test_a_reader_of_stdout_that_leaves_is_no_error(data: Topics) -> None:
    command = f"{sys.executable} -m kafkalite read orders --data-dir {data.path} | head -n 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE_S, check=True)
    assert json.loads(done.stdout)["offset"] == 0 and done.stderr == ""
