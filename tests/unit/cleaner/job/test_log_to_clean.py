"""The dirty range, how much of it may be cleaned, and when it is enough: the cases of Kafka's LogCleanerManagerTest."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest

from kafkalite.cleaner.job.log_to_clean import LogFacts, LogToClean, plan
from kafkalite.config.topic_config import TopicConfig

NOW_MS = 1_000_000
ALL = 1 << 40


class Segment(NamedTuple):
    """`asked` fails the test when a time is asked for that decides nothing."""

    base_offset: int
    size_bytes: int
    largest_ms: int | None = 0
    first_ms: int | None = 0

    def largest_timestamp_ms(self) -> int:
        assert self.largest_ms is not None, "nobody needs to know"
        return self.largest_ms

    def first_timestamp_ms(self) -> int:
        assert self.first_ms is not None, "nobody needs to know"
        return self.first_ms


def segments(*sizes: int, **times: int) -> list[Segment]:
    """One behind the other, each with ten offsets."""
    return [Segment(10 * at, size, **times) for at, size in enumerate(sizes)]


def plan_of(
    parts: list[Segment], *, cleaned_to: int | None = None, start: int = 0, end: int | None = None, stable: int = ALL,
    **config: object,
) -> LogToClean:  # fmt: skip
    end_offset = parts[-1].base_offset + 10 if end is None else end
    settings = TopicConfig(**{"cleanup_policy": ("compact",)} | config)
    return plan(LogFacts(parts, start, end_offset, min(stable, end_offset), cleaned_to, settings), NOW_MS)


def reach(found: LogToClean) -> tuple[int, int]:
    return found.first_dirty_offset, found.first_uncleanable_offset


def test_everything_but_the_active_segment_is_dirty_in_a_log_that_was_never_compacted() -> None:
    found = plan_of(segments(100, 200, 300, 50))
    assert reach(found) == (0, 30)
    assert (found.clean_bytes, found.dirty_bytes, found.uncleanable_bytes) == (0, 600, 50)
    assert found.dirty_ratio == 1.0 and found.is_due and not found.must_reset


def test_a_log_goes_on_where_the_last_pass_ended() -> None:
    found = plan_of(segments(100, 200, 300, 50), cleaned_to=20)
    assert reach(found) == (20, 30)
    assert (found.clean_bytes, found.dirty_bytes, found.dirty_ratio) == (300, 300, 0.5)


@pytest.mark.parametrize(
    ("cleaned_to", "start", "end", "expected", "resets"),
    [
        (None, 0, 40, 0, False),
        (None, 15, 40, 15, False),  # nobody said anything, and nothing is wrong
        (0, 0, 40, 0, False),
        (10, 15, 40, 15, True),  # records were deleted
        (15, 15, 40, 15, False),
        (40, 0, 40, 40, False),
        (41, 0, 40, 0, True),  # the log was cut
        (41, 15, 40, 15, True),
    ],
)
@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")])
def test_a_checkpoint_that_cannot_be_makes_everything_dirty(
    cleaned_to: int | None, start: int, end: int, expected: int, resets: bool, policy: tuple[str, ...]
) -> None:
    found = plan_of(segments(9, 9, 9, 9), cleaned_to=cleaned_to, start=start, end=end, cleanup_policy=policy)
    assert (found.first_dirty_offset, found.must_reset) == (expected, resets)


def test_a_checkpoint_may_name_an_offset_of_a_segment_that_is_gone() -> None:
    parts = segments(9, 9, 9, 9)[2:]
    assert reach(plan_of(parts, start=20, cleaned_to=25)) == (25, 30)
    assert plan_of(parts, start=20, cleaned_to=12).must_reset
    assert reach(plan_of(parts, start=20)) == (20, 30)


def test_a_segment_that_is_half_clean_counts_for_both() -> None:
    """As Kafka counts it; the map was full in its middle."""
    found = plan_of(segments(100, 100, 100, 50), cleaned_to=15)
    assert (found.clean_bytes, found.dirty_bytes) == (200, 200)
    assert reach(found) == (15, 30)


def test_a_start_inside_the_first_segment_leaves_that_to_be_read() -> None:
    found = plan_of(segments(100, 100, 50), start=5)
    assert reach(found) == (5, 20) and found.dirty_bytes == 200


def test_an_empty_active_segment_lets_everything_be_compacted() -> None:
    found = plan_of(segments(100, 0), end=10)
    assert reach(found) == (0, 10) and found.is_due and found.uncleanable_bytes == 0


class TestHowFar:
    def test_not_into_an_open_transaction(self) -> None:
        assert reach(plan_of(segments(9, 9, 9, 9), stable=20)) == (0, 20)
        assert reach(plan_of(segments(9, 9, 9, 9), stable=29)) == (0, 20), "up to a segment's border"
        found = plan_of(segments(9, 9, 9, 9), stable=9)
        assert reach(found) == (0, 0) and found.why_not == "a transaction is open, or records wait to be committed"

    def test_not_before_the_lag_has_passed(self) -> None:
        ages = [5000, 3000, 1000, 999, 5000]
        parts = [Segment(10 * at, 9, NOW_MS - age) for at, age in enumerate(ages)]
        assert reach(plan_of(parts, min_compaction_lag_ms=1000)) == (0, 30)
        assert reach(plan_of(parts, min_compaction_lag_ms=1001)) == (0, 20)
        found = plan_of(parts, min_compaction_lag_ms=9000)
        assert reach(found) == (0, 0) and found.why_not == "min.compaction.lag.ms has not passed"

    def test_a_young_segment_keeps_the_old_ones_behind_it_and_a_clean_one_keeps_nothing(self) -> None:
        parts = [Segment(0, 9, NOW_MS), Segment(10, 9, 1), Segment(20, 9, NOW_MS), Segment(30, 9, 1), Segment(40, 9)]
        assert reach(plan_of(parts, cleaned_to=10, min_compaction_lag_ms=1000)) == (10, 20)

    def test_a_time_in_the_future_is_young(self) -> None:
        assert reach(plan_of(segments(9, 9, largest_ms=NOW_MS + 1), min_compaction_lag_ms=1)) == (0, 0)

    def test_whatever_comes_first(self) -> None:
        parts = [Segment(0, 9, 1), Segment(10, 9, NOW_MS), Segment(20, 9, 1), Segment(30, 9)]
        assert reach(plan_of(parts, stable=25, min_compaction_lag_ms=10)) == (0, 10)
        assert reach(plan_of(parts, stable=5, min_compaction_lag_ms=10)) == (0, 0)

    def test_never_back_before_what_is_clean(self) -> None:
        found = plan_of(segments(9, 9, 9, 9), cleaned_to=25, stable=22)
        assert reach(found) == (25, 25) and found.dirty_bytes == 0 and not found.is_due


class TestWhen:
    def test_more_than_the_ratio_must_be_dirty(self) -> None:
        parts = segments(100, 100, 50)
        assert plan_of(parts, cleaned_to=10, min_cleanable_dirty_ratio=0.49).is_due
        found = plan_of(parts, cleaned_to=10, min_cleanable_dirty_ratio=0.5)
        assert found.why_not == "dirty ratio 0.50 is not above min.cleanable.dirty.ratio 0.5"
        found = plan_of(segments(1000, 995, 50), cleaned_to=10, min_cleanable_dirty_ratio=0.5)
        assert found.why_not == "dirty ratio 0.49 is below min.cleanable.dirty.ratio 0.5"

    def test_a_ratio_of_zero_is_whenever_there_is_anything(self) -> None:
        assert plan_of(segments(1000, 1, 0), cleaned_to=10, min_cleanable_dirty_ratio=0).is_due
        assert not plan_of(segments(1000, 0, 9), cleaned_to=20, min_cleanable_dirty_ratio=0).is_due

    def test_a_ratio_of_one_is_never(self) -> None:
        assert not plan_of(segments(9, 9), min_cleanable_dirty_ratio=1).is_due

    def test_or_a_dirty_segment_is_too_old(self) -> None:
        parts = [Segment(0, 100, first_ms=1), Segment(10, 1, first_ms=NOW_MS - 500), Segment(20, 50, first_ms=None)]
        lag = {"cleaned_to": 10, "min_cleanable_dirty_ratio": 0.9}
        assert plan_of(parts, max_compaction_lag_ms=499, **lag).is_overdue
        assert plan_of(parts, max_compaction_lag_ms=499, **lag).is_due
        assert not plan_of(parts, max_compaction_lag_ms=500, **lag).is_due
        assert not plan_of(parts, max_compaction_lag_ms=NOW_MS + 1, **lag).is_due

    def test_any_of_them_and_those_without_a_time_say_nothing(self) -> None:
        parts = [Segment(0, 9, first_ms=-1), Segment(10, 9, first_ms=0), Segment(20, 9, first_ms=5), Segment(30, 0)]
        assert plan_of(parts, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1).is_due
        del parts[2]
        assert not plan_of(parts, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1).is_due

    def test_but_not_if_nothing_may_be_touched(self) -> None:
        parts = [Segment(0, 9, NOW_MS, 1), Segment(10, 9)]
        found = plan_of(parts, max_compaction_lag_ms=1000, min_compaction_lag_ms=1000)
        assert not found.is_due and found.why_not == "min.compaction.lag.ms has not passed"

    def test_no_time_is_asked_for_that_decides_nothing(self) -> None:
        assert plan_of(segments(9, 9, 9, largest_ms=None, first_ms=None)).is_due  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("parts", "facts", "why_not"),
        [
            (segments(0), {"end": 0}, "the log is empty"),
            (segments(50), {}, "all dirty records are in the active segment"),
            (segments(50, 10), {"cleaned_to": 10}, "all dirty records are in the active segment"),
            (segments(50, 10), {"cleaned_to": 15}, "all dirty records are in the active segment"),
            (segments(50, 10), {"cleaned_to": 20}, "nothing was written since the last run"),
            (segments(50, 0), {"cleaned_to": 10, "end": 10}, "nothing was written since the last run"),
        ],
    )
    def test_otherwise_it_is_said_why_not(self, parts: list[Segment], facts: dict[str, int], why_not: str) -> None:
        assert plan_of(parts, **facts).why_not == why_not  # type: ignore[arg-type]


def test_it_is_what_kafka_computes() -> None:
    """The same in the words of LogCleanerManager and LogSegments, over random logs."""
    random = Random(5)
    for _ in range(3000):
        bases = [0, *sorted(random.sample(range(1, 60), random.randint(0, 6)))]
        parts = [
            Segment(base, random.choice((0, 1, 30, 100)), random.choice((1, NOW_MS)), random.choice((-1, 1, NOW_MS)))
            for base in bases
        ]
        end = bases[-1] + random.randint(0, 9)
        start = random.randint(0, min(end, bases[1] if len(bases) > 1 else end))
        cleaned_to = random.choice((None, random.randint(0, end + 3)))
        stable = random.choice((end, random.randint(start, end)))
        config = {
            "min_compaction_lag_ms": random.choice((0, 1000)),
            "max_compaction_lag_ms": random.choice((1000, 1 << 50)),
            "min_cleanable_dirty_ratio": random.choice((0.0, 0.3, 0.5)),
        }
        found = plan_of(parts, cleaned_to=cleaned_to, start=start, end=end, stable=stable, **config)
        assert (found.first_dirty_offset, found.clean_bytes, found.dirty_bytes, found.is_due) == as_kafka(
            parts, start, end, stable, cleaned_to, TopicConfig(cleanup_policy=("compact",), **config)
        )


def as_kafka(
    parts: list[Segment], start: int, end: int, stable: int, cleaned_to: int | None, config: TopicConfig
) -> tuple[int, int, int, bool]:
    by_base = {segment.base_offset: segment for segment in parts}
    active = parts[-1].base_offset

    def values(first: int, limit: int) -> list[Segment]:
        if first == limit:
            return []
        floor = max((base for base in by_base if base <= first), default=None)
        return [by_base[base] for base in sorted(by_base) if base < limit and (floor is None or base >= floor)]

    def sealed_from(first: int) -> list[Segment]:
        return [] if first > active else values(first, active)

    dirty = start if cleaned_to is None or not start <= cleaned_to <= end else cleaned_to
    limits = [stable, active]
    if config.min_compaction_lag_ms > 0:
        young = (s.base_offset for s in sealed_from(dirty) if s.largest_ms > NOW_MS - config.min_compaction_lag_ms)
        limits.append(next(young, ALL))
    uncleanable = max(dirty, min(limits))
    border = next((s.base_offset for s in sealed_from(uncleanable)), active)
    dirty_bytes = sum(s.size_bytes for s in values(min(dirty, border), border))
    clean_bytes = sum(s.size_bytes for s in values(-1, dirty)) if dirty != -1 else 0
    firsts = [s.first_ms for s in sealed_from(dirty) if s.first_ms > 0]
    overdue = bool(firsts) and min(firsts) < NOW_MS - config.max_compaction_lag_ms
    total = clean_bytes + dirty_bytes
    ratio = dirty_bytes / total if total else 0.0
    return dirty, clean_bytes, dirty_bytes, (overdue and dirty_bytes > 0) or ratio > config.min_cleanable_dirty_ratio
