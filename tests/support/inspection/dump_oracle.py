"""Apache Kafka's kafka-dump-log 3.9.1, called for its very words: what it prints and what it complains of.

It runs in the data directory and is given relative paths, so that its words do not tell where that directory was; the
absolute paths of its complaints are made relative.
Source: kafka.tools.DumpLogSegments of Kafka 3.9.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.reference.jars import jar_directory
from tests.compatibility.interop.java_tools import java_command, tool_class

VERSION = "3.9.1"
CALL_SECONDS = 300.0

FORMS: dict[str, list[str]] = {
    "plain": [],
    "deep": ["--deep-iteration"],
    "data": ["--print-data-log"],
    "bare": ["--print-data-log", "--skip-record-metadata"],
    "short": ["--max-bytes", "700"],
    "sanity": ["--index-sanity-check"],
    "verify": ["--verify-index-only"],
    "offsets": ["--offsets-decoder"],
    "transactions": ["--transaction-log-decoder"],
}
"""How the tool is called, by the name of the file with its words."""

_SUFFIXES = {
    "plain": (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"),
    "sanity": (".index", ".timeindex"),
    "verify": (".index", ".timeindex"),
}
_TOPICS = {"offsets": "__consumer_offsets-", "transactions": "__transaction_state-"}


class Said(NamedTuple):
    """Standard output, standard error, exit code."""

    printed: str
    complained: str
    code: int


def files_for(data_dir: Path, form: str) -> list[str]:
    """The files that a form is asked about, relative to the data directory."""
    suffixes = _SUFFIXES.get(form, (".log",))
    prefix = _TOPICS.get(form, "")
    return sorted(
        str(path.relative_to(data_dir))
        for path in data_dir.glob("*-*/*")
        if path.suffix in suffixes and path.parent.name.startswith(prefix) and not path.parent.name.endswith("-delete")
    )


def kafka_dump_log(data_dir: Path, options: Sequence[str], files: Sequence[str]) -> Said:
    """The output of Kafka's tool for these files. Skips where Kafka's jars cannot be had."""
    encoding = [f"-D{name}=UTF-8" for name in ("file.encoding", "stdout.encoding", "stderr.encoding")]
    command = [*java_command(VERSION, *encoding), tool_class(VERSION, "DumpLogSegments"), *options]
    done = subprocess.run(
        [*command, "--files", ",".join(files)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=CALL_SECONDS,
        cwd=data_dir,
        check=False,
    )
    assert jar_directory(VERSION)
    here = f"{data_dir.resolve()}/"
    return Said(done.stdout.decode(), done.stderr.decode().replace(here, ""), done.returncode)
