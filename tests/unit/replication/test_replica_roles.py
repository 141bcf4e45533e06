"""Changes of the ISR are carried out for partitions that are still led here."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kafkalite.metadata.partition_state import WriteIsr, WriteOutcome
from kafkalite.replication.replica_roles import IsrWriter
from tests.support.manual_clock import ManualClock


def test_what_a_leader_decided_in_the_turn_of_its_end_is_not_written() -> None:
    """The next topic of that name may be known by the time the write would begin, and have the same version."""

    async def write_isr(name: str, index: int, change: WriteIsr) -> WriteOutcome:
        written.append(name)
        return WriteOutcome.WRITTEN

    def leader(topic: str) -> Any:
        return SimpleNamespace(
            topic=topic,
            index=0,
            is_retired=False,
            replica=SimpleNamespace(in_sync=SimpleNamespace(isr=(1, 2))),
            on_write=lambda change, outcome: outcomes.put_nowait(outcome),
        )

    async def story() -> None:
        metadata: Any = SimpleNamespace(write_isr=write_isr)
        writer = IsrWriter(metadata, ManualClock())
        ends, goes_on = leader("ends"), leader("goes-on")
        for one in (ends, goes_on):
            writer.write(one, WriteIsr(frozenset({1}), frozenset(), 0, {}))
        ends.is_retired = True
        assert await outcomes.get() is WriteOutcome.WRITTEN and outcomes.empty() and written == ["goes-on"]
        await writer.close()

    written: list[str] = []
    outcomes: asyncio.Queue[WriteOutcome] = asyncio.Queue()
    asyncio.run(story())
