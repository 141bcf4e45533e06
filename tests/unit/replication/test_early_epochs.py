"""Many epochs are written by threads before their elections; a few are left to them."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from kafkalite.replication.early_epochs import COUNT_MIN, write_early


class Epochs:
    """Notes the threads in which its jobs run; the job of an odd epoch fails."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []
        self.threads: list[str] = []

    def write_early(self, epoch: int, start_offset: int) -> Any:
        self.asked.append((epoch, start_offset))

        def job() -> None:
            self.threads.append(threading.current_thread().name)
            if epoch % 2:
                raise OSError("No space left on device")

        return job


class Log:
    end_offset = 7

    def __init__(self) -> None:
        self.epochs = Epochs()


def test_many_are_written_by_threads(caplog: pytest.LogCaptureFixture) -> None:
    logs: list[Any] = [Log() for _ in range(COUNT_MIN)]
    asyncio.run(write_early([(log, epoch) for epoch, log in enumerate(logs)]))
    assert [log.epochs.asked for log in logs] == [[(epoch, 7)] for epoch in range(COUNT_MIN)]
    assert all(name.startswith("kafkalite-epochs") for log in logs for name in log.epochs.threads)
    assert all(len(log.epochs.threads) == 1 for log in logs)
    assert f"{COUNT_MIN // 2} epochs are not written yet: No space left" in caplog.text


def test_a_few_are_left_to_their_elections() -> None:
    logs: list[Any] = [Log() for _ in range(COUNT_MIN - 1)]
    asyncio.run(write_early([(log, 2) for log in logs]))
    assert not any(log.epochs.asked for log in logs)
