"""THE TABLE of damages: what is done to a data directory, and what `kafkalite log verify` must say of it.

Each is done to a copy of what a kafkalite left (three segments in `rolled-0`), or, where transactions are concerned, of
what an Apache Kafka left (four segments in `money-0`).
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from kafkalite.record.batch import NewRecord, build_batch

OURS, KAFKAS = "kafkalite", "kafka-3.9.1"


class Damage(NamedTuple):
    """`do` harms the partition directory; the finding is about a file the name of which ends with `path`, and says
    `words`."""

    name: str
    do: Callable[[Path], None]
    path: str
    words: str
    base: str = OURS

    @property
    def partition(self) -> str:
        return "rolled-0" if self.base == OURS else "money-0"


# hands


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def batches(path: Path) -> list[tuple[int, int]]:
    """(begin, end) of each batch."""
    data = path.read_bytes()
    found, at = [], 0
    while at < len(data):
        end = at + 12 + int.from_bytes(data[at + 8 : at + 12], "big")
        found.append((at, end))
        at = end
    return found


def change(path: Path, how: Callable[[bytearray], None]) -> None:
    data = bytearray(path.read_bytes())
    how(data)
    path.write_bytes(data)


def flip(segment: int, batch: int, byte: int, mask: int = 0x10) -> Callable[[Path], None]:
    """Some bits of a byte of a batch; a negative byte counts from its end."""

    def do(partition: Path) -> None:
        path = logs(partition)[segment]
        start, end = batches(path)[batch]

        def flipped(data: bytearray) -> None:
            data[start + byte if byte >= 0 else end + byte] ^= mask

        change(path, flipped)

    return do


def cut_tail(partition: Path) -> None:
    change(logs(partition)[-1], lambda data: data.__delitem__(slice(-7, None)))


def add_tail(tail: bytes) -> Callable[[Path], None]:
    return lambda partition: change(logs(partition)[-1], lambda data: data.extend(tail))


def put_in_the_middle(what: bytes) -> Callable[[Path], None]:
    def do(partition: Path) -> None:
        path = logs(partition)[1]
        at = batches(path)[3][0]
        change(path, lambda data: data.__setitem__(slice(at, at), what))

    return do


def swap_batches(partition: Path) -> None:
    path = logs(partition)[1]
    (a, b), (_, c) = batches(path)[2:4]
    change(path, lambda data: data.__setitem__(slice(a, c), data[b:c] + data[a:b]))


def repeat_batch(partition: Path) -> None:
    path = logs(partition)[1]
    a, b = batches(path)[2]
    change(path, lambda data: data.__setitem__(slice(b, b), data[a:b]))


def remove_batch(partition: Path) -> None:
    path = logs(partition)[1]
    a, b = batches(path)[2]
    change(path, lambda data: data.__delitem__(slice(a, b)))


def remove_segment(partition: Path) -> None:
    for path in partition.glob(f"{logs(partition)[1].stem}.*"):
        path.unlink()


def empty_segment(partition: Path) -> None:
    logs(partition)[1].write_bytes(b"")


def overlap(partition: Path) -> None:
    first = logs(partition)[0]
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copy(first.with_suffix(suffix), partition / f"{5:020d}{suffix}")


def index(suffix: str, how: Callable[[bytearray], None], segment: int = 0) -> Callable[[Path], None]:
    return lambda partition: change(logs(partition)[segment].with_suffix(suffix), how)


def set_entry(entry: struct.Struct, number: int, *fields: int) -> Callable[[bytearray], None]:
    return lambda data: entry.pack_into(data, number * entry.size, *fields)


def swap_entries(width: int) -> Callable[[bytearray], None]:
    def do(data: bytearray) -> None:
        data[: 2 * width] = data[width : 2 * width] + data[:width]

    return do


def cut(size: int) -> Callable[[bytearray], None]:
    return lambda data: data.__delitem__(slice(size, None))


def remove(suffix: str, segment: int = 0) -> Callable[[Path], None]:
    return lambda partition: logs(partition)[segment].with_suffix(suffix).unlink()


def newest_snapshot(partition: Path) -> Path:
    return max(partition.glob("*.snapshot"))


def flip_snapshot(partition: Path) -> None:
    change(newest_snapshot(partition), lambda data: data.__setitem__(12, data[12] ^ 1))


def misname_snapshot(partition: Path) -> None:
    shutil.copy(newest_snapshot(partition), min(partition.glob("*.snapshot")))


def text(name: str, content: str) -> Callable[[Path], None]:
    """Another content for a file of the partition, or, with ../, of the data directory."""
    return lambda partition: (partition / name).write_text(content) and None


def in_text(name: str, old: str, new: str) -> Callable[[Path], None]:
    def do(partition: Path) -> None:
        path = partition / name
        content = path.read_text()
        assert old in content, (old, content)
        path.write_text(content.replace(old, new))

    return do


def copy(source: str, target: str) -> Callable[[Path], None]:
    """Names with the segment's number in the place of its digits."""

    def named(partition: Path, name: str) -> Path:
        number, dot, rest = name.partition(".")
        return partition / f"{logs(partition)[int(number)].stem}{dot}{rest}"

    return lambda partition: shutil.copy(named(partition, source), named(partition, target)) and None


