"""Streams of a call: read and closed by threads, whichever comes first."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress

from kafkalite.console.streams import Opened
from tests.support.wait import DEADLINE_S


def test_a_reader_that_is_cancelled_while_its_thread_reads_closes_after_it() -> None:
    begun, end, closed = threading.Event(), threading.Event(), threading.Event()

    def pieces() -> Iterator[int]:
        try:
            begun.set()
            end.wait(DEADLINE_S)
            yield 1
        finally:
            closed.set()

    async def read() -> None:
        held = ExitStack()
        opened = Opened(None, pieces(), held)

        async def portions() -> None:
            async for _ in opened.portions():
                pass

        reader = asyncio.ensure_future(portions())
        await asyncio.to_thread(begun.wait, DEADLINE_S)
        reader.cancel()
        closer = asyncio.ensure_future(opened.close())
        await asyncio.sleep(0)
        end.set()
        await closer
        with suppress(asyncio.CancelledError):
            await reader

    asyncio.run(read())
    assert closed.is_set()
