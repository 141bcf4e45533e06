"""What all logs of a broker share: time, hands for slow work, the door to the disk, how long producers last."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.common.clock import Clock
from kafkalite.log.state.producer_state import EXPIRATION_MS
from kafkalite.log.storage.files import Background, Files, run_inline


class LogContext:
    """`hear` has the outcomes of slow work told that nobody was told of yet. `counting` is the lane of those who count
    records: one log after another.
    """

    __slots__ = ("clock", "counting", "files", "hear", "lane", "producer_expiration_ms")

    def __init__(
        self,
        clock: Clock,
        lane: Callable[[], Background] = lambda: run_inline,
        files: Files | None = None,
        producer_expiration_ms: int = EXPIRATION_MS,
        hear: Callable[[], None] = lambda: None,
    ) -> None:
        self.clock = clock
        self.lane = lane
        self.counting = lane()
        self.hear = hear
        self.files = Files() if files is None else files
        self.producer_expiration_ms = producer_expiration_ms
