"""Programs in other languages with a transactional producer, obeyed a command at a time.

`PROGRAM transact TASK` initialises the transactional id of the task, says so, and then obeys one command a line: begin,
send (and wait for the acknowledgement), offsets, commit, abort. It answers each with a JSON line: an empty object, or
one with the `error`. `PROGRAM copy TASK` is a consumer and a transactional producer: it carries records from topic to
topic with its offsets in the transactions, does every third batch in a transaction that is aborted before it does it
in one that is committed, and tells after each how many it `copied`; it runs until its stdin has something, or ends.
The stories are in `transaction_stories.py`.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.wait import DEADLINE_S

ANSWER_SECONDS = 2 * DEADLINE_S


class Refused(Exception):
    """The error with which a program answered a command."""


class Program:
    """A running program, and the JSON lines that it says."""

    def __init__(self, words: list[str], env: Mapping[str, str] | None) -> None:
        self.said = tempfile.TemporaryFile()  # noqa: SIM115 - kill() closes it
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, env=env, text=True
        )
        self.answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):  # a library may print what it likes to stdout as well
                self.answers.put(json.loads(line))
        self.answers.put(None)

    def answer(self, what: str) -> dict[str, Any]:
        """The next line. Fails the test when there is none in time, or no more."""
        try:
            answer = self.answers.get(timeout=ANSWER_SECONDS)
        except queue.Empty:
            pytest.fail(f"no answer in {ANSWER_SECONDS:g} s to {what}: {self.last_words()}")
        if answer is None:
            pytest.fail(f"the program ended, with code {self.process.wait()}, at {what}: {self.last_words()}")
        return answer

    def last_words(self) -> str:
        self.said.seek(0)
        return self.said.read().decode(errors="replace")[-4000:]

    def kill(self) -> None:
        """SIGKILL, as for a program that crashes."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.listener.join(DEADLINE_S)
        for stream in (self.process.stdin, self.process.stdout, self.said):
            if stream is not None:
                stream.close()


class Transactor(Program):
    """A transactional producer. Every method raises Refused with the error that the library gave."""

    def initialised(self) -> None:
        self._heed(self.answer("the initialisation"))

    def begin(self) -> None:
        self._ask(do="begin")

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._ask(do="send", topic=topic, partition=partition, value=value)

    def offsets(self, group: str, topic: str, offset: int) -> None:
        """Adds the offset of partition 0 to the transaction, for a group without members."""
        self._ask(do="offsets", group=group, topic=topic, offset=offset)

    def commit(self) -> None:
        self._ask(do="commit")

    def abort(self) -> None:
        self._ask(do="abort")

    def transaction(self, topic: str, *values: str, end: str = "commit") -> None:
        """One transaction from begin to its end, the records in partitions 0 and 1 in turn."""
        self.begin()
        for number, value in enumerate(values):
            self.send(topic, value, number % 2)
        self._ask(do=end)

    def _ask(self, **command: Any) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pytest.fail(f"the program ended, with code {self.process.wait()}: {self.last_words()}")
        self._heed(self.answer(str(command)))

    def _heed(self, answer: dict[str, Any]) -> None:
        if "error" in answer:
            raise Refused(answer["error"])


class Client:
    """A client library with transactions: the command of its program, and the environment it needs."""

    def __init__(self, command: list[str], bootstrap: str, env: Mapping[str, str] | None = None, **told: Any) -> None:
        self.command = command
        self.env = env
        self.told = {"bootstrap": bootstrap, "timeout_ms": 60_000} | told
        self.running: list[Program] = []

    def transactor(self, transactional_id: str, **more: Any) -> Transactor:
        """A producer that initialises this id as it starts; `initialised` waits for that."""
        task = self.told | {"transactional_id": transactional_id} | more
        program = Transactor([*self.command, "transact", json.dumps(task)], self.env)
        self.running.append(program)
        return program

    def copier(self, transactional_id: str, **task: Any) -> Program:
        told = self.told | {"transactional_id": transactional_id} | task
        program = Program([*self.command, "copy", json.dumps(told)], self.env)
        self.running.append(program)
        return program

    def close(self) -> None:
        for program in self.running:
            program.kill()
