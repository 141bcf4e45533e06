"""`kafkalite log dump` against kafka-dump-log 3.9.1, word for word: what Kafka left, and logs drawn from seeds."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalite.cli.log_command import add_dump_options, dump_options_of
from kafkalite.inspection.dump.dump import dump
from kafkalite.inspection.files.printer import Printer
from kafkalite.record.batch import NewRecord, build_batch
from kafkalite.record.compression import NONE, ZSTD
from tests.support import places
from tests.support.inspection.dump_oracle import FORMS, Said, files_for, kafka_dump_log
from tests.support.inspection.random_logs import draw_log, harm

GOLDEN = places.GOLDEN / "inspection"
DIRECTORIES = sorted(path.name for path in GOLDEN.iterdir() if path.is_dir())
STORED = sorted(path.name.removesuffix(".out") for path in GOLDEN.glob("*.out"))


def our_dump(
    data_dir: Path, options: Sequence[str], files: Sequence[str], capsys: pytest.CaptureFixture[str], **how: bool
) -> Said:
    """The output of our dump of the same files with the same options."""
    before = Path.cwd()
    os.chdir(data_dir)
    try:
        out = io.BytesIO()
        parser = argparse.ArgumentParser()
        add_dump_options(parser)
        code = dump(files, dump_options_of(parser.parse_args(options)), Printer(out, **how))
    finally:
        os.chdir(before)
    complained = capsys.readouterr().err.replace(f"{data_dir.resolve()}/", "")
    return Said(out.getvalue().decode(), complained, code)


def by_file(printed: str) -> dict[str, str]:
    return {part.partition("\n")[0]: part for part in printed.split("Dumping ")}


@pytest.mark.parametrize("stored", STORED)
def test_the_same_words_as_kafka_s_tool(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, _, form = stored.rpartition(".")
    data_dir = GOLDEN / name
    ours = our_dump(data_dir, FORMS[form], files_for(data_dir, form), capsys)
    theirs = (GOLDEN / f"{stored}.out").read_bytes().decode()
    for file, words in by_file(theirs).items():
        assert by_file(ours.printed).get(file) == words
    assert ours.printed == theirs
    assert sorted(ours.complained.splitlines()) == sorted((GOLDEN / f"{stored}.err").read_text().splitlines())
    assert ours.code == 0  # all of them are healthy, whatever the tool says


@pytest.mark.timeout(600)
def test_random_logs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare_random_logs(tmp_path, range(30), capsys)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_random_logs_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compare_random_logs(tmp_path, range(1000, 1600), capsys)


def compare_random_logs(root: Path, seeds: range, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in seeds:
        log = draw_log(seed)
        if seed % 3 == 0:
            harm(log)
        log.write(root / f"random-{seed}")
    for form in ("plain", "data", "bare", "verify", "short"):
        files = files_for(root, form)
        theirs = kafka_dump_log(root, FORMS[form], files)
        assert "Exception" not in theirs.complained, theirs.complained
        ours = our_dump(root, FORMS[form], files, capsys)
        words = by_file(ours.printed)
        for file, said in by_file(theirs.printed).items():
            assert words.get(file) == said, f"{form} {file}"
        assert sorted(ours.complained.splitlines()) == sorted(theirs.complained.splitlines()), form


@pytest.mark.timeout(600)
def test_an_index_that_kafka_would_not_use_is_refused_in_its_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(30):
        draw_log(seed).write(tmp_path / f"random-{seed}")
    files = files_for(tmp_path, "sanity")
    passed = [file for file in files if our_dump(tmp_path, FORMS["sanity"], [file], capsys).code == 0]
    refused = sorted(set(files) - set(passed))
    assert passed and refused, "the seeds draw both"
    ours = our_dump(tmp_path, FORMS["sanity"], passed, capsys)
    theirs = kafka_dump_log(tmp_path, FORMS["sanity"], passed)
    assert ours.printed == theirs.printed and not theirs.complained
    for file in refused[:2]:  # Kafka's tool ends at the first
        complaint = our_dump(tmp_path, FORMS["sanity"], [file], capsys).complained.strip()
        assert complaint in kafka_dump_log(tmp_path, FORMS["sanity"], [file]).complained


@pytest.mark.parametrize("options", [[], ["--deep-iteration"], ["--print-data-log"]])
@pytest.mark.parametrize("as_json", [False, True])
def test_several_processes_say_what_one_says(
    options: list[str],
    as_json: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in (4, 5):
        log = draw_log(seed, batches=200)
        harm(log)
        log.write(tmp_path / f"random-{seed}")
    files = files_for(tmp_path, "data")
    alone = our_dump(tmp_path, options, files, capsys, as_json=as_json)
    monkeypatch.setattr("kafkalite.inspection.dump.dump._PARALLEL_BYTES", 1)
    monkeypatch.setattr("kafkalite.inspection.dump.dump._STRETCH_BYTES", 1000)
    monkeypatch.setattr("kafkalite.inspection.files.log_file.WINDOW_BYTES", 700)
    together = our_dump(tmp_path, options, files, capsys, as_json=as_json)
    assert together == alone
    assert len(alone.printed) > 10_000


@pytest.mark.parametrize("options", [["--deep-iteration"], ["--print-data-log"]])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_batch_of_very_many_records_is_shown_a_block_at_a_time(
    options: list[str],
    as_json: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in (4, 5):
        log = draw_log(seed, batches=40)
        harm(log)
        log.write(tmp_path / f"random-{seed}")
    records = [NewRecord(b"k%d" % i, b"v" * (i % 50), (("h", b"%d" % i),) * (i % 3), 1000 + i) for i in range(5000)]
    (tmp_path / "wide-0").mkdir()
    for base, codec in ((0, NONE), (5000, ZSTD)):
        batch = build_batch(records, codec=codec, base_offset=base)
        (tmp_path / "wide-0" / f"{base:020d}.log").write_bytes(batch)
    files = files_for(tmp_path, "data")
    at_once = our_dump(tmp_path, options, files, capsys, as_json=as_json)
    monkeypatch.setattr("kafkalite.inspection.files.log_file.BLOCK_RECORDS", 7)
    sizes = []
    lines = Printer.lines

    def noted(printer: Printer, texts: list[str]) -> None:
        sizes.append(len(texts))
        lines(printer, texts)

    monkeypatch.setattr(Printer, "lines", noted)
    assert our_dump(tmp_path, options, files, capsys, as_json=as_json) == at_once
    assert max(sizes) == 7
    assert len(at_once.printed.splitlines()) > 10_000


def test_what_is_no_file_is_said_and_the_rest_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = tmp_path / "t-0"
    shutil.copytree(GOLDEN / "kafkalite" / "rolled-0", partition)
    (partition / f"{1:020d}.log").symlink_to(tmp_path / "nowhere")
    os.mkfifo(partition / f"{2:020d}.log")
    os.mkfifo(partition / f"{2:020d}.index")
    said = our_dump(tmp_path, [], ["t-0"], capsys)
    sound = our_dump(GOLDEN / "kafkalite", [], ["rolled-0"], capsys)
    for file, words in by_file(sound.printed).items():
        assert by_file(said.printed)[file.replace("rolled-0", "t-0")] == words.replace("rolled-0", "t-0")
    assert said.code == 1
    complaints = said.complained.splitlines()
    assert len(complaints) == 3
    assert f"t-0/{1:020d}.log: [Errno 2] No such file or directory" in complaints[0]
    assert all("it is a FIFO, not a file" in complaint for complaint in complaints[1:])
    alone = our_dump(tmp_path, [], [f"t-0/{1:020d}.log"], capsys)
    assert alone.code == 1 and "No such file" in alone.complained


@pytest.mark.parametrize("name", DIRECTORIES)
def test_json_says_the_same_one_object_a_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    data_dir = GOLDEN / name
    files = files_for(data_dir, "plain")
    said = our_dump(data_dir, ["--print-data-log"], files, capsys, as_json=True)
    objects = [json.loads(line) for line in said.printed.splitlines()]
    text = our_dump(data_dir, ["--print-data-log"], files, capsys).printed
    kinds = [one["type"] for one in objects]
    assert kinds.count("file") == len(files)
    assert kinds.count("batch") == text.count(" isvalid: true") + text.count(" isvalid: false")
    assert kinds.count("record") == text.count("\n| offset: ")
    assert all(one["isvalid"] for one in objects if one["type"] == "batch")


def test_a_file_whose_name_is_no_offset_is_complained_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "orders.index").write_bytes(bytes(8))
    said = our_dump(tmp_path, [], ["orders.index"], capsys)
    assert said.code == 1 and said.complained == "orders.index: its name does not begin with an offset\n"


def dumped(tmp_path: Path, capsys: pytest.CaptureFixture[str], log: bytes, index: bytes, times: bytes) -> Said:
    for suffix, data in (("log", log), ("index", index), ("timeindex", times)):
        (tmp_path / f"{0:020d}.{suffix}").write_bytes(data)
    return our_dump(tmp_path, ["--deep-iteration"], ["."], capsys)


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=2, max_size=6), st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_healthy_log_with_gaps_ends_with_0_and_a_harmed_one_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gaps: list[list[int]], data: st.DataObject
) -> None:
    """As compaction, followers and old brokers leave it: offsets are missing, an index entry stands for several batches
    that came at once, one of a time index for a record within its batch."""
    log, base = b"", 0
    places: list[tuple[int, int, int]] = []  # position, first and last offset
    for number, batch in enumerate(gaps):
        deltas = [sum(batch[:at]) + at for at in range(len(batch))]
        records = [NewRecord(b"k", b"v", (), 1_000 * number + at) for at in range(len(batch))]
        places.append((len(log), base, base + deltas[-1]))
        log += build_batch(records, base_offset=base, offset_deltas=deltas)
        base += deltas[-1] + 1 + batch[0]
    first, second = sorted(data.draw(st.lists(st.integers(1, len(places) - 1), min_size=2, max_size=2)))
    entry = struct.pack(">ii", places[second][2], places[first][0])
    latest = 1_000 * first + len(gaps[first]) - 1
    times = struct.pack(">qi", latest, places[first][data.draw(st.integers(1, 2))])
    assert dumped(tmp_path, capsys, log, entry, times).code == 0
    lost = struct.pack(">ii", places[first][1] - 1, places[first][0])
    assert dumped(tmp_path, capsys, log, lost, times).code == 1
    assert dumped(tmp_path, capsys, log, entry, struct.pack(">qi", latest, base + 7)).code == 1
    assert dumped(tmp_path, capsys, log, entry, struct.pack(">qi", latest + 1, places[first][2])).code == 1
