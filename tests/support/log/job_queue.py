"""Background jobs that run when a test wants it."""

from __future__ import annotations

from collections.abc import Callable


class JobQueue:
    """Jobs that run when the test wants it, one after another: a group of transactions comes together meanwhile."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []

    def __call__(self, job: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self.jobs.append((job, done))

    def run(self) -> None:
        while self.jobs:
            job, done = self.jobs.pop(0)
            try:
                job()
            except Exception as error:
                done(error)
            else:
                done(None)
