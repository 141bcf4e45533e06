"""The checker takes a log for one, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.compatibility.interop.golang import FIRST_BUILD_S
from tests.support.replication import porcupine

pytestmark = [pytest.mark.long, pytest.mark.timeout(FIRST_BUILD_S)]


def operation(kind: str, offset: int, value: str, call: int, answer: int) -> dict[str, object]:
    return {"partition": 0, "kind": kind, "offset": offset, "value": value, "call": call, "return": answer}


A, B = operation("append", 0, "a", 0, 10), operation("append", 1, "b", 5, 20)


@pytest.mark.parametrize(
    ("operations", "code"),
    [
        ([A, B, operation("read", 1, "b", 0, 30)], 0),
        ([A, B, operation("read", 1, "b", 0, 6)], 0),  # an append that is not answered yet may have been made
        ([A, B, operation("read", 1, "a", 0, 30)], 1),  # another record
        ([A, B, operation("read", 1, "b", 0, 4)], 1),  # read before it was written
        ([A, operation("append", 1, "b", 5, 20), operation("append", 1, "c", 30, 40)], 1),  # one offset twice
        ([operation("append", 1, "a", 0, 10), operation("append", 0, "b", 20, 30)], 1),  # the later one came first
    ],
)
def test_logs_and_others(operations: list[dict[str, object]], code: int, tmp_path: Path) -> None:
    path = tmp_path / "operations"
    path.write_text("".join(json.dumps(one) + "\n" for one in operations))
    done = porcupine.check(porcupine.build(), path)
    assert done.returncode == code, done.stdout + done.stderr
