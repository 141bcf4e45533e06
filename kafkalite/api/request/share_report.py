"""The share partitions that a broker leads, as values of JSON for BrokerReport: who holds which records since when.

Source: none in Apache Kafka, whose tools show only the start offsets and the lag of a share group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from kafkalite.common.clock import Moment
from kafkalite.replication.share.in_flight import ACQUIRED, TERMINAL, Run, is_pending, state_name
from kafkalite.replication.share.led_share_partition import LedSharePartition
from kafkalite.replication.share.share_partitions import SharePartitions

RUNS_MAX = 2_000  # of one report

Json = dict[str, Any]


def share_group_report(shares: SharePartitions, group_id: str, now: Moment) -> Json:
    """The share partitions of the group that are in use here, with the first RUNS_MAX runs of records that are not
    done; `left_out` is the number of other runs."""
    left = RUNS_MAX
    partitions: list[Json] = []
    left_out = 0
    for led in shares:
        if led.key.group_id != group_id or led.state is None:
            continue
        described = _partition(led, now)
        left_out += max(0, len(described["runs"]) - left)
        del described["runs"][left:]
        left -= len(described["runs"])
        partitions.append(described)
    return {"partitions": partitions, "left_out": left_out}


def _partition(led: LedSharePartition, now: Moment) -> Json:
    state, counts = led.state, led.counts
    assert state is not None
    runs = [each for each in state.records.runs() if each.last >= state.start_offset]
    sizes: Counter[str] = Counter()
    for each in runs:
        sizes[state_name(each.state)] += each.last - max(each.first, state.start_offset) + 1
    open_runs = (each for each in runs if each.state not in TERMINAL)
    return {
        "topic": led.partition.topic,
        "partition": led.partition.index,
        "start_offset": state.start_offset,
        "available": sizes["available"],
        "acquired": sizes["acquired"],
        "total_acknowledged": counts.acknowledged,
        "total_archived": counts.archived,
        "lock_timeouts": counts.lock_timeouts,
        "runs": [_run(each, now) for each in _joined(open_runs)],
    }


def _joined(runs: Iterable[Run]) -> Iterator[Run]:
    """Neighbours that are alike as one: batches that were acquired at one time have a lock each."""
    pending: Run | None = None
    for run in runs:
        if pending is not None and pending.last + 1 == run.first and _likeness(pending) == _likeness(run):
            pending = pending._replace(last=run.last)
            continue
        if pending is not None:
            yield pending
        pending = run
    if pending is not None:
        yield pending


def _likeness(run: Run) -> tuple[object, ...]:
    lock = _lock(run)
    held = None if lock is None else (lock.member_id, lock.acquired_ms, lock.deadline_ms)
    return state_name(run.state), run.delivery_count, held


def _lock(run: Run) -> Any:
    return run.lock if run.state == ACQUIRED or is_pending(run.state) else None


def _run(run: Run, now: Moment) -> Json:
    lock = _lock(run)
    return {
        "first_offset": run.first,
        "last_offset": run.last,
        "state": state_name(run.state),
        "delivery_count": run.delivery_count,
        "member_id": None if lock is None else lock.member_id,
        "acquired_ms": None if lock is None else now.wall_ms + lock.acquired_ms - now.monotonic_ms,
        "locked_until_ms": None if lock is None else now.wall_ms + lock.deadline_ms - now.monotonic_ms,
    }
