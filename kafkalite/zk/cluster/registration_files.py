"""The number of this broker's last registration, in a small file in each data directory: whether the logs are whole.

A broker that comes back vouches for its logs if they are those of its last life, and their ends cannot be lost: the
directory was shut down cleanly, or the machine runs since (the same boot id), for a killed process leaves what it wrote
in the kernel's memory. A replaced disk has no file, and a restored backup an old number, since every registration of
the broker raises the number, in ZooKeeper and then here.

    {"version":1,"registration":7,"boot_id":"1bdbe8f2-...","directories":2}

Directories of Apache Kafka have no file either; they count if they were shut down cleanly and no kafkalite has ever
registered with that id. A directory that may have lost records has the number -1 from the start on, until the broker
has left the lists; a clean stop before that does not change it. After the failure of a directory, or of an fsync, all
have -1 until the next process. A lost file costs the broker its places in ISRs until it has caught up.
Source: KIP-966 (unclean shutdown; Kafka keeps the broker epoch in .kafka_cleanshutdown).
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.text import read_json
from kafkalite.zk.client.operations import Node
from kafkalite.zk.znodes import znode_data

logger = logging.getLogger(__name__)

FILE_NAME = "kafkalite-zookeeper.registration"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_VERSION = 1
_NOT_WHOLE = -1


class LastRegistration(NamedTuple):
    """The content of one file. `boot_id` is empty where the machine has none."""

    number: int
    boot_id: str
    directory_count: int


class RegistrationFiles:
    """The files in `data_dirs`, all that this broker has. `clean`: those among them that were in use and were shut down
    cleanly. `is_distrusted`: logs in them may lack records. Methods block for a moment, and may run side by side."""

    def __init__(self, data_dirs: Sequence[str | Path], clean: Collection[str | Path] = ()) -> None:
        clean = set(map(str, clean))
        self._paths = {Path(path) / FILE_NAME: str(path) in clean for path in data_dirs}
        self._last: dict[Path, LastRegistration | None] = {}
        self._boot_id = ""
        self._write_lock = threading.Lock()  # a registration must not be recorded over a distrust that came meanwhile
        self.is_distrusted = False

    def load(self) -> None:
        """Read the files of an earlier process, before its clean stop is forgotten. A file that cannot be read counts
        as missing."""
        self._boot_id = boot_id()
        for path, is_clean in self._paths.items():
            last = self._last[path] = _read(path)
            if not is_clean and not (last is not None and last.boot_id and last.boot_id == self._boot_id):
                self._write(path, _NOT_WHOLE)

    def vouch(self, node: Node | None) -> bool:
        """Whether the logs in all directories hold everything that they held in the broker's last life. `node` is that
        of its registration; None: it never had one."""
        return all(self._is_whole(path, is_clean, node) for path, is_clean in self._paths.items())

    def _is_whole(self, path: Path, is_clean: bool, node: Node | None) -> bool:
        last = self._last.get(path)
        if last is not None and last.number == _NOT_WHOLE:
            return False
        if node is None:
            return is_clean
        if last is None or last.directory_count != len(self._paths) or not _is_of_last_life(last.number, node):
            return False
        return is_clean or (bool(last.boot_id) and last.boot_id == self._boot_id)

    def record(self, number: int) -> None:
        """Record a new registration. A failed write is logged; the next start vouches for nothing then."""
        for path in self._paths:
            self._write(path, number)

    def admit_lost_tail(self) -> None:
        """Vouch for no log until the next registration is recorded. By then the broker has left the lists, and a log
        that has caught up since is complete.
        """
        self.record(_NOT_WHOLE)

    def distrust(self) -> None:
        """Vouch for no log in this process and in the next one: records that a disk has lost may be readable again."""
        self.is_distrusted = True
        self.record(_NOT_WHOLE)

    def _write(self, path: Path, number: int) -> None:
        with self._write_lock:
            self._write_one(path, _NOT_WHOLE if self.is_distrusted else number)

    def _write_one(self, path: Path, number: int) -> None:
        last = self._last[path] = LastRegistration(number, self._boot_id, len(self._paths))
        content = {
            "version": _VERSION,
            "registration": last.number,
            "boot_id": last.boot_id,
            "directories": last.directory_count,
        }
        try:
            temporary = path.with_name(FILE_NAME + ".tmp")
            temporary.write_text(json.dumps(content, separators=(",", ":")) + "\n")
            temporary.replace(path)  # no fsync: after a power cut it counts only beside a clean shutdown
        except OSError as error:
            logger.warning("cannot write %s: %s", path, error.strerror or error)
            if last.number == _NOT_WHOLE:
                with suppress(OSError):  # on a full disk; a missing file does not vouch, and the old one would
                    path.unlink(missing_ok=True)


def boot_id() -> str:
    """A text that changes when the machine boots; empty where there is none."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _is_of_last_life(number: int, node: Node) -> bool:
    """Whether this is the number of the registration at `node`. The stop of a life counts one more; a life whose number
    was recorded, but did not begin, one less."""
    if number >= node.version:
        return True
    try:
        return number + 1 == node.version and znode_data.parse_registration(node.data).stopping
    except ValueError:
        return False


def _read(path: Path) -> LastRegistration | None:
    try:
        content = read_json(path.read_bytes())
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']}")
        last = LastRegistration(content["registration"], content["boot_id"], content["directories"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as fault:
        logger.warning("%s is not understood and counts as missing: %r", path, fault)
        return None
    return last if type(last.number) is int and type(last.directory_count) is int else None
