"""InitProducerId when no ids are to be had: clients are told to come again, and the operator once a minute."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from kafkalite.common.errors import ErrorCode, StorageError
from kafkalite.protocol.messages.producer_ids import InitProducerIdRequest
from kafkalite.server.broker import Broker
from tests.support.manual_clock import ManualClock
from tests.unit.api.conftest import Asker


def test_a_full_disk_is_complained_of_once_in_a_while(
    tell: Callable[..., None], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    clock.advance(1000)

    async def story(asker: Asker, broker: Broker) -> None:
        running: Any = broker._running
        why = "cannot write registry: No space left on device"

        async def full() -> range:
            raise StorageError(why)

        async def asked(count: int) -> list[str]:
            caplog.clear()
            for _ in range(count):
                answer = await asker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
                assert (answer.error_code, answer.producer_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]

        monkeypatch.setattr(running._services.producer_ids, "_reserve", full, raising=True)
        assert await asked(20) == [f"producer ids: none can be given: {why}"]
        assert await asked(5) == []
        clock.advance(60_000)
        assert await asked(5) == [f"producer ids: none can be given: {why} (24 more times before)"]
        why = "cannot write registry: Input/output error"
        assert await asked(2) == [f"producer ids: none can be given: {why}"], "another cause"

    tell(story, clock=clock)
