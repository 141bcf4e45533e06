"""Parts of consumer groups beside those of Kafka 4.3: hashes, assignors and regular expressions, for all drawn."""

from __future__ import annotations

import uuid
from collections import Counter
from random import Random

import pytest

from kafkalite.common.linear_regex import LinearRegex
from kafkalite.coordinator.group.consumer.assignors import assign_range, assign_uniform
from kafkalite.coordinator.group.topics import topic_hash
from tests.compatibility.interop.java_verdicts import group_parts
from tests.support.drawn_groups import assignment_of_json, drawn_group, group_as_json, sizes_and_moves
from tests.support.drawn_patterns import DrawnPattern

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
COUNT = 3_000


def test_the_same_hashes_of_topics() -> None:
    random = Random(1)
    topics = [
        {
            "name": random.randbytes(random.randrange(1, 100)).hex()[random.randrange(2) :],
            "id": random.randbytes(16).hex(),
            "racks": [[random.choice("abcé\U0001f600")] * random.randrange(3) for _ in range(random.randrange(40))],
        }
        for _ in range(COUNT)
    ]
    theirs = group_parts([{"kind": "topic hash", **one} for one in topics])
    assert [topic_hash(one["name"], uuid.UUID(one["id"]), one["racks"]) for one in topics] == theirs


def test_the_same_ranges() -> None:
    random = Random(2)
    groups = [drawn_group(random, is_homogeneous=number % 2 > 0) for number in range(COUNT)]
    theirs = group_parts([{**group_as_json(group), "assignor": "range"} for group in groups])
    for group, found in zip(groups, theirs, strict=True):
        assert assign_range(group) == {name: assignment_of_json(one) for name, one in found.items()}


def test_uniform_assignments_as_even_and_as_sticky() -> None:
    """With several subscriptions there is more than one end without a better move, and a few groups reach another."""
    random = Random(3)
    groups = [drawn_group(random, is_homogeneous=number % 2 > 0) for number in range(COUNT)]
    theirs = group_parts([{**group_as_json(group), "assignor": "uniform"} for group in groups])
    counts: Counter[str] = Counter()
    for group, found in zip(groups, theirs, strict=True):
        sizes, moves = sizes_and_moves(group, assign_uniform(group))
        others = {name: assignment_of_json(one) for name, one in found.items()}
        their_sizes, their_moves = sizes_and_moves(group, others)
        if group.is_homogeneous:
            assert (sizes, moves) == (their_sizes, their_moves)
        elif sorted(sizes.values()) != sorted(their_sizes.values()):
            counts["other sizes"] += 1
        elif moves != their_moves:
            counts["more moves" if moves > their_moves else "fewer moves"] += 1
    assert sum(counts.values()) < COUNT * 0.05, counts


def test_the_same_patterns_and_the_same_matches() -> None:
    """RE2J's tables of categories are of an older Unicode, and fold in part; no such pattern is drawn."""
    drawn = [DrawnPattern(1_000_000 + number) for number in range(10 * COUNT)]
    theirs = group_parts([{"kind": "regex", "pattern": one.text, "texts": one.texts} for one in drawn])
    counts: Counter[str] = Counter()
    for one, found in zip(drawn, theirs, strict=True):
        try:
            regex = LinearRegex(one.text)
        except ValueError as fault:
            assert str(fault) == found, one.text
            counts["refused"] += 1
        else:
            assert [regex.fullmatch(text) for text in one.texts] == found, one.text
            counts["matches" if any(found) else "no match"] += 1
    assert counts["matches"] > COUNT and counts["refused"] > COUNT, counts
