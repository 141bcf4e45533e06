"""The cleaner that most brokers never need."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from kafkalite.cleaner.lazy_cleaner import LazyLogCleaner
from kafkalite.config.broker_config import BrokerConfig
from tests.support.manual_clock import ManualClock


def test_a_stop_creates_no_cleaner() -> None:
    lazy = LazyLogCleaner(cast("Any", None), BrokerConfig(), ManualClock(0), lambda key: None)
    lazy.start()
    asyncio.run(lazy.stop())
    assert lazy._cleaner is None and not lazy.is_at_work
