"""Tells the controller of an Apache Kafka, and tools, which ISRs this broker has changed: /isr_change_notification.

Brokers of ours watch the state nodes themselves. The partitions of some seconds go into one node, as with Kafka: when
no ISR has changed for 5 s, or 60 s after the last such node. The controller deletes it.
Source: kafka.server.ZkAlterPartitionManager (maybePropagateIsrChanges), kafka.server.IsrChangePropagationConfig.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkalite.common.clock import Clock, Timer
from kafkalite.common.names import TopicPartition
from kafkalite.zk.client.operations import Create, OperationFailed, Unavailable
from kafkalite.zk.znodes import znode_data, znode_paths

if TYPE_CHECKING:
    from kafkalite.zk.client.session import ZooKeeperSession

logger = logging.getLogger(__name__)

_CHECK_INTERVAL_MS = 2_500
_QUIET_MS = 5_000
_DELAY_MAX_MS = 60_000
_NODE_PARTITIONS_MAX = 2_000  # with the longest names that is half of what ZooKeeper takes


class IsrChangeNotification:
    """The partitions that are yet to be told."""

    def __init__(self, session: ZooKeeperSession, clock: Clock) -> None:
        self._session = session
        self._clock = clock
        self._changed: dict[TopicPartition, None] = {}
        self._changed_at_ms = self._told_at_ms = clock.monotonic_ms()
        self._timer: Timer | None = None
        self._telling: asyncio.Task[None] | None = None

    def add(self, key: TopicPartition) -> None:
        """Record a partition whose ISR was written."""
        self._changed[key] = None
        self._changed_at_ms = self._clock.monotonic_ms()
        self._check_later()

    def stop(self) -> None:
        self._changed = {}
        if self._timer is not None:
            self._timer.cancel()
        if self._telling is not None:
            self._telling.cancel()

    def _check_later(self) -> None:
        if self._timer is None:
            self._timer = self._clock.call_later(_CHECK_INTERVAL_MS, self._check)

    def _check(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        if self._telling is None and (
            now_ms > self._changed_at_ms + _QUIET_MS or now_ms > self._told_at_ms + _DELAY_MAX_MS
        ):
            keys, self._changed = list(self._changed), {}
            self._told_at_ms = now_ms
            self._telling = asyncio.get_running_loop().create_task(self._tell(keys))
        elif self._changed:
            self._check_later()

    async def _tell(self, keys: Sequence[TopicPartition]) -> None:
        try:
            for first in range(0, len(keys), _NODE_PARTITIONS_MAX):
                data = znode_data.partitions_json(keys[first : first + _NODE_PARTITIONS_MAX])
                await self._session.write([Create(znode_paths.ISR_CHANGE, data, sequential=True)])
        except (Unavailable, OperationFailed) as fault:
            logger.info("%d changed ISRs are announced later: %s", len(keys), fault)
            self._changed = dict.fromkeys([*keys, *self._changed])
        finally:
            self._telling = None
            if self._changed:
                self._check_later()
