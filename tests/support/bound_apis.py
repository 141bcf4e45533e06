"""The handlers of a running broker, bound to other parts than the broker's own."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from kafkalite.protocol.apis import SERVED


def handlers_of(running: Any) -> dict[str, Any]:
    """The handlers of all APIs by their names."""
    return {api.name: running.apis.handler_of(api.name) for api in SERVED.values()}


def replace_parts(running: Any, **parts: Any) -> None:
    """Binds the handlers and the fast paths to `parts`, named as the fields of the APIs; connections stay."""
    apis, dispatcher = running.apis, running.server.handler
    for name, part in parts.items():
        if hasattr(apis, f"_{name}"):
            setattr(apis, f"_{name}", part)
    for name in ("fetch", "produce"):
        api = getattr(apis, name)
        api = api._replace(**{each: part for each, part in parts.items() if each in api._fields})
        setattr(apis, name, api)
        setattr(dispatcher, f"_{name}", api)
    if "metadata" in parts:
        apis.produce.elections._metadata = parts["metadata"]
    for name, value in vars(type(apis)).items():
        if isinstance(value, cached_property):
            vars(apis).pop(name, None)
    dispatcher._routes.clear()