def leave_directory(partition: Path) -> None:
    aside = partition.with_name(f"gone-3.{'a' * 32}-delete")
    aside.mkdir()
    (aside / f"{0:020d}.log").write_bytes(b"")


def harm_journal(partition: Path) -> None:
    change(partition.parent / "kafkalite-registry.journal", lambda data: data.__setitem__(30, data[30] ^ 1))


def tear_journal(partition: Path) -> None:
    change(partition.parent / "kafkalite-registry.journal", lambda data: data.extend(b"1234abcd {unfinis"))


def set_offset(name: str, offset: int) -> Callable[[Path], None]:
    """Of the partition, in a checkpoint of the data directory."""

    def do(partition: Path) -> None:
        topic, _, number = partition.name.rpartition("-")
        path = partition.parent / name
        lines = [line for line in path.read_text().splitlines()[2:] if not line.startswith(f"{topic} {number} ")]
        lines.append(f"{topic} {number} {offset}")
        path.write_text("\n".join(["0", str(len(lines)), *lines, ""]))

    return do


OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY = struct.Struct(">ii"), struct.Struct(">qi"), struct.Struct(">hqqqq")
STRANGER = bytes(build_batch([NewRecord(b"k", b"v")], base_offset=3))
NOISE = bytes(range(200, 256)) * 9

