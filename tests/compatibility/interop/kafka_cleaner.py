"""Apache Kafka's log and its cleaner without a broker, in one JVM that is asked by lines: java/KafkaCleaner.java.

Directories are one partition's ("orders-0"). The records come from a seed, and the caller sets the clock: so the same
question has the same answer, and two cleaners can be held against each other byte by byte.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.compatibility.interop.java_tools import java_command
from tests.support.wait import DEADLINE_S

VERSION = "3.9.1"
PROGRAM = Path(__file__).parent / "java" / "KafkaCleaner.java"
# small where a test is to see many
SETTINGS = {
    "retention.ms": "-1",
    "segment.bytes": "2048",
    "index.interval.bytes": "256",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
Settings = Mapping[str, str]
_NONE: Settings = {}


class KafkaCleaner:
    """Each method is a verb of the program; a refusal of Kafka's is a RuntimeError with its text."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self._process = process
        self._errors = errors

    def write(
        self, directory: Path, seed: int, now_ms: int, config: Settings = _NONE, **words: object
    ) -> dict[str, Any]:
        """Append what `seed` says to the log, which is made if there is none; its end, and where the clock is now."""
        settings = dict(config) | {"cleanup.policy": "delete"}
        return self._ask("write", settings, dir=directory, seed=seed, now=now_ms, **words)

    def plan(
        self, directory: Path, first_dirty: int, now_ms: int, config: Settings = _NONE, **words: object
    ) -> dict[str, Any]:
        """The range that the cleaner would read: start, first_dirty, first_uncleanable, cleanable bytes, producers."""
        return self._ask("plan", config, dir=directory, first_dirty=first_dirty, now=now_ms, **words)

    def clean(
        self, directory: Path, first_dirty: int, now_ms: int, config: Settings = _NONE, **words: object
    ) -> dict[str, Any]:
        """One pass. The plan, and `clean_end`."""
        return self._ask("clean", config, dir=directory, first_dirty=first_dirty, now=now_ms, **words)

    def load(self, directory: Path, *, clean: bool, recovery_point: int) -> dict[str, Any]:
        """The log after a start: start, end, segments as [base offset, size]."""
        return self._ask("load", {}, dir=directory, clean=int(clean), recovery_point=recovery_point)

    def read(self, directory: Path) -> list[dict[str, Any]]:
        """Segments, batches and records in order, as Kafka reads them; every checksum is looked at."""
        out = self._errors.with_name("read.jsonl")
        self._ask("dump", {}, dir=directory, out=out)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def _ask(self, verb: str, config: Settings, **words: object) -> dict[str, Any]:
        chosen = {"cleanup.policy": "compact", **SETTINGS, **config}
        settings: dict[str, object] = {f"config.{name}": value for name, value in chosen.items()}
        line = " ".join([verb, *(f"{name}={word}" for name, word in (settings | words).items())])
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        if not said:
            raise RuntimeError(f"the program ended: {self._errors.read_text()[-3000:]}")
        answer: dict[str, Any] = json.loads(said)
        if "error" in answer:
            raise RuntimeError(f"{line}: {answer['error']}\n{self._errors.read_text()[-3000:]}")
        return answer


@contextlib.contextmanager
def kafka_cleaner(home: Path) -> Iterator[KafkaCleaner]:
    """The test is skipped where Java or Kafka's jars cannot be had."""
    errors = home / "kafka-cleaner.err"
    with errors.open("w") as sink:
        process = subprocess.Popen(
            [*java_command(VERSION), str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=sink,
            text=True,
        )
    try:
        yield KafkaCleaner(process, errors)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
