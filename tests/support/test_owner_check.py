"""The check itself: who may write to what belongs to the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from kafkalite.config.topic_config import TopicConfig
from kafkalite.log.index.sparse_index import TimeIndex
from kafkalite.log.segment.segment import Segment
from kafkalite.log.storage.files import DescriptorCache, Files
from tests.support.owner_check import NotTheOwner
from tests.support.wait import DEADLINE_S, until


def in_a_thread(job: Callable[[], object]) -> BaseException | None:
    faults: list[BaseException] = []

    def work() -> None:
        try:
            job()
        except BaseException as fault:
            faults.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return faults[0] if faults else None


def test_another_thread_may_not_write_to_a_segment_or_its_indexes() -> None:
    segment = Segment("/nowhere", 0, 0, TopicConfig(), 0, Files(DescriptorCache(1)))
    assert isinstance(in_a_thread(lambda: setattr(segment, "size_bytes", 1)), NotTheOwner)
    assert isinstance(in_a_thread(segment.time_index.release), NotTheOwner)
    assert in_a_thread(segment.times) is None
    segment.size_bytes = 1


def test_what_a_thread_has_made_is_taken_over_by_a_loop_or_when_the_thread_has_ended() -> None:
    made: list[TimeIndex] = []
    taken_over = threading.Event()

    def make() -> None:
        made.append(TimeIndex("/nowhere", 0, 0, Files(DescriptorCache(1))))
        made[0].release()
        taken_over.wait(DEADLINE_S)

    async def take_over() -> None:
        made[0].release()

    maker = threading.Thread(target=make)
    maker.start()
    until(lambda: made, "an index")
    with pytest.raises(NotTheOwner):
        made[0].release()
    asyncio.run(take_over())
    assert isinstance(in_a_thread(made[0].release), NotTheOwner)
    taken_over.set()
    maker.join()
    assert in_a_thread(lambda: made.append(TimeIndex("/nowhere", 0, 0, Files(DescriptorCache(1))))) is None
    made[1].release()


def test_a_thread_that_is_given_the_ident_of_the_owner_is_another_one() -> None:
    """A history once failed for a segment of a recovery's thread, whose ident the next thread had."""
    made: list[TimeIndex] = []
    in_a_thread(lambda: made.append(TimeIndex("/nowhere", 0, 0, Files(DescriptorCache(1)))))
    ends = threading.Event()
    others = [threading.Thread(target=ends.wait, args=(DEADLINE_S,)) for _ in range(4)]
    for other in others:
        other.start()
    made[0].release()
    ends.set()
    for other in others:
        other.join()
