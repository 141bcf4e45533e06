"""A kafkalite process that is registered with a ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.compatibility.interop.conftest import BrokerProcess


@contextmanager
def broker_on(connect: str, home: Path, **settings: str) -> Iterator[BrokerProcess]:
    """Stopped as an operator does it; it must have complained of nothing."""
    broker = BrokerProcess(home, {"broker.id": "0", "zookeeper.connect": connect} | settings)
    try:
        broker.start()
        yield broker
        broker.stop()
    finally:
        broker.kill()
    complaints = broker.complaints()
    assert not complaints, "the broker complained:\n" + "\n".join(complaints[:20]) + "\n\n" + broker.log_text()[-4000:]
