"""The table of handlers agrees with the table of APIs."""

from __future__ import annotations

from kafkalite.api.dispatch import HANDLERS, handler_of
from kafkalite.protocol.apis import SERVED


def test_every_served_api_has_a_handler() -> None:
    assert HANDLERS.keys() == {api.name for api in SERVED.values()}
    assert all(callable(handler_of(name)) for name in HANDLERS)
