"""Assignments of consumers, as bytes of any origin."""

from __future__ import annotations

from kafkalite.protocol.records import assigned_partitions


def test_assignments_are_read_as_far_as_they_are_some() -> None:
    assignment = b"\0\1\0\0\0\1\0\2ab\0\0\0\2\0\0\0\0\0\0\0\5\xff\xff\xff\xff"
    assert assigned_partitions(assignment) == {("ab", 0), ("ab", 5)}
    for end in range(len(assignment) - 4):
        assert assigned_partitions(assignment[:end]) == frozenset()
