"""The context of one request: its connection, its version, and the client id.

Source: kafka.server.RequestContext.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkalite.network.client_connection import ClientConnection


class RequestContext:
    __slots__ = ("api_version", "client_id", "connection")

    def __init__(self, connection: ClientConnection, api_version: int, client_id: str | None) -> None:
        self.connection = connection
        self.api_version = api_version
        self.client_id = client_id
