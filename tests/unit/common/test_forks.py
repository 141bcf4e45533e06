"""Connections that a child closes are not kept alive by its parent."""

from __future__ import annotations

import asyncio
import gc
import weakref

import uvloop

from kafkalite.common.forks import close_writer_in_children


def test_a_connection_that_nobody_has_any_more_is_freed() -> None:
    """Of both sides: each refers to its transport, which refers to it."""
    seen: list[weakref.ref[asyncio.StreamWriter]] = []

    def enter(writer: asyncio.StreamWriter) -> None:
        seen.append(weakref.ref(close_writer_in_children(writer)))

    async def scene() -> None:
        accepted = asyncio.Event()

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            enter(writer)
            accepted.set()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        enter(writer)
        await accepted.wait()
        server.close()

    uvloop.run(scene())
    gc.collect()
    assert [one() for one in seen] == [None, None]
