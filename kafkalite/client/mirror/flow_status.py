"""The state of one source's mirror for metrics and health: written by its threads, read by a scrape."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kafkalite.client.mirror.copied_partition import CopiedPartition
from kafkalite.common.names import TopicPartition

logger = logging.getLogger("kafkalite.mirror")


@dataclass(slots=True)
class FlowStatus:
    """`partitions` are those of this process; a new dict replaces it when the group divides them. `is_copying`: the
    process is a member of the group and both clusters answer. `topics` are all that are copied, if it leads."""

    source: str
    wall_ms: Callable[[], int]
    partitions: dict[TopicPartition, CopiedPartition] = field(default_factory=dict)
    topics: frozenset[str] = frozenset()
    is_copying: bool = False
    leads: bool = False
    errors: int = 0
    last_error: str = ""
    last_error_ms: int | None = None

    def report(self, fault: str) -> None:
        """Notes an error, and logs it if it is another than the last one."""
        self.errors += 1
        if fault != self.last_error:
            logger.warning("%s: %s", self.source, fault)
        self.last_error, self.last_error_ms = fault, self.wall_ms()

    def faults(self) -> list[str]:
        """The partitions that are not copied, with the reason."""
        return [f"{one.name}: {one.fault}" for one in self.partitions.values() if one.fault]
