"""A disk whose background jobs, such as fsyncs, wait until a test runs them."""

from __future__ import annotations

from kafkalite.log.storage.files import Done, Job, outcome_of


class DelayedDisk:
    """A `Background`. Jobs wait until `run`; without `waits` they run at once. With `fails` they fail."""

    def __init__(self) -> None:
        self.waits = self.fails = False
        self._waiting: list[tuple[Job, Done]] = []

    def __call__(self, job: Job, done: Done) -> None:
        self._waiting.append((job, done))
        if not self.waits:
            self.run()

    def run(self) -> None:
        """Jobs that come meanwhile wait for the next call."""
        waiting, self._waiting = self._waiting, []
        for job, done in waiting:
            done(OSError(5, "Input/output error") if self.fails else outcome_of(job))

    def run_all(self) -> None:
        """Until none is left."""
        while self._waiting:
            self.run()
