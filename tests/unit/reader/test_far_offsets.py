"""Segments with offsets more than 2^31-1 apart, as brokers before Kafka 1.1 left them, with the indexes of that time:
their relative offsets have wrapped around. No start has split them yet."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.record.batch import NewRecord, build_batch

FAR = 1 << 31
NOW_MS = 1_700_000_000_000
OFFSETS = [0, 7, FAR - 1, FAR + 7, FAR + 9, 3 * FAR]


def wrapped(offset: int) -> int:
    return (offset + FAR) % (2 * FAR) - FAR


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_text("version=0\nbroker.id=0\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n")
    data, index, times = b"", b"", b""
    for number, offset in enumerate(OFFSETS):
        index += struct.pack(">ii", wrapped(offset), len(data)) if data else b""
        times += struct.pack(">qi", NOW_MS + number, wrapped(offset))
        data += build_batch([NewRecord(b"k", b"v", (), NOW_MS + number)], base_offset=offset)
    for suffix, content in {".log": data, ".index": index, ".timeindex": times}.items():
        (partition / f"{0:020d}{suffix}").write_bytes(content)
    return tmp_path / "data"


def read(data_dir: Path, **options: Any) -> list[int]:
    offsets: list[int] = kafkalite.read(data_dir, "orders", **options).read_all().column("offset").to_pylist()
    return offsets


@pytest.mark.parametrize("start", [0, 7, 8, FAR, FAR + 8, 3 * FAR])
def test_they_are_read_from_any_offset(data_dir: Path, start: int) -> None:
    options = {"starting_offsets": {"orders": {0: start}}}
    assert read(data_dir, **options) == [offset for offset in OFFSETS if offset >= start]


@pytest.mark.parametrize("number", range(len(OFFSETS)))
def test_they_are_read_from_any_time(data_dir: Path, number: int) -> None:
    assert read(data_dir, starting_timestamp=NOW_MS + number) == OFFSETS[number:]
