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


class JavaMember:
    """A process that runs."""

    def __init__(self, running: Running) -> None:
        self.running = running

    def told(self) -> list[dict[str, Any]]:
        lines = [line for line in self.running.said().splitlines() if line.startswith("{") and line.endswith("}")]
        return [json.loads(line) for line in lines]

    def values(self) -> list[int]:
        """Of the records that it committed so far: what it could not commit is read by the next owner."""
        committed: list[int] = []
        read: list[int] = []
        for fact in self.told():
            if fact["name"] == "record_data":
                read.append(int(fact["value"]))
            elif fact["name"] == "offsets_committed":
                committed += read if fact["success"] else []
                read = []
        return committed

    def owns(self) -> set[tuple[str, int]]:
        """The partitions that it was given and that were not taken from it."""
        owned: set[tuple[str, int]] = set()
        for fact in self.told():
            partitions = {(one["topic"], one["partition"]) for one in fact.get("partitions", [])}
            if fact["name"] == "partitions_assigned":
                owned |= partitions
            elif fact["name"] == "partitions_revoked":
                owned -= partitions
        return owned

    def is_well(self) -> bool:
        return self.running.process.poll() in (None, 0, STOPPED)

    def last_words(self) -> str:
        return self.running.said()[-4000:]

    def leave(self) -> None:
        self.running.stop()


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
        member.running.kill()
