"""Scans of partitions: rounds in the order of time, windows that grow, gaps of retention, leaders that move."""

from __future__ import annotations

from itertools import islice
from typing import Any, cast

import pytest

from kafkalite.client.partition_scan import ScannedRecord
from kafkalite.client.scan import BEGINNING, END, OFFSET, TAIL, Limits, Scan, Start
from kafkalite.common.errors import ErrorCode, Refused, Unanswered
from kafkalite.common.names import TopicPartition
from kafkalite.record.batch import NewRecord
from tests.support.scanned_logs import TOPIC, ScannedLogs

Gap = tuple[int, int, int]


def record(value: str, timestamp: int = 0) -> NewRecord:
    return NewRecord(None, value.encode(), timestamp=timestamp)


def values(records: list[ScannedRecord]) -> list[str]:
    return [(one.value or b"").decode() for one in records]


class Story:
    """A scan of all partitions of `logs`; `gaps` are (partition, offset, position)."""

    def __init__(self, logs: ScannedLogs, start: Start, **options: Any) -> None:
        self.gaps: list[Gap] = []
        select = options.pop("select", lambda records: records)
        self.scan = Scan(
            cast("Any", logs),
            sorted(logs.places),
            start,
            select,
            self._on_gap,
            timeout_s=5,
            monotonic_s=lambda: logs.now_s,
            sleep=logs.pause,
            **options,
        )

    def _on_gap(self, partition: TopicPartition, offset: int, position: int) -> None:
        self.gaps.append((partition[1], offset, position))


def two_logs() -> ScannedLogs:
    """Records `a0 b0 a1 b1 ...` in the order of time, by turns in two partitions, a batch each."""
    logs = ScannedLogs(2)
    for number in range(4):
        logs.write(0, record(f"a{number}", 10 * number))
        logs.write(1, record(f"b{number}", 10 * number + 5))
    return logs


def test_a_round_has_a_piece_of_each_partition_in_the_order_of_time() -> None:
    scan = Story(two_logs(), Start(BEGINNING)).scan
    rounds = list(scan.forwards())
    assert [values(one.by_time()) for one in rounds] == [[f"a{at}", f"b{at}"] for at in range(4)]
    assert rounds[-1].ends == {(TOPIC, 0): 4, (TOPIC, 1): 4}
    assert (scan.end_reason, scan.scanned) == ("end", 8)


def test_offsets_of_some_partitions_say_where_it_begins() -> None:
    scan = Story(two_logs(), Start(OFFSET, 3, offsets={(TOPIC, 1): 99})).scan
    assert [values(one.by_time()) for one in scan.forwards()] == [["a3"]]


def test_backwards_the_newest_of_all_partitions_come_first() -> None:
    scan = Story(two_logs(), Start(END)).scan
    (one,) = scan.backwards(3)
    assert values(one.by_time(backwards=True))[:3] == ["b3", "a3", "b2"]
    assert scan.end_reason == "end"


def test_a_window_grows_over_gaps_until_there_are_enough_and_reads_nothing_twice() -> None:
    logs = ScannedLogs()
    logs.write(0, record("old"))
    logs.write(0, record("middle"), gap=150)
    logs.write(0, record("new"), gap=5_000)
    scan = Story(logs, Start(END)).scan
    rounds = list(scan.backwards(2))
    assert [bool(one.found) for one in rounds].count(True) == 1
    assert values(rounds[-1].by_time(backwards=True))[:2] == ["new", "middle"]
    assert scan.scanned == 3 and len(set(logs.fetches)) == len(logs.fetches)


def test_limits_end_a_scan_with_their_name() -> None:
    scan = Story(two_logs(), Start(BEGINNING), limits=Limits(max_records=3)).scan
    assert len(list(scan.forwards())) == 2 and scan.end_reason == "max_records"
    scan = Story(two_logs(), Start(BEGINNING), limits=Limits(max_bytes=1)).scan
    assert len(list(scan.forwards())) == 1 and scan.end_reason == "max_bytes"


def test_time_that_is_over_ends_a_round_between_two_partitions() -> None:
    logs = two_logs()
    logs.on_fetch = lambda: logs.pause(2)
    scan = Story(logs, Start(BEGINNING), limits=Limits(max_s=1)).scan
    assert [list(one.ends) for one in scan.forwards()] == [[(TOPIC, 0)]] and scan.end_reason == "max_ms"


@pytest.mark.parametrize("place", [BEGINNING, TAIL])
def test_where_retention_overtakes_the_scan_it_resumes_at_the_earliest_offset_and_says_so(place: str) -> None:
    logs = ScannedLogs()
    for number in range(4):
        logs.write(0, record(str(number)))
    story = Story(logs, Start(place))
    if place == TAIL:
        for number in range(4, 8):
            logs.write(0, record(str(number)))
    first = story.scan.spans[TOPIC, 0].low
    logs.delete_before(0, first + 2)
    rounds = story.scan.forwards() if place == BEGINNING else islice(story.scan.tail(), 3)
    found = [value for one in rounds for value in values(one.by_time())]
    assert found == [str(first + 2), str(first + 3)]
    assert story.gaps == [(0, first, first + 2)]


def test_a_tail_goes_back_to_the_end_of_a_leader_that_lacks_records() -> None:
    logs = ScannedLogs()
    for number in range(4):
        logs.write(0, record(str(number)))
    story = Story(logs, Start(TAIL))
    tail = story.scan.tail()
    logs.ends[0], logs.logs[0] = 3, logs.logs[0][:3]
    next(tail)
    logs.write(0, record("new"))
    assert [values(one.by_time()) for one in islice(tail, 1)] == [["new"]] and not story.gaps


@pytest.mark.parametrize("fault", [None, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_another_leader_is_asked_for_while_there_is_none(fault: ErrorCode | None) -> None:
    logs = two_logs()
    logs.faults = [fault] * 5
    scan = Story(logs, Start(BEGINNING)).scan
    assert values(next(scan.forwards()).by_time()) == ["a0", "b0"] and logs.refreshed == 5
    logs.faults = [fault] * 1_000
    with pytest.raises(Unanswered):
        list(scan.forwards())
    assert 9 < logs.now_s < 15


def test_a_refusal_that_will_not_pass_is_raised_at_once() -> None:
    logs = two_logs()
    logs.faults = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    with pytest.raises(Refused, match="t-0 cannot be read: TOPIC_AUTHORIZATION_FAILED"):
        list(Story(logs, Start(BEGINNING)).scan.forwards())
    assert not logs.refreshed


def test_only_selected_records_are_found_and_all_are_counted() -> None:
    def even(records: list[ScannedRecord]) -> list[ScannedRecord]:
        return [one for one in records if one.offset % 2 == 0]

    scan = Story(two_logs(), Start(BEGINNING), select=even).scan
    assert [values(one.by_time()) for one in scan.forwards()] == [["a0", "b0"], [], ["a2", "b2"], []]
    assert scan.scanned == 8