DAMAGES = [
    Damage("a bit of a record", flip(1, 3, -4), ".log", "checksum"),
    Damage("a bit of the attributes", flip(1, 3, 22, 0x01), ".log", "checksum"),
    Damage("a bit of the checksum", flip(1, 3, 18), ".log", "checksum"),
    Damage("a bit of a length", flip(1, 3, 11), ".log", "checksum"),
    Damage("a high bit of a length", flip(1, 3, 8, 0x01), ".log", "longer than the file"),
    Damage("a bit of the magic", flip(1, 3, 16, 0x01), ".log", "format 3"),
    Damage("a bit of an offset", flip(1, 3, 5, 0x01), ".log", "yet to reach"),
    Damage("a bit of the record count", flip(0, 2, 60, 0x40), ".log", "more records than offsets"),
    Damage("a torn tail", cut_tail, ".log", "cut off"),
    Damage("a tail of zeros", add_tail(bytes(5000)), ".log", "zero"),
    Damage("a tail of nonsense", add_tail(NOISE), ".log", "no batches"),
    Damage("nonsense between batches", put_in_the_middle(NOISE), ".log", "next sound batch"),
    Damage("a block of zeros between batches", put_in_the_middle(bytes(512)), ".log", "next sound batch"),
    Damage("a stranger's batch between batches", put_in_the_middle(STRANGER), ".log", "below the segment's own"),
    Damage("batches in the wrong order", swap_batches, ".log", "the batch has an offset"),
    Damage("a batch twice", repeat_batch, ".log", "passed already"),
    Damage("a batch gone", remove_batch, ".log", "missing"),
    Damage("a segment gone", remove_segment, ".log", "missing"),
    Damage("a segment emptied", empty_segment, ".log", "missing"),
    Damage("segments that overlap", overlap, ".log", "next segment"),
    Damage("an index cut within an entry", index(".index", cut(11)), ".index", "no multiple"),
    Damage("an index without its last entries", index(".index", cut(8)), ".index", "are gone"),
    Damage("an entry behind the end", index(".index", set_entry(OFFSET_ENTRY, 1, 7, 1 << 24)), ".index", "behind"),
    Damage("an entry inside a batch", index(".index", set_entry(OFFSET_ENTRY, 1, 6, 777)), ".index", "no batch begins"),
    Damage("entries that do not ascend", index(".index", swap_entries(8)), ".index", "ascend"),
    Damage("a time no record has", index(".timeindex", set_entry(TIME_ENTRY, 1, 1 << 41, 8)), ".timeindex", "late"),
    Damage("times that do not ascend", index(".timeindex", swap_entries(12)), ".timeindex", "ascend"),
    Damage("a time index cut to nothing", index(".timeindex", cut(0)), ".timeindex", "latest record"),
    Damage("an index gone", remove(".index"), ".index", "missing"),
    Damage("a time index gone", remove(".timeindex"), ".timeindex", "missing"),
    Damage("a bit of a snapshot", flip_snapshot, ".snapshot", "CRC"),
    Damage("a snapshot under a wrong name", misname_snapshot, ".snapshot", "its name excludes"),
    Damage("epochs that are none", text("leader-epoch-checkpoint", "0\n1\nx y\n"), "leader-epoch-checkpoint", "read"),
    Damage(
        "epochs that contradict the batches", text("leader-epoch-checkpoint", "0\n1\n7 0\n"), "leader-epoch-checkpoint",
        "the batch there says",
    ),
    Damage(
        "recovery points that are none", text("../recovery-point-offset-checkpoint", "9\n"),
        "recovery-point-offset-checkpoint", "cannot be read",
    ),
    Damage(
        "a recovery point behind the end", set_offset("recovery-point-offset-checkpoint", 99),
        "recovery-point-offset-checkpoint", "behind the log's end",
    ),
    Damage(
        "a log start behind the end", set_offset("log-start-offset-checkpoint", 99), "log-start-offset-checkpoint",
        "behind the log's end",
    ),
    Damage(
        "high watermarks that are none", text("../replication-offset-checkpoint", "0\n7\na 0 1\n"),
        "replication-offset-checkpoint", "announced",
    ),
    Damage("a damaged topic id", text("partition.metadata", "version: 0\ntopic_id: 12"), "partition.metadata", "id"),
    Damage(
        "another topic's id", text("partition.metadata", "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAw"),
        "partition.metadata", "the registry says",
    ),
    Damage(
        "meta.properties of a version to come", in_text("../meta.properties", "version=0", "version=7"),
        "meta.properties", "version 7",
    ),
    Damage(
        "meta.properties without a number", in_text("../meta.properties", "broker.id=", "broker.id=x"),
        "meta.properties", "damaged",
    ),
    Damage("a compaction that was done", copy("0.log", "0.log.swap"), ".swap", "did not take its place"),
    Damage("a compaction that was not done", copy("0.log", "0.log.cleaned"), ".cleaned", "did not come to its end"),
    Damage("a file on its way out", copy("0.index", "0.index.deleted"), ".deleted", "on its way out"),
    Damage("an index without a segment", text(f"{999:020d}.index", ""), f"{999:020d}.index", "not there"),
    Damage("a file that was not finished", text("../recovery-point-offset-checkpoint.tmp", "0\n"), ".tmp", "end"),
    Damage("a name that is none", text("0042.log", "?"), "0042.log", "such a name"),
    Damage("a partition on its way out", leave_directory, "-delete", "on its way out"),
    Damage("an entry of the registry", harm_journal, "kafkalite-registry.journal", "damaged"),
    Damage("a torn entry of the registry", tear_journal, "kafkalite-registry.journal", "no whole entry"),
    Damage(
        "an aborted transaction that never was", index(".txnindex", set_entry(TXN_ENTRY, 0, 0, 3, 8, 12, 8), 1),
        ".txnindex", "no abort", KAFKAS,
    ),
    Damage("a transaction index gone", remove(".txnindex", 1), ".txnindex", "which was aborted", KAFKAS),
    Damage("a transaction index cut within an entry", index(".txnindex", cut(20), 1), ".txnindex", "multiple", KAFKAS),
    Damage("a bit of a marker", flip(1, 1, -2), ".log", "checksum", KAFKAS),
]  # fmt: skip
