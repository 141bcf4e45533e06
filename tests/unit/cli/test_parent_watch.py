"""The end of a parent process, with and without pidfds."""

from __future__ import annotations

import asyncio
import os

import pytest

from kafkalite.cli.starter_contract import watch_parent
from tests.support.wait import DEADLINE_S


def test_without_pidfds_the_id_of_the_parent_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = [7, 7, 7, 1]
    monkeypatch.setattr(os, "getppid", lambda: parents.pop(0) if len(parents) > 1 else parents[0])
    monkeypatch.setattr(os, "pidfd_open", lambda _: (_ for _ in ()).throw(OSError("not here")), raising=False)

    async def story() -> None:
        ended = asyncio.Event()
        watch_parent(ended.set, poll_s=0.001)
        assert not ended.is_set()
        await asyncio.wait_for(ended.wait(), DEADLINE_S)

    asyncio.run(story())
    assert parents == [1]
