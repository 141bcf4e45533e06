"""Requests that are repeated while their fault may pass: a leader that moves, a coordinator that loads.

Source: org.apache.kafka.clients.admin.internals.CoordinatorStrategy, KafkaProducer's delivery.timeout.ms.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kafkalite.client.blocking_client import Unanswered, name_of_error
from kafkalite.common.clock import monotonic_s
from kafkalite.common.errors import COORDINATOR_MOVES, ErrorCode


class WriteFailed(Exception):
    """Rows could not be written; the text is for the user."""


class Retries:
    """Repeats an attempt every `backoff_s`, for `timeout_s` at most."""

    def __init__(
        self,
        timeout_s: float,
        backoff_s: float = 0.1,
        monotonic_s: Callable[[], float] = monotonic_s,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.timeout_s = timeout_s
        self.backoff_s = backoff_s
        self.monotonic_s = monotonic_s
        self.sleep = sleep

    def persist(self, what: str, attempt: Callable[[], Any]) -> Any:
        """The first result of `attempt` that is no error code. Raises WriteFailed, which begins with `what`, for a code
        that is not retriable and when the time is over."""
        deadline_s = self.monotonic_s() + self.timeout_s
        while True:
            try:
                result = attempt()
                if not isinstance(result, int) or not result:
                    return result
                why = name_of_error(result)
                if not ErrorCode.of(result).is_retriable:
                    raise WriteFailed(f"{what}: {why}")
            except Unanswered as error:
                why = str(error)
            if self.monotonic_s() >= deadline_s:
                raise WriteFailed(f"{what} within {self.timeout_s:g} s: {why}")
            self.sleep(self.backoff_s)

    def ask_coordinator(self, ask: Callable[[], Any]) -> Any:
        """The response; asks again while its `error_code` is one of a coordinator that loads or moves, and the time is
        not over."""
        deadline_s = self.monotonic_s() + self.timeout_s
        while True:
            response = ask()
            if response.error_code not in COORDINATOR_MOVES or self.monotonic_s() >= deadline_s:
                return response
            self.sleep(self.backoff_s)
