"""Tokens that have expired are removed from the metadata, by the controller.

Source: kafka.controller.KafkaController (tokenCleanScheduler).
"""

from __future__ import annotations

import asyncio
import logging

from kafkalite.common.clock import Clock
from kafkalite.common.errors import KafkaError, StorageError
from kafkalite.config.broker_config import BrokerConfig
from kafkalite.metadata.cluster_metadata import ClusterMetadata
from kafkalite.security.delegation_tokens import DelegationToken
from kafkalite.server.periodic_tasks import PeriodicTasks

logger = logging.getLogger(__name__)


class TokenExpiry:
    """Looks for them from `add_to` on."""

    def __init__(self, config: BrokerConfig, metadata: ClusterMetadata, broker_id: int, clock: Clock) -> None:
        self._config = config
        self._metadata = metadata
        self._broker_id = broker_id
        self._clock = clock
        self._work: asyncio.Task[None] | None = None

    def add_to(self, tasks: PeriodicTasks) -> None:
        if self._config.token_secret:
            tasks.add("tokens", self._config.delegation_token_expiry_check_interval_ms, self.start, first_after_ms=0)

    def start(self) -> None:
        if self._metadata.controller_id == self._broker_id and (self._work is None or self._work.done()):
            self._work = asyncio.ensure_future(self.remove_expired())

    async def remove_expired(self) -> None:
        now_ms = self._clock.wall_ms()
        expired = [each for each in self._metadata.delegation_tokens.values() if each.is_expired(now_ms)]

        def unless_renewed(there: DelegationToken | None) -> DelegationToken | None:
            return None if there is None or there.is_expired(now_ms) else there

        for token in expired:
            try:
                await self._metadata.writes.change_delegation_token(token.token_id, unless_renewed)
            except (KafkaError, StorageError) as fault:
                logger.warning("a delegation token that has expired is not removed yet: %s", fault)
                return
            logger.info("the delegation token %s of %s has expired", token.token_id, token.owner)
