"""Dependencies shared by all logs of a broker: clock, background queues, file system, expiration of producers."""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.common.clock import Clock
from kafkalite.common.names import TopicPartition
from kafkalite.log.state.producer_state import EXPIRATION_MS
from kafkalite.log.state.transaction_verification import VerificationSetting
from kafkalite.log.storage.files import Background, Files, run_inline

BeforeTruncation = Callable[[TopicPartition, int, int, bool], None]


class LogContext:
    """Fields: `serial_queue` makes a background queue whose jobs run in order. `counting` is the queue of the jobs that
    count records, one log after another. `run_completions` runs the completions of background jobs that have ended.
    `record_validation` is the broker's kafkalite.record.validation.
    `verification` says whether transactions must be verified, and may change. `before_truncation` is called with a log,
    its next start and end offset, and whether all its segments go. It returns when no checkpoint is above the offsets;
    it raises OSError. `on_failure` is called with a log that takes no more records.
    """

    __slots__ = (
        "before_truncation", "clock", "counting", "files", "on_failure", "producer_expiration_ms", "record_validation",
        "run_completions", "serial_queue", "verification",
    )  # fmt: skip

    def __init__(
        self,
        clock: Clock,
        serial_queue: Callable[[], Background] = lambda: run_inline,
        files: Files | None = None,
        producer_expiration_ms: int = EXPIRATION_MS,
        run_completions: Callable[[], None] = lambda: None,
        verification: VerificationSetting | None = None,
        record_validation: str = "records",
        before_truncation: BeforeTruncation = lambda key, start_offset, end_offset, empties: None,
        on_failure: Callable[[TopicPartition], object] = lambda key: None,
    ) -> None:
        self.before_truncation = before_truncation
        self.on_failure = on_failure
        self.clock = clock
        self.record_validation = record_validation
        self.serial_queue = serial_queue
        self.counting = serial_queue()
        self.run_completions = run_completions
        self.files = Files() if files is None else files
        self.producer_expiration_ms = producer_expiration_ms
        self.verification = VerificationSetting() if verification is None else verification
