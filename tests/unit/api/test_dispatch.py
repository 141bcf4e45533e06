"""The table of handlers agrees with the table of APIs."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Any, cast

from kafkalite.api.dispatch import Dispatcher
from kafkalite.common.errors import Disconnect
from kafkalite.protocol.apis import SERVED
from kafkalite.server.broker import Broker
from tests.support.bound_apis import handlers_of
from tests.unit.api.conftest import Asker


def test_every_served_api_has_a_handler(tell: Callable[..., None]) -> None:
    async def story(_: Asker, broker: Broker) -> None:
        handlers = handlers_of(broker._running)
        assert handlers.keys() == {api.name for api in SERVED.values()}
        assert all(map(callable, handlers.values()))

    tell(story)


def test_a_request_that_fails_when_its_connection_is_gone_is_no_error_of_the_broker() -> None:
    told: list[dict[str, Any]] = []

    async def refuse() -> None:
        raise Disconnect("0 is no ResourceType")

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        dispatcher = Dispatcher(*cast(Any, (None, None, None, None)))
        nobody_waits = dispatcher._carry_out(refuse())
        await dispatcher.drain()
        await asyncio.sleep(0)
        del nobody_waits
        gc.collect()

    asyncio.run(story())
    assert not told
