"""Sources of the reports to the console besides the services: the sockets, the watch over requests, the start."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from kafkalite.api.request.request_watch import RequestWatch

if TYPE_CHECKING:
    from kafkalite.common.clock import Clock
    from kafkalite.network.socket_server import SocketServer


class ReportSources:
    """`network` is asked when a report is made: the sockets are opened after the services are there."""

    __slots__ = ("network", "started_ms", "watch")

    def __init__(self, clock: Clock, network: Callable[[], SocketServer]) -> None:
        self.network = network
        self.started_ms = clock.monotonic_ms()
        self.watch = RequestWatch(clock, lambda watch: self.network().watch(watch))

    @staticmethod
    @cache
    def version() -> str | None:
        """Of the installed package."""
        from importlib import metadata

        try:
            return metadata.version("kafkalite")
        except metadata.PackageNotFoundError:
            return None
