"""Programs in other languages, obeyed a command at a time.

A program says an empty JSON object when it is ready, and then answers each line, a JSON object, with the `values` that
it has read, or with the `error` by the name or in the words of its library.
"""

from __future__ import annotations

import json
from types import TracebackType
from typing import Self

import pytest

from tests.compatibility.interop.transactor import Program


class Failed(Exception):
    """The error that a library has reported."""


class AskedProgram:
    failures = (Failed,)

    def __init__(self, words: list[str]) -> None:
        self._program = Program(words, None)
        self._program.answer("its start")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._program.kill()

    def ask(self, **command: object) -> list[bytes]:
        """The values. Raises Failed."""
        line = json.dumps(command)
        stdin = self._program.process.stdin
        assert stdin is not None
        try:
            stdin.write(line + "\n")
            stdin.flush()
        except BrokenPipeError:
            pytest.fail(f"the program ended at {line}: {self._program.last_words()}")
        answer = self._program.answer(line)
        if "error" in answer:
            raise Failed(answer["error"])
        return [value.encode() for value in answer["values"] or ()]
