"""How writes are put into transactions, and who is named when one fails."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalite.zk.client.operations import BadVersion, Check, Operation, OperationFailed, SetData
from kafkalite.zk.client.transactions import batches, transact

FENCE = Check("/fence", 1)
WRITES = [[SetData("/a", b"", 0)], [Check("/b", 0), SetData("/c", b"", 0)], [SetData("/d", b"", 0)]]


class Session:
    """Fails at operation `fails_at` of a transaction."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at
        self.sent: list[Operation] = []

    async def write(self, operations: Sequence[Operation]) -> None:
        self.sent = list(operations)
        if self.fails_at is not None:
            failure = BadVersion(operations[self.fails_at].path)
            failure.index = self.fails_at
            raise failure


def tried(session: Session, *fence: Check) -> Any:
    return asyncio.run(transact(session, WRITES, fence))  # type: ignore[arg-type]


def test_all_operations_travel_in_order_behind_the_fence() -> None:
    session = Session()
    assert tried(session, FENCE) is None
    assert session.sent == [FENCE, *WRITES[0], *WRITES[1], *WRITES[2]]


@pytest.mark.parametrize(("fails_at", "index"), [(1, 0), (2, 1), (3, 1), (4, 2)])
def test_the_write_of_the_operation_that_failed_is_named(fails_at: int, index: int) -> None:
    found, refused = tried(Session(fails_at), FENCE)
    assert found == index and refused.operation == [FENCE, *WRITES[0], *WRITES[1], *WRITES[2]][fails_at]
    assert tried(Session(fails_at - 1))[0] == index


def test_a_fence_that_fails_is_no_refused_write() -> None:
    with pytest.raises(OperationFailed):
        tried(Session(0), FENCE)


@given(st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=5), max_size=30))
def test_batches_keep_the_order_and_the_limits(sizes: list[list[int]]) -> None:
    writes = [[SetData("/n", bytes(size), 0) for size in each] for each in sizes]
    found = list(batches(writes, 6, 1_000))
    assert [index for batch in found for index in batch] == list(range(len(writes)))
    for batch in found:
        operations = [each for index in batch for each in writes[index]]
        size_bytes = sum(82 + len(each.data) for each in operations)
        assert len(batch) == 1 or (len(operations) <= 6 and size_bytes <= 1_000)
    for batch, following in itertools.pairwise(found):
        both = [each for index in [*batch, following[0]] for each in writes[index]]
        assert len(both) > 6 or sum(82 + len(each.data) for each in both) > 1_000
