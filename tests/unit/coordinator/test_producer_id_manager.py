"""Where producer ids come from, and that none comes twice, even when their count has been lost."""

from __future__ import annotations

import asyncio

from kafkalite.coordinator.transaction_coordinator import ProducerIdManager


class Count:
    """The counter in the cluster metadata; it may be set back."""

    def __init__(self) -> None:
        self.first = 0

    async def reserve(self) -> range:
        self.first += 10
        return range(self.first - 10, self.first)

    async def skip(self, last: int) -> None:
        self.first = max(self.first, last + 1)


def test_ids_come_one_by_one_and_from_one_block_after_another() -> None:
    async def story() -> None:
        ids = ProducerIdManager(Count().reserve)
        assert await asyncio.gather(*(ids.next() for _ in range(25))) == list(range(25))

    asyncio.run(story())


def test_a_count_that_begins_again_goes_on_above_what_the_logs_have_met() -> None:
    async def story() -> None:
        count, met = Count(), [-1]
        ids = ProducerIdManager(count.reserve, count.skip, lambda: met[0])
        given = [await ids.next() for _ in range(25)]
        count.first, met[0] = 0, 24
        given += [await ids.next() for _ in range(15)]
        assert len(set(given)) == 40

    asyncio.run(story())


def test_who_writes_under_an_id_beyond_all_measure_does_not_use_them_up() -> None:
    async def story() -> None:
        count = Count()
        ids = ProducerIdManager(count.reserve, count.skip, lambda: 1 << 61)
        assert [await ids.next() for _ in range(15)] == list(range(15))

    asyncio.run(story())
