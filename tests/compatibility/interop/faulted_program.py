"""Programs in other languages whose broker misbehaves, obeyed a command at a time.

A program says an empty JSON object when it is ready, and then answers each line: `{"do": "produce", ...}`, `consume`,
`open` (begins a transaction with one record) and `commit`. The answer has the `values` that were read, or the `error`
by the name that the library gives it. The same in Python: `tests/compatibility/clients/faulted_clients.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.compatibility.clients.faulted_clients import DELIVERY_MS, REQUEST_MS, FaultedClient
from tests.compatibility.interop.transactor import Program


class Failed(Exception):
    """The error that a library has reported, by its name."""


class FaultedProgram:
    """A program that may be told anything `FaultedClient` can do."""

    failures = (Failed,)

    def __init__(self, words: list[str]) -> None:
        self._program = Program(words, None)
        self._program.answer("its start")

    def produce(
        self,
        bootstrap: str,
        topic: str,
        value: str,
        *,
        idempotent: bool = False,
        request_ms: int = REQUEST_MS,
        delivery_ms: int = DELIVERY_MS,
    ) -> None:
        limits = {"request_ms": request_ms, "delivery_ms": delivery_ms}
        self._ask("produce", bootstrap, topic, value=value, idempotent=idempotent, **limits)

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str = "readers", reset: str = "earliest"
    ) -> list[bytes]:
        return self._ask("consume", bootstrap, topic, count=count, group=group, reset=reset)

    def open(self, bootstrap: str, transactional_id: str, topic: str, value: str) -> Callable[[], None]:
        limits = {"request_ms": REQUEST_MS, "delivery_ms": DELIVERY_MS, "idempotent": True}
        self._ask("open", bootstrap, topic, value=value, transactional_id=transactional_id, **limits)

        def commit() -> None:
            self._ask("commit", bootstrap, topic)

        return commit

    def name_of(self, error: Exception) -> str:
        return re.sub(r"-?[0-9a-f]{6,8}\b", "...", str(error))  # checksums

    def close(self) -> None:
        self._program.kill()

    def _ask(self, do: str, bootstrap: str, topic: str, **more: object) -> list[bytes]:
        command = json.dumps({"do": do, "bootstrap": bootstrap, "topic": topic} | more)
        stdin = self._program.process.stdin
        assert stdin is not None
        try:
            stdin.write(command + "\n")
            stdin.flush()
        except BrokenPipeError:
            pytest.fail(f"the program ended at {command}: {self._program.last_words()}")
        answer = self._program.answer(command)
        if "error" in answer:
            raise Failed(answer["error"])
        return [value.encode() for value in answer["values"] or ()]


@contextmanager
def faulted_program(words: list[str]) -> Iterator[FaultedClient]:
    program = FaultedProgram(words)
    try:
        yield program
    finally:
        program.close()
