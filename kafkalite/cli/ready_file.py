"""A file that says how to reach a broker, for the program that has started it. It is there, whole, while clients may
connect.

    {"bootstrap_servers": "127.0.0.1:34567", "port": 34567, "pid": 4711, "data_dir": "...", "metrics": null}
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kafkalite.common.errors import ConfigError

if TYPE_CHECKING:
    from kafkalite.server.broker import Broker


class ReadyFile:
    """A file that an earlier broker has left is removed first. Raises ConfigError."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._unfinished = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        try:
            self._path.unlink(missing_ok=True)
            self._unfinished.touch()
        except OSError as error:
            raise ConfigError(f"--ready-file {path}: {error.strerror}") from None

    def write(self, broker: Broker) -> None:
        """Clients may connect. Raises OSError."""
        ready = {
            "bootstrap_servers": broker.bootstrap_servers,
            "port": broker.port,
            "pid": os.getpid(),
            "data_dir": str(broker.data_dir.absolute()),
            "metrics": broker.metrics_address,
        }
        self._unfinished.write_text(json.dumps(ready) + "\n", encoding="utf-8")
        self._unfinished.replace(self._path)  # a reader never sees half of it

    def remove(self) -> None:
        """Clients may connect no more."""
        for path in (self._path, self._unfinished):
            with suppress(OSError):
                path.unlink(missing_ok=True)
