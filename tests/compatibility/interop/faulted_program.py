"""Programs in other languages whose broker misbehaves, obeyed a command at a time.

The commands are `{"do": "produce", ...}`, `consume`, `open` (begins a transaction with one record) and `commit`. The
same in Python: `tests/compatibility/clients/faulted_clients.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.compatibility.clients.faulted_clients import DELIVERY_MS, REQUEST_MS
from tests.compatibility.interop.asked_program import AskedProgram


class FaultedProgram(AskedProgram):
    """A program that may be told anything `FaultedClient` can do."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        value: str,
        *,
        idempotent: bool = False,
        request_ms: int = REQUEST_MS,
        delivery_ms: int = DELIVERY_MS,
    ) -> None:
        limits = {"request_ms": request_ms, "delivery_ms": delivery_ms}
        self.ask(do="produce", bootstrap=bootstrap, topic=topic, value=value, idempotent=idempotent, **limits)

    def consume(
        self, bootstrap: str, topic: str, count: int, *, group: str = "readers", reset: str = "earliest"
    ) -> list[bytes]:
        return self.ask(do="consume", bootstrap=bootstrap, topic=topic, count=count, group=group, reset=reset)

    def open(self, bootstrap: str, transactional_id: str, topic: str, value: str) -> Callable[[], None]:
        limits = {"request_ms": REQUEST_MS, "delivery_ms": DELIVERY_MS, "idempotent": True}
        self.ask(do="open", bootstrap=bootstrap, topic=topic, value=value, transactional_id=transactional_id, **limits)

        def commit() -> None:
            self.ask(do="commit", bootstrap=bootstrap, topic=topic)

        return commit

    def name_of(self, error: Exception) -> str:
        return re.sub(r"-?[0-9a-f]{6,8}\b", "...", str(error))  # checksums
