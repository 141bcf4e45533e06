"""Kafka's VerifiableConsumer as a member of a group: it tells what it has read, and whether it could commit it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.compatibility.interop.java_tools import JavaTools, Running

SESSION_MS = 6000
STOPPED = 143  # a JVM after SIGTERM

Place = tuple[int, int]
"""Of a record in the topic: partition and offset."""


class JavaMember:
    """A process that runs, on one topic. A commit covers what was read before it, since the partition was assigned. A
    member that keeps a partition after a failed commit continues behind it, and its next commit covers both."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self._output = running.output.open()
        self._line = ""  # the last one, which is being written
        self._owned: set[tuple[str, int]] = set()
        self._held: dict[int, dict[int, int]] = {}  # by partition: offsets and values, not committed yet
        self._committed: list[tuple[Place, int]] = []
        self._unsure: set[Place] = set()

    def values(self) -> list[int]:
        """Of the records that it committed so far."""
        self._read()
        return [value for _, value in self._committed]

    @property
    def committed(self) -> list[Place]:
        """The records whose commit was acknowledged, in this order."""
        self._read()
        return [place for place, _ in self._committed]

    @property
    def unsure(self) -> set[Place]:
        """Records whose commit failed once; it may be in the log all the same."""
        self._read()
        return self._unsure

    def owns(self) -> set[tuple[str, int]]:
        """The partitions that it was given and that were not taken from it."""
        self._read()
        return self._owned

    def check(self) -> None:
        """Raises AssertionError if it has ended early."""
        assert self.is_well(), self.last_words()

    def _read(self) -> None:
        """Its lines since the last time."""
        if self._output.closed:
            return
        for part in self._output:
            self._line += part
            if self._line.endswith("\n"):
                line, self._line = self._line.strip(), ""
                if line.startswith("{") and line.endswith("}"):
                    self._note(json.loads(line))

    def _note(self, fact: dict[str, Any]) -> None:
        match fact["name"]:
            case "partitions_assigned" | "partitions_revoked":
                partitions = {(one["topic"], one["partition"]) for one in fact["partitions"]}
                if fact["name"] == "partitions_assigned":
                    self._owned |= partitions
                else:
                    self._owned -= partitions
                for _, partition in partitions:
                    self._held.pop(partition, None)
            case "record_data":
                self._held.setdefault(fact["partition"], {})[fact["offset"]] = int(fact["value"])
            case "offsets_committed":
                for one in fact["offsets"]:
                    self._note_commit(one["partition"], one["offset"], is_done=fact["success"])

    def _note_commit(self, partition: int, end: int, *, is_done: bool) -> None:
        held = self._held.get(partition, {})
        covered = [((partition, offset), value) for offset, value in held.items() if offset < end]
        if not is_done:
            self._unsure.update(place for place, _ in covered)
            return
        self._committed += covered
        self._held[partition] = {offset: value for offset, value in held.items() if offset >= end}

    def is_well(self) -> bool:
        return self.running.process.poll() in (None, 0, STOPPED)

    def last_words(self) -> str:
        return self.running.said()[-4000:]

    def leave(self) -> None:
        self.running.stop()

    def close(self) -> None:
        """Its process ends at once if it runs."""
        self.running.kill()
        self._read()
        self._output.close()


@contextlib.contextmanager
def java_member(
    tools: JavaTools, output: Path, topic: str, group: str, protocol: str, *more: Any
) -> Iterator[JavaMember]:
    """One that runs; it has left at the end of the block, and may have left before."""
    timeout = ["--session-timeout", SESSION_MS] if protocol == "classic" else []
    words = ["--topic", topic, "--group-id", group, "--group-protocol", protocol, "--reset-policy", "earliest"]
    member = JavaMember(tools.start("VerifiableConsumer", *words, "--verbose", *timeout, *more, output=output))
    try:
        yield member
        if member.running.process.poll() is None:
            member.leave()
    finally:
        member.close()
