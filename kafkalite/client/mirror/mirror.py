"""A mirror: a flow from each source to the target, and the upkeep of each."""

from __future__ import annotations

import time
from collections.abc import Mapping

from kafkalite.client.mirror.flow import Flow
from kafkalite.client.mirror.flow_status import FlowStatus
from kafkalite.client.mirror.settings import Endpoint, MirrorSettings
from kafkalite.client.mirror.upkeep import Upkeep
from kafkalite.common.errors import ConfigError


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Mirror:
    """Copies from `start` to `stop`; `sources` by their aliases. Raises ConfigError for an alias that cannot be one."""

    def __init__(self, sources: Mapping[str, Endpoint], settings: MirrorSettings) -> None:
        for alias in (*sources, settings.target_alias):
            if not alias or "." in alias:
                raise ConfigError(f"the alias {alias!r} must be a name without a dot")
        if settings.target_alias in sources:
            raise ConfigError(f"the target has the alias {settings.target_alias!r} of a source; give it another one")
        self._flows = [Flow(alias, endpoint, settings, wall_ms) for alias, endpoint in sources.items()]
        self._upkeeps = [Upkeep(flow, wall_ms) for flow in self._flows]

    @property
    def statuses(self) -> list[FlowStatus]:
        return [flow.status for flow in self._flows]

    def start(self) -> None:
        for flow, upkeep in zip(self._flows, self._upkeeps, strict=True):
            flow.start()
            upkeep.start()

    def stop(self) -> None:
        """Returns after the commits of what is copied."""
        for flow in self._flows:
            flow.stop()
        for flow in self._flows:
            flow.join()
        for upkeep in self._upkeeps:
            upkeep.stop()
        for upkeep in self._upkeeps:
            upkeep.join()
