"""Identity and last shutdown of a log directory.

meta.properties is as a broker with ZooKeeper writes it (version 0), or a KRaft node (1):

    broker.id=3                       node.id=3
    version=0                         version=1
    cluster.id=MkU3OEVBNTcwNTJENDM2Qg cluster.id=MkU3OEVBNTcwNTJENDM2Qg
                                      directory.id=u1Nl4vFpQ0mVJ6xYq0cTdg

A file keeps its version, so that the broker that wrote it can start on it again. The directories of one broker must
agree on the cluster id and the broker id. Two more files record how the last run on the directory ended:

    .kafka_cleanshutdown       there after a clean shutdown; removed before any log is loaded
    .kafkalite_cleanshutdown   there if that shutdown was ours, so that a start notices whether Apache Kafka ran here
                               since; also while logs that another broker left are being taken over

Source: org.apache.kafka.metadata.properties.MetaProperties, MetaPropertiesEnsemble; kafka.log.LogManager,
org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping

from kafkalite.common.errors import ConfigError
from kafkalite.common.named_tuple import NamedTuple
from kafkalite.common.names import format_uuid, random_uuid
from kafkalite.log.storage.file_names import CLEAN_SHUTDOWN, OWN_CLEAN_SHUTDOWN
from kafkalite.log.storage.files import Files

# Kafka reads the two fields that it knows; the third says to the next start which broker stopped here last.
_CONTENT = b'{"version":0,"brokerEpoch":-1,"by":"kafkalite"}'


class LastShutdown(NamedTuple):
    """`by_another`: the last broker on the directory was not ours, although the one before it was."""

    clean: bool
    by_another: bool


class CleanShutdownFile:
    """The files in one log directory. Methods raise OSError."""

    def __init__(self, log_dir: str, files: Files) -> None:
        self._log_dir = log_dir
        self._files = files
        self._path = f"{log_dir}/{CLEAN_SHUTDOWN}"
        self._own_path = f"{log_dir}/{OWN_CLEAN_SHUTDOWN}"

    def read(self, is_new: Callable[[], bool]) -> LastShutdown:
        """`is_new`: whether no broker has used the directory yet, which is as good as a clean shutdown."""
        has_own = os.path.exists(self._own_path)
        try:
            content = self._files.read(self._path)
        except FileNotFoundError:
            return LastShutdown(clean=is_new(), by_another=has_own)
        return LastShutdown(clean=True, by_another=content != _CONTENT)

    def remove(self, *, takes_over: bool, durable: bool) -> None:
        """Marks the directory as in use: from now on a stop counts as unclean until `write`.

        Removed before any log changes and, where `durable`, on the disk by then: a file that a power cut brought back
        would spare torn records their check. `takes_over`: should this run be killed, the next start takes over, too,
        unless `end_takeover` was called.
        """
        if takes_over:
            self._files.write_atomically(self._own_path, b"")
        else:
            self._files.unlink_if_exists(self._own_path)
        self._files.unlink_if_exists(self._path)
        if durable:
            self._files.sync(self._log_dir)

    def end_takeover(self) -> None:
        self._files.unlink_if_exists(self._own_path)
        self._files.sync(self._log_dir)

    def write(self) -> None:
        self._files.write_atomically(self._path, _CONTENT)
        self._files.write_atomically(self._own_path, b"", durable=False)


WITH_ZOOKEEPER, WITH_KRAFT = 0, 1


class MetaProperties(NamedTuple):
    """`cluster_id` or `broker_id` is None where the file lacks it, which only version 0 may."""

    cluster_id: str | None = None
    broker_id: int | None = None
    version: int = WITH_ZOOKEEPER
    directory_id: str | None = None

    def completed(self, cluster_id: str, broker_id: int) -> MetaProperties:
        """A copy with every field of its version."""
        directory_id = self.directory_id
        if self.version == WITH_KRAFT and directory_id is None:
            directory_id = format_uuid(random_uuid())
        return MetaProperties(cluster_id, broker_id, self.version, directory_id)

    def encode(self, now_ms: int) -> bytes:
        """The bytes that Java's Properties.store writes."""
        date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))
        values = {
            "broker.id" if self.version == WITH_ZOOKEEPER else "node.id": self.broker_id,
            "directory.id": self.directory_id,
            "version": self.version,
            "cluster.id": self.cluster_id,
        }
        lines = [f"{name}={value}" for name, value in values.items() if value is not None]
        return "\n".join(["#", f"#{date}", *lines, ""]).encode("latin-1")


def read_meta_properties(files: Files, path: str) -> MetaProperties | None:
    """The meta.properties at `path`, of either version; None if there is none.

    Raises ConfigError for a damaged file, OSError for one that cannot be read.
    """
    try:
        text = files.read(path).decode("latin-1")
    except FileNotFoundError:
        return None
    values = dict(_properties(text))
    try:
        version = int(values.get("version", "0"))
        number = values.get("broker.id" if version == WITH_ZOOKEEPER else "node.id")
        broker_id = int(number) if number is not None else None
    except ValueError:
        raise ConfigError(f"{path} is damaged: version and broker.id must be numbers; restore it") from None
    if version not in (WITH_ZOOKEEPER, WITH_KRAFT):
        raise ConfigError(f"{path} has version {version}; only 0 and 1 are known. Use another data directory")
    found = MetaProperties(values.get("cluster.id"), broker_id, version, values.get("directory.id"))
    if version == WITH_KRAFT and (found.cluster_id is None or broker_id is None):
        raise ConfigError(f"{path} is damaged: version 1 must name cluster.id and node.id; restore it")
    return found


def agreed(found: Mapping[str, MetaProperties]) -> MetaProperties:
    """The ids that the files of one broker, by their paths, agree on. Raises ConfigError when two contradict."""
    cluster_of: dict[str, str] = {}
    broker_of: dict[int, str] = {}
    path_of: dict[str, str] = {}
    for path, meta in found.items():
        if meta.cluster_id is not None:
            cluster_of.setdefault(meta.cluster_id, path)
        if meta.broker_id is not None:
            broker_of.setdefault(meta.broker_id, path)
        if meta.directory_id is not None:
            other = path_of.setdefault(meta.directory_id, path)
            if other != path:
                raise ConfigError(
                    f"{other} and {path} name the same directory.id {meta.directory_id}: one is a copy of the other; "
                    "take the copy out of log.dirs"
                )
    for kind, places in (("cluster", cluster_of), ("broker", broker_of)):
        if len(places) > 1:
            (one, path), (another, second) = list(places.items())[:2]
            raise ConfigError(
                f"{path} says that its directory belongs to {kind} {one}, {second} says {kind} {another}; "
                "the directories of log.dirs must be of one broker"
            )
    version = next((meta.version for meta in found.values()), WITH_ZOOKEEPER)
    return MetaProperties(next(iter(cluster_of), None), next(iter(broker_of), None), version)


def _properties(text: str) -> Iterable[tuple[str, str]]:
    """The pairs of a Java properties file; continued lines are not supported, for no broker writes them here."""
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, _, value = stripped.partition("=")
        yield name.strip(), value.strip().replace("\\", "")
