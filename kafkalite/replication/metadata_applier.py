"""Following the registry: whatever anybody changes there, the topics here come to stand as it says.

What is led no longer is let go of in the same turn of the loop in which that is heard. What is to be led comes by and
by: names of topics wait in a queue, each at most once, and a task settles one after another (`TopicAdmin.settle`). So
changes may come in any order and as often as they like; only what the registry says in the end counts.
Source: kafka.server.ReplicaManager, which gets it from the controller's LeaderAndIsr and StopReplica.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkalite.common.errors import KafkaError
from kafkalite.metadata.cluster_metadata import NO_CONTROLLER, NO_LEADER, Change
from kafkalite.metadata.registration_state import RegistrationState

if TYPE_CHECKING:
    from kafkalite.metadata.cluster_metadata import ClusterMetadata
    from kafkalite.replication.topic_admin import TopicAdmin

logger = logging.getLogger(__name__)

_OF_A_TOPIC = (
    Change.TOPIC_CREATED,
    Change.TOPIC_DELETED,
    Change.PARTITIONS_ADDED,
    Change.PARTITION_STATE,
    Change.TOPIC_CONFIG,
)


class MetadataApplier:
    """Keeps `topics` as the registry says, from `start` to `stop`."""

    def __init__(self, registry: ClusterMetadata, topics: TopicAdmin, broker_id: int) -> None:
        self._registry = registry
        self._topics = topics
        self._broker_id = broker_id
        self._due: dict[str, None] = {}  # topics to settle
        self._is_due = asyncio.Event()
        self._is_settling = False
        self._is_settled = asyncio.Event()  # set in the moment in which nothing is due any more
        self._task: asyncio.Task[None] | None = None
        self._unlisten: Callable[[], None] = lambda: None

    def start(self) -> None:
        self._unlisten = self._registry.listen(self._heard)
        self._task = asyncio.get_running_loop().create_task(self._settle_all(), name="kafkalite-following")
        self.look_at_all()

    async def stop(self) -> None:
        self._unlisten()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def look_at_all(self) -> None:
        """Everything may have changed: how this broker stands to the others, for instance."""
        for name in list(self._topics.by_name):
            self._topics.resign(name)
        self._due.update(dict.fromkeys(self._registry.topics))
        self._is_due.set()

    async def until_led(self) -> None:
        """Return when this broker is a member, there is a controller, everything that is kept here has a leader, and
        what this broker leads of it is open."""
        while self._due or self._is_settling or not self._has_all():
            self._is_settled.clear()
            await self._is_settled.wait()

    def _has_all(self) -> bool:
        me = self._broker_id
        is_member = (
            self._registry.registration_state is RegistrationState.MEMBER
            and self._registry.controller_id != NO_CONTROLLER
        )
        return is_member and not any(
            state.leader == NO_LEADER and me in state.replicas and (me in state.isr or not state.isr)
            for topic in self._registry.topics.values()
            for state in topic.partitions.values()
        )

    def _heard(self, change: Change, name: str) -> None:
        if change is Change.REGISTRATION:
            self.look_at_all()
        elif change in _OF_A_TOPIC:
            self._topics.resign(name)
            self._due[name] = None
            self._is_due.set()
        elif change is Change.CONTROLLER:
            self._is_due.set()  # whoever waits looks again

    async def _settle_all(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            self._is_settling = True
            while self._due:
                name = next(iter(self._due))
                del self._due[name]
                try:
                    await self._topics.settle(name)
                except KafkaError as error:
                    logger.error("topic %s: %s", name, error)
                except Exception:
                    logger.exception("topic %s is not served as it should be", name)
            self._is_settling = False
            self._is_settled.set()
