"""The sessions that this broker has had with ZooKeeper, in a small file beside its logs.

The registration of a killed broker stays until its session ends, and would keep its successor out for that long. From
this file the successor learns its own earlier sessions. It holds the lock of the data directory, so they belong to dead
processes, and their nodes may be deleted at once.

    {"host":"kafka1","directory":7340099,"sessions":["0x10003c2a9f50000"]}

The file is written before a session owns a node. A lost or torn file only costs time, until the old session ends. A
file that was copied with its directory is ignored, since it names the host and the directory of the original.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafkalite.common.errors import ConfigError
from kafkalite.common.text import read_json
from kafkalite.metadata.metadata_journal import JOURNAL_NAME

logger = logging.getLogger(__name__)

FILE_NAME = "kafkalite-zookeeper.sessions"
_COUNT_MAX = 8  # usually only the last one matters
_UNSIGNED = (1 << 64) - 1


class SessionFile:
    """The file in `data_dir`. `load` and `add` block for a moment."""

    def __init__(self, data_dir: str | Path) -> None:
        self._path = Path(data_dir) / FILE_NAME
        self._sessions: list[int] = []

    def __contains__(self, session_id: int) -> bool:
        return session_id & _UNSIGNED in self._sessions

    def load(self) -> None:
        """Read the file of an earlier process. A file that cannot be parsed counts as empty."""
        try:
            content = read_json(self._path.read_bytes())
            if {key: content[key] for key in ("host", "directory")} == self._place():
                self._sessions = [int(text, 16) & _UNSIGNED for text in content["sessions"]][-_COUNT_MAX:]
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as fault:
            logger.warning("%s is not understood and counts as empty: %r", self._path, fault)

    def add(self, session_id: int) -> None:
        """Record one more session. A failed write is logged, and costs the next start some time at worst."""
        session_id &= _UNSIGNED
        if self._sessions[-1:] == [session_id]:
            return
        kept = [each for each in self._sessions if each != session_id]
        self._sessions = [*kept, session_id][-_COUNT_MAX:]
        try:
            content = {**self._place(), "sessions": [hex(each) for each in self._sessions]}
            temporary = self._path.with_name(FILE_NAME + ".tmp")
            temporary.write_text(json.dumps(content, separators=(",", ":")) + "\n")
            temporary.replace(self._path)  # no fsync: after a power cut the sessions are long gone
        except OSError as error:
            logger.warning("cannot write %s: %s", self._path, error.strerror or error)

    def _place(self) -> dict[str, Any]:
        return {"host": socket.gethostname(), "directory": os.stat(self._path.parent).st_ino}


def check_is_no_member(directories: Sequence[str]) -> None:
    """Raises ConfigError if these directories belong to a broker of a cluster. Called by the start of a standalone
    broker, on which most topics would be missing, or would begin without their records."""
    left = [path for path in directories if (Path(path) / FILE_NAME).exists()]
    if left and not any((Path(path) / JOURNAL_NAME).exists() for path in directories):
        raise ConfigError(
            f"{left[0]} belongs to a broker of a cluster, but zookeeper.connect is not set: set it; or make this a "
            "broker by itself, with the topics that are found in there, by starting with --adopt"
        )
