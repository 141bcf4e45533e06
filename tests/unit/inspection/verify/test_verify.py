"""`kafkalite log verify` beyond the table of damages: where it may be pointed, what it says, what it leaves alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalite import Broker
from kafkalite.cli.log_command import CANNOT
from kafkalite.client.blocking_client import BlockingClient
from kafkalite.common.errors import ConfigError
from kafkalite.inspection.files.directory_listing import list_partition
from kafkalite.inspection.files.findings import Severity
from kafkalite.inspection.files.printer import Progress
from kafkalite.inspection.verify.index_check import check_indexes
from kafkalite.inspection.verify.log_history import History
from kafkalite.inspection.verify.partition_check import check_partition
from kafkalite.inspection.verify.segment_scan import Segment, scan_segment
from kafkalite.inspection.verify.verify import verify
from kafkalite.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkalite.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from kafkalite.record.batch import NewRecord, build_batch, compute_crc
from tests.support import places
from tests.support.inspection.damages import batches, flip, logs
from tests.support.places import ROOT
from tests.support.wait import DEADLINE_S

GOLDEN = places.GOLDEN / "inspection"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    shutil.copytree(GOLDEN / "kafkalite", tmp_path / "data")
    return tmp_path / "data"


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, "-m", "kafkalite", "log", *map(str, arguments)]
    return subprocess.run(run, capture_output=True, text=True, timeout=DEADLINE_S, cwd=ROOT)


def test_one_partition_may_be_looked_at_alone(data_dir: Path) -> None:
    flip(1, 3, -4)(data_dir / "rolled-0")
    assert not verify(str(data_dir / "rolled-1")).findings
    verdict = verify(str(data_dir / "rolled-0"))
    assert [finding.severity for finding in verdict.findings] == [Severity.STAYS]
    (data_dir / ".kafka_cleanshutdown").unlink()
    assert verify(str(data_dir / "rolled-0")).findings[0].severity is Severity.STAYS, "below the recovery point"
    (data_dir / "recovery-point-offset-checkpoint").unlink()
    verdict = verify(str(data_dir / "rolled-0"))
    assert verdict.findings[0].severity is Severity.LOSES
    assert verdict.lost_bytes == 1927 - batches(logs(data_dir / "rolled-0")[1])[3][0] + 572


def test_a_partition_somewhere_else_has_no_checkpoints(data_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(data_dir / "rolled-0", tmp_path / "rolled-0")
    assert not verify(str(tmp_path / "rolled-0")).findings


def test_beside_a_running_broker_it_says_so_and_disturbs_nothing(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, port=0):
        done = command("verify", tmp_path)
        assert "a broker is running here" in done.stderr
    assert not verify(str(tmp_path)).is_running


def test_after_every_stop_of_a_broker_there_is_nothing_wrong(tmp_path: Path) -> None:
    for number in range(3):
        with Broker(data_dir=tmp_path, port=0) as broker, BlockingClient(broker.bootstrap_servers, 10) as client:
            topics = [CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
            client.ask(CreateTopicsRequest(topics=topics, timeout_ms=9000), 5)
            records = memoryview(build_batch([NewRecord(b"k", b"v", (), 1_700_000_000_000 + number)]))
            data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])]
            answer = client.ask(ProduceRequest(acks=-1, timeout_ms=9000, topic_data=data), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert not verify(str(tmp_path)).findings
    assert (tmp_path / "t-0" / f"{0:020d}.timeindex").stat().st_size == 3 * 12, "each stop added an entry"


def test_names_with_more_digits_than_an_offset_are_no_segments(data_dir: Path) -> None:
    segment = data_dir / "rolled-0" / f"{0:020d}.log"
    segment.with_name("9" * 20 + ".log").write_bytes(segment.read_bytes())
    (finding,) = verify(str(data_dir)).findings
    assert finding.severity is Severity.HARMLESS and "no file of a log has such a name" in finding.what


def test_what_a_stop_left_to_be_deleted_is_reported_as_harmless(data_dir: Path) -> None:
    segment = data_dir / "rolled-0" / f"{0:020d}.log"
    segment.with_name(f"{0:020d}.log.deleted").write_bytes(b"old")
    (data_dir / f"gone-0.{'0' * 32}-delete").mkdir()
    done = command("verify", data_dir)
    assert (done.returncode, done.stdout.count("on its way out")) == (0, 2)
    assert "2 findings, harmless" in done.stdout


@pytest.mark.parametrize("name", ["meta.properties", "recovery-point-offset-checkpoint", ".kafka_cleanshutdown",
                                  "rolled-0/leader-epoch-checkpoint", f"rolled-0/{99:020d}.log"])  # fmt: skip
def test_a_fifo_in_the_place_of_a_file_is_reported_and_not_waited_for(data_dir: Path, name: str) -> None:
    (data_dir / name).unlink(missing_ok=True)
    os.mkfifo(data_dir / name)
    done = command("verify", "--json", data_dir)
    findings = [json.loads(line) for line in done.stdout.splitlines()]
    (finding,) = [one for one in findings if one["path"] == str(data_dir / name) and "FIFO" in one.get("what", "")]
    assert (done.returncode, finding["gravity"]) == (1, "refuses")
    assert finding["what"] == "it is a FIFO, not a file"


def test_other_things_than_files_are_reported_by_their_kind(data_dir: Path) -> None:
    def found_faults() -> dict[str, tuple[str, Severity]]:
        found = verify(str(data_dir)).findings
        return {str(Path(one.path).relative_to(data_dir)): (one.what, one.severity) for one in found}

    (data_dir / "cleaner-offset-checkpoint").symlink_to(data_dir / "nowhere")
    (data_dir / "rolled-0" / "notes").mkdir()
    (data_dir / "rolled-1" / f"{7:020d}.index").symlink_to("nowhere")
    os.mkfifo(data_dir / "rolled-1" / "pipe")
    assert found_faults() == {
        "cleaner-offset-checkpoint": ("a link that leads nowhere", Severity.HARMLESS),
        "rolled-0/notes": ("it is a directory, and no file of a log", Severity.HARMLESS),
        f"rolled-1/{7:020d}.index": ("a link that leads nowhere", Severity.HARMLESS),
        "rolled-1/pipe": ("it is a FIFO, and no file of a log", Severity.HARMLESS),
    }


def test_exit_codes_and_json(data_dir: Path, tmp_path: Path) -> None:
    sound = command("verify", data_dir)
    assert (sound.returncode, sound.stderr) == (0, "")
    assert sound.stdout.endswith("the last stop was orderly: nothing wrong\n")
    flip(1, 3, -4)(data_dir / "rolled-0")
    harmed = command("verify", "--json", data_dir)
    finding, summary = map(json.loads, harmed.stdout.splitlines())
    assert harmed.returncode == 1
    assert (finding["type"], finding["gravity"], summary["findings"]) == ("finding", "stays", 1)
    for nothing in (tmp_path / "nothing", tmp_path):
        refused = command("verify", nothing)
        assert refused.returncode == CANNOT and refused.stderr.startswith("kafkalite: ")


def test_a_directory_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd-1").mkdir()
    with pytest.raises(ConfigError, match="no data directory"):
        verify(str(tmp_path))


def test_deep_finds_records_that_a_right_checksum_hides(data_dir: Path) -> None:
    path = logs(data_dir / "codecs-0")[0]
    data = bytearray(path.read_bytes())
    start, end = batches(path)[1]
    data[start + 61] ^= 0x02  # the length of the first record
    data[start + 17 : start + 21] = compute_crc(data[start:end]).to_bytes(4, "big")
    path.write_bytes(data)
    assert not verify(str(data_dir)).findings
    (finding,) = verify(str(data_dir), deep=True).findings
    assert "the checksum is right, but" in finding.what


def test_a_log_larger_than_a_window_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafkalite.inspection.files.log_file.WINDOW_BYTES", 1000)
    directory = tmp_path / "wide-0"
    directory.mkdir()
    data = bytearray()
    for number in range(50):
        data += build_batch([NewRecord(b"k", b"v" * (number * 97 % 3000))], base_offset=number)
    data[-1] ^= 1
    path = directory / f"{0:020d}.log"
    path.write_bytes(data)
    report = check_partition(list_partition(str(directory)), lambda _: None)
    assert report.end_offset == 50
    assert [fault.what for fault in report.faults if fault.path.endswith(".log")] == [
        "the checksum of the batch is wrong"
    ]


def test_room_for_entries_to_come_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(build_batch([NewRecord(b"k", b"v", (), 5)]))
    for suffix in (".index", ".timeindex"):
        with path.with_suffix(suffix).open("wb") as file:
            file.truncate(10_485_756)
    scan = scan_segment(Segment(str(path), 0, -1), History([], lambda *_: None), lambda _: None)
    names = {one.name: one.stat().st_size for one in tmp_path.iterdir()}
    assert not [fault for fault in check_indexes(scan, is_last=True, names=names) if "multiple" not in fault.what]


def test_progress_is_drawn_on_a_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    for shown in (True, False):
        progress = Progress(1000, shown=shown)
        progress._next = 0
        progress.advance(300)
        progress.clear()
        said = capsys.readouterr().err
        assert ("30%  300 B of 1,000 B" in said) is shown
