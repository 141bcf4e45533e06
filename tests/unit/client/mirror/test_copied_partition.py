"""Progress as the metadata of a committed offset."""

from __future__ import annotations

import pytest

from kafkalite.client.mirror.copied_partition import Progress
from kafkalite.client.mirror.state_records import Run
from kafkalite.client.producer.transactions import CommittedOffset


@pytest.mark.parametrize("run", [None, Run(7, 5, 3)])
@pytest.mark.parametrize("source", ["cluster abc", "cluster at 1:2", ""])
def test_progress_is_read_as_it_was_written(source: str, run: Run | None) -> None:
    progress = Progress(10, source, run)
    assert Progress.of(progress.committed()) == progress


def test_the_progress_of_a_bulk_copy_counts() -> None:
    assert Progress.of(CommittedOffset(3, "cluster abc")) == Progress(3, "cluster abc", None)
