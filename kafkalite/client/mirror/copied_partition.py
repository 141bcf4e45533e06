"""A partition on its way to the target: its position, the progress that is committed with its records, its counts."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field

from kafkalite.client.mirror.offset_map import OffsetMap
from kafkalite.client.mirror.state_records import Run
from kafkalite.client.producer.transactions import CommittedOffset
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import TopicPartition

_PROGRESS = re.compile(r"(?P<source>.*?)(?: at (?P<run>\d+:\d+:\d+))?\Z", re.ASCII)

logger = logging.getLogger("kafkalite.mirror")


class Progress(NamedTuple):
    """The offset at the source from which a copy continues, the text that names the source, and the newest run of
    records if that is known. All of it is a committed offset of the mirror's group."""

    offset: int
    source: str
    run: Run | None = None

    def committed(self) -> CommittedOffset:
        at = "" if self.run is None else f" at {self.run.source}:{self.run.target}:{self.run.records}"
        return CommittedOffset(self.offset, f"{self.source}{at}")

    @classmethod
    def of(cls, committed: CommittedOffset) -> Progress:
        found = _PROGRESS.match(committed.metadata)
        assert found is not None
        run = Run(*map(int, found["run"].split(":"))) if found["run"] else None
        return cls(committed.offset, found["source"], run)


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
    """`position` is the offset at the source that is read next. `fault`: why it is not copied now, "" if it is."""

    source: TopicPartition
    target: TopicPartition
    position: int = 0
    offsets: OffsetMap = field(default_factory=OffsetMap)
    counts: Counts = field(default_factory=Counts)
    newest: Run | None = None  # committed
    fault: str = ""
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
