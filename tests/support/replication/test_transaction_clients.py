"""The check of transactions finds what it is to find."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.replication.transaction_clients import Outcome, violations

COMMITTED, ABORTED, UNKNOWN = Outcome


@pytest.mark.parametrize(
    ("outcome", "first", "second", "is_right"),
    [
        (COMMITTED, 1, 1, True),
        (COMMITTED, 0, 0, False),
        (COMMITTED, 1, 0, False),
        (COMMITTED, 2, 2, False),
        (ABORTED, 0, 0, True),
        (ABORTED, 1, 1, False),
        (UNKNOWN, 0, 0, True),
        (UNKNOWN, 1, 1, True),
        (UNKNOWN, 0, 1, False),
    ],
)
def test_a_transaction_is_read_whole_or_not_at_all(outcome: Outcome, first: int, second: int, is_right: bool) -> None:
    found = violations({7: outcome}, [Counter({7: first}), Counter({7: second})])
    assert (found == []) is is_right, found


def test_what_nobody_wrote_is_a_violation() -> None:
    assert violations({}, [Counter({3: 1}), Counter({3: 1})]) == ["transaction 3, None, is read (1, 1) times"]
