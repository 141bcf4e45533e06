"""Apache Kafka's kafka-dump-log as the judge of a data directory that kafkalite left.

Every segment, index, time index, producer snapshot and transaction index is read: records one by one with their data,
index entries against the segment, `--index-sanity-check` (what Kafka asks before it trusts an index at start), and the
records of `__consumer_offsets` and `__transaction_state` with their decoders. The tool tells of most damage on stderr
with exit code 0, so its silence there is part of the verdict.
Source: kafka.tools.DumpLogSegments of Kafka 3.9.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.compatibility.interop.java_tools import java_command, tool_class

VERSION = "3.9.1"
SUFFIXES = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
FILES_MAX = 400  # of one call: the list is one argument, which the system limits to 128 KiB
CALL_SECONDS = 180.0

FAULTS = re.compile(
    r"mismatch|corrupt|isvalid: false|exception|not found|out of order|ignoring|could not", re.IGNORECASE
)
HOLES = re.compile(r"Non-consecutive offsets in |\s+\d+ is followed by \d+$")  # as compaction leaves them
BATCH = re.compile(r"baseOffset: \d+ lastOffset: ")


@dataclass(slots=True)
class Verdict:
    """The files that were read, and their faults."""

    file_count: int = 0
    batch_count: int = 0
    record_count: int = 0
    group_record_count: int = 0
    """Records of `__consumer_offsets` that their decoder understood."""
    transaction_record_count: int = 0
    """Records of `__transaction_state` that their decoder understood."""
    faults: list[str] = field(default_factory=list)


def files_of(data_dir: Path) -> list[Path]:
    """The files that the tool reads, by partition; without journal, checkpoints and logs that are being deleted."""
    return sorted(
        path for path in data_dir.glob("*-*/*") if path.suffix in SUFFIXES and not path.parent.name.endswith("-delete")
    )


def judge(data_dir: Path, *, compacted: bool = False) -> Verdict:
    """Read everything below a data directory whose broker is stopped. Skips where Kafka's jars cannot be had.

    `compacted`: that offsets are missing is no fault.
    """
    verdict = Verdict()
    files = files_of(data_dir)
    indexes = [path for path in files if path.suffix in (".index", ".timeindex")]
    verdict.file_count = len(files)
    for part in _parts(files):
        _read(["--deep-iteration", "--print-data-log"], part, verdict)
    for part in _parts(indexes):
        _read(["--index-sanity-check"], part, verdict)
    verdict.group_record_count = _decoded("__consumer_offsets-", "--offsets-decoder", files, verdict)
    verdict.transaction_record_count = _decoded("__transaction_state-", "--transaction-log-decoder", files, verdict)
    if compacted:
        verdict.faults = [fault for fault in verdict.faults if not HOLES.match(fault)]
    return verdict


def _decoded(topic: str, decoder: str, files: Sequence[Path], verdict: Verdict) -> int:
    """The number of records of an internal topic; their faults go into the verdict."""
    alone = Verdict()
    for part in _parts([path for path in files if path.suffix == ".log" and path.parent.name.startswith(topic)]):
        _read([decoder, "--skip-record-metadata"], part, alone)
    verdict.faults += alone.faults
    return alone.record_count


def weigh(printed: Iterable[str], complained: Iterable[str], verdict: Verdict) -> None:
    """Add what the tool printed on stdout and stderr; every line of stderr is a fault. Data may spell anything, so a
    record's line is counted and not searched for words."""
    for line in printed:
        if line.startswith("| "):
            verdict.record_count += 1
        elif BATCH.match(line):
            verdict.batch_count += 1
            if "isvalid: true" not in line:
                verdict.faults.append(line)
        elif FAULTS.search(line):
            verdict.faults.append(line)
    verdict.faults += [line for line in complained if line.strip()]


def _parts(files: Sequence[Path]) -> list[Sequence[Path]]:
    return [files[at : at + FILES_MAX] for at in range(0, len(files), FILES_MAX)]


def _read(options: list[str], files: Sequence[Path], verdict: Verdict) -> None:
    command = [*java_command(VERSION), tool_class(VERSION, "DumpLogSegments"), *options]
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as complained:
        done = subprocess.run(
            [*command, "--files", ",".join(map(str, files))],
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=complained,
            timeout=CALL_SECONDS,
            check=False,
        )
        for stream in (printed, complained):
            stream.seek(0)
        if done.returncode != 0:
            verdict.faults.append(f"kafka-dump-log ended with code {done.returncode}")
        weigh(printed, complained, verdict)
