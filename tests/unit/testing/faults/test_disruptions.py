"""A producer that is fenced, while its transaction is still being aborted."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from kafkalite.common.errors import ErrorCode
from kafkalite.testing.faults import disruptions


def test_the_successor_asks_until_it_has_an_epoch_of_its_own() -> None:
    asked: list[str] = []

    async def story() -> None:
        initialised = asyncio.Event()

        def init_producer_id(transactional_id: str, timeout_ms: int, expected: None, waiter: Any) -> None:
            asked.append(transactional_id)
            is_ready = len(asked) == 3
            waiter.answer(SimpleNamespace(error=ErrorCode.NONE if is_ready else ErrorCode.CONCURRENT_TRANSACTIONS))
            if is_ready:
                initialised.set()

        transactions = SimpleNamespace(describe=lambda _: (object(), ErrorCode.NONE), init_producer_id=init_producer_id)
        disruptions.fence(SimpleNamespace(transactions=transactions), "shop")  # type: ignore[arg-type]
        await initialised.wait()

    asyncio.run(story())
    assert asked == ["shop"] * 3
