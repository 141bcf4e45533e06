"""Programs in other languages that can produce, consume, be a group member and administer, all asked the same way.

A program is called as `PROGRAM VERB TASK`: the task is JSON, records come as JSON lines on its stdin, what happened
goes out as JSON lines on its stdout (keys and values in base64, null stays null). A group member runs until it is told
to leave by the end of its stdin. The stories that such programs are put through are in `stories.py`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from tests.support.wait import DEADLINE_S


class Seen(NamedTuple):
    """A record as every library can tell it."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


class Stranger:
    """A client library behind a program, with what it is always told."""

    def __init__(self, command: list[str], bootstrap: str, env: Mapping[str, str] | None = None, **told: Any) -> None:
        self.command = command
        self.env = env
        self.told = {"bootstrap": bootstrap} | told

    def with_settings(self, **told: Any) -> Stranger:
        """The same program, told something more."""
        other = Stranger(self.command, "", self.env)
        other.told = self.told | told
        return other

    def ask(self, verb: str, records: Iterable[Seen] = (), **task: Any) -> list[dict[str, Any]]:
        """Run to the end; the lines it wrote. A bad end fails the test with what the program said."""
        typed = "".join(json.dumps(as_json(record)) + "\n" for record in records)
        words = self._words(verb, task)
        try:
            done = subprocess.run(
                words, input=typed.encode(), capture_output=True, timeout=DEADLINE_S, env=self.env, check=False
            )
        except subprocess.TimeoutExpired as late:
            said = (late.stdout or b"") + (late.stderr or b"")
            pytest.fail(f"not done in {DEADLINE_S:g} s: {' '.join(words)}\n{said.decode()[-4000:]}")
        if done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace")
            pytest.fail(f"exit code {done.returncode}: {' '.join(words)}\n{said[-4000:]}")
        return [json.loads(line) for line in done.stdout.splitlines()]

    def produce(self, topic: str, records: Iterable[Seen], **task: Any) -> list[tuple[int, int]]:
        """Where each record went: (partition, offset)."""
        answers = self.ask("produce", records, topic=topic, **task)
        return [(answer["partition"], answer["offset"]) for answer in answers]

    def consume(self, topic: str, count: int, **task: Any) -> list[Seen]:
        """All records of a topic from its beginning, by partition and offset; `count` are awaited."""
        return sorted(map(as_seen, self.ask("consume", topic=topic, count=count, **task)), key=position)

    def administer(self, topic: str, group: str, time_ms: int) -> dict[str, Any]:
        """The result of each administrative step of the program."""
        return {fact["step"]: fact["is"] for fact in self.ask("admin", topic=topic, group=group, count=time_ms)}

    @contextlib.contextmanager
    def member(self, topic: str, group: str, **task: Any) -> Iterator[Member]:
        """A running member of a group, which has left at the end of the block."""
        member = Member(self._words("member", {"topic": topic, "group": group} | task), self.env)
        try:
            yield member
            member.leave()
        finally:
            member.kill()

    def _words(self, verb: str, task: dict[str, Any]) -> list[str]:
        return [*self.command, verb, json.dumps(self.told | task)]


class Member:
    """A group member in a process of its own. Lines that are no records are facts that it tells about itself."""

    def __init__(self, words: list[str], env: Mapping[str, str] | None) -> None:
        self.records: list[Seen] = []
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - kill() closes it
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, env=env, text=True
        )
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.records.append(as_seen(json.loads(line)))

    def is_well(self) -> bool:
        """It runs, or it ended as it should."""
        return self.process.poll() in (None, 0)

    def leave(self) -> None:
        """Leaves the group and ends; returns when all it told has been heard."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"a member did not leave within {DEADLINE_S:g} s: {self.last_words()}")
        self.listener.join(DEADLINE_S)
        assert code == 0, f"a member ended with code {code}: {self.last_words()}"

    def last_words(self) -> str:
        self.said.seek(0)
        return self.said.read().decode(errors="replace")[-4000:]

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.listener.join(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout, self.said):
            if stream is not None:
                stream.close()


def position(record: Seen) -> tuple[int, int]:
    return record.partition, record.offset


def as_seen(told: dict[str, Any]) -> Seen:
    headers = tuple((header["key"], _bytes(header["value"])) for header in told.get("headers") or ())
    key, value = _bytes(told["key"]), _bytes(told["value"])
    return Seen(told["partition"], told["offset"], told["timestamp_ms"], key, value, headers)


def as_json(record: Seen) -> dict[str, Any]:
    headers = [{"key": key, "value": _base64(value)} for key, value in record.headers]
    return record._asdict() | {"key": _base64(record.key), "value": _base64(record.value), "headers": headers}


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
