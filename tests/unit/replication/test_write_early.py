"""Many epochs are written down by another thread before their elections; a few are left to them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkalite.replication.replica_manager import EARLY_EPOCHS_MIN, write_early


class Logs:
    """Two directories; notes the threads in which the jobs run. The second one may have no room."""

    def __init__(self, *, is_full: bool = False) -> None:
        self.is_full = is_full
        self.asked = 0
        self.noted: list[int] = []
        self.threads: list[str] = []

    def record_elections(self, elected: Any) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
        self.asked += 1
        for directory in (1, 2):
            yield lambda each=directory: self.write(each), lambda each=directory: self.noted.append(each)  # type: ignore[misc]

    def write(self, directory: int) -> None:
        self.threads.append(threading.current_thread().name)
        if self.is_full and directory == 2:
            raise OSError("No space left on device")


def test_many_are_written_by_another_thread() -> None:
    logs: Any = Logs()
    assert asyncio.run(write_early(logs, [(object(), 1)] * EARLY_EPOCHS_MIN))  # type: ignore[list-item]
    assert logs.noted == [1, 2]
    assert threading.current_thread().name not in logs.threads


def test_a_directory_without_room_keeps_back_no_other(caplog: pytest.LogCaptureFixture) -> None:
    logs: Any = Logs(is_full=True)
    assert not asyncio.run(write_early(logs, [(object(), 1)] * EARLY_EPOCHS_MIN))  # type: ignore[list-item]
    assert logs.noted == [1]
    assert "not written yet: No space left" in caplog.text


def test_a_few_are_left_to_their_elections() -> None:
    logs: Any = Logs()
    assert asyncio.run(write_early(logs, [(object(), 1)] * (EARLY_EPOCHS_MIN - 1)))  # type: ignore[list-item]
    assert not logs.asked
