"""The wait of a fetch for more records, of a consumer, a follower or a share group's member.

Source: kafka.server.DelayedFetch, kafka.server.DelayedOperation.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkalite.api.request.request_context import Runtime
from kafkalite.network.client_connection import ignore
from kafkalite.replication.delayed_operations import DelayedOperation

WAIT_MS_MAX = 2**31 - 1


class LongPoll(DelayedOperation):
    """The wait of a fetch: until it is satisfied, or for as long as its client waits.

    Appends count down `missing_bytes` and wake the poll, which then calls `poll(is_over)`. That completes the fetch if
    it is satisfied, or with the records that are there if `is_over`, and returns 0; otherwise it returns the bytes that
    are missing, because a wake-up may come early: a partition has more than may be sent at once, or is truncated. It
    may be called once more after `stop`.
    """

    __slots__ = ("_is_over", "_poll", "_timer")

    def __init__(
        self,
        runtime: Runtime,
        max_wait_ms: int,
        missing_bytes: int,
        poll: Callable[[bool], int],
        read_committed: bool = False,
    ) -> None:
        """`max_wait_ms` is at most WAIT_MS_MAX."""
        self.missing_bytes = missing_bytes  # as in DelayedOperation, without the call: 0.1 us
        self.read_committed = read_committed
        self.woken = False
        self._lists = []
        self._wake = self._on_wake
        self._call_soon = runtime.loop.call_soon
        self._is_over = False
        self._poll = poll
        self._timer = runtime.clock.call_later(max_wait_ms, self.complete)

    def _on_wake(self) -> None:
        missing_bytes = self._poll(self._is_over)
        if missing_bytes:
            self.missing_bytes = missing_bytes
            self.woken = False

    def complete(self) -> None:
        self._is_over = True
        self.wake()

    def complete_in(self, wait_ms: int, runtime: Runtime) -> None:
        """End the wait after `wait_ms` from now."""
        self._timer.cancel()
        self._timer = runtime.clock.call_later(wait_ms, self.complete)

    def stop(self) -> None:
        """The fetch is complete, or its client left."""
        self._timer.cancel()
        self.withdraw()
        self._wake, self._poll = ignore, _is_complete  # break the reference cycles: the request is freed at once
        del self._timer


def _is_complete(_: bool) -> int:
    return 0
