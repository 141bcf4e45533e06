"""The zone of this process, for tests of local times: one whose clocks are set forward and back."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"  # needs no database of zones


@contextmanager
def local_zone(name: str = BERLIN) -> Iterator[None]:
    try:
        with patch.dict(os.environ, {"TZ": name}):
            time.tzset()
            yield
    finally:
        time.tzset()
