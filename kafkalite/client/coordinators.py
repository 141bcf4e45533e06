"""Coordinators of groups and transactional ids, asked again while they load or move.

Source: org.apache.kafka.clients.admin.internals.CoordinatorStrategy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kafkalite.client.cluster_client import ClusterClient
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import COORDINATOR_MOVES
from kafkalite.protocol.messages.group_admin import FindCoordinatorRequest

GROUP_KEY, TRANSACTION_KEY = 0, 1  # types of keys in FindCoordinator
_FIND_COORDINATOR_VERSION = 3
_RETRY_S = 0.1


class Coordinators:
    """Of a cluster. Questions are repeated for `timeout_s` at most."""

    def __init__(
        self,
        cluster: ClusterClient,
        timeout_s: float,
        *,
        monotonic_s: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._monotonic_s = monotonic_s
        self._sleep = sleep

    def find(self, key: str, key_type: int) -> tuple[int, int]:
        """(error code, broker id), asked once."""
        request = FindCoordinatorRequest(key=key, key_type=key_type)
        found = self._cluster.first.ask(request, _FIND_COORDINATOR_VERSION)
        return found.error_code, found.node_id

    def retry(self, ask: Callable[[], Any]) -> Any:
        """The response; asks again while its `error_code` is one of a coordinator that loads or moves."""
        deadline_s = self._monotonic_s() + self._timeout_s
        while True:
            response = ask()
            if response.error_code not in COORDINATOR_MOVES or self._monotonic_s() >= deadline_s:
                return response
            self._sleep(_RETRY_S)
