"""A partition on its way to the target: its position, its map of offsets, its counts."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from kafkalite.client.mirror.offset_map import OffsetMap
from kafkalite.common.names import TopicPartition

logger = logging.getLogger("kafkalite.mirror")


@dataclass(slots=True)
class Counts:
    """Of one partition since the start of the process. `lag` in records; None before the first response."""

    records: int = 0
    size_bytes: int = 0
    lag: int | None = None
    lost: int = 0
    latency_ms: int | None = None


@dataclass(slots=True, eq=False)
class CopiedPartition:
    """`position` is the offset at the source that is read next. `fault`: why it is not copied now, "" if it is.
    `is_shared`: others write to the copy, too."""

    source: TopicPartition
    target: TopicPartition
    position: int = 0
    offsets: OffsetMap = field(default_factory=OffsetMap)
    counts: Counts = field(default_factory=Counts)
    fault: str = ""
    is_shared: bool = False
    reported: str = ""  # the fault that is in the log

    def fail(self, fault: str) -> None:
        """It is not copied until it is assigned again. Logs a fault that is new."""
        self.fault = fault
        if fault != self.reported:
            logger.warning("%s is not copied: %s", self.name, fault)
            self.reported = fault

    @property
    def name(self) -> str:
        return f"{self.source[0]}-{self.source[1]}"
