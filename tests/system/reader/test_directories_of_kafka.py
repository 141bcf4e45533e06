"""Data directories that real Apache Kafkas wrote, with no broker running: what is read is what kafka-dump-log says.

3.9.1 (KRaft: all codecs, transactions, compaction, deleted records), 2.7.2 (formats v0, v1, v2 by topic), and topics
whose format was raised or that rolled meanwhile. Of transactions, what is committed is what a fetch of Kafka gave.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import kafkalite
from kafkalite.log.storage.checkpoint_file import read_offsets
from kafkalite.log.storage.file_names import LOG_STARTS, parse_partition_directory
from kafkalite.log.storage.files import Files
from tests.support.places import GOLDEN

pytest.importorskip("pyarrow", reason="needs the extra 'arrow'")

LEGACY = GOLDEN / "log" / "legacy"
ZOOKEEPER = GOLDEN / "log" / "kafka-3.9-zookeeper"
DUMPS = [
    (GOLDEN / "inspection" / "kafka-3.9.1", [GOLDEN / "inspection" / "kafka-3.9.1.data.out"]),
    (GOLDEN / "inspection" / "kafka-2.7.2", [GOLDEN / "inspection" / "kafka-2.7.2.data.out"]),
    (LEGACY, sorted(LEGACY.glob("*.dump.txt"))),
]
FILE = re.compile(r"Dumping (?:.*/)?([^/]+)-([0-9]+)/[0-9]+\.log")
RECORD = re.compile(
    r"\| offset: (\d+) (CreateTime|LogAppendTime|NoTimestampType): (-?\d+) keySize: (-?\d+) valueSize: (-?\d+)"
    r"(?:.*? headerKeys: \[(.*?)\])?(.*)"
)
KINDS = {"NoTimestampType": -1, "CreateTime": 0, "LogAppendTime": 1}
Told = tuple[int, int, int, int, int, str, str]


def told_by_kafka(dumps: list[Path]) -> dict[tuple[str, int], list[Told]]:
    """The records of each partition by offset, timestamp, its type, sizes, header keys, and the rest of the line."""
    told: dict[tuple[str, int], list[Told]] = {}
    for dump in dumps:
        of = "", 0
        for line in dump.read_bytes().decode(errors="replace").split("\n"):
            if found := FILE.match(line):
                of = found[1], int(found[2])
                told.setdefault(of, [])
            elif line.startswith("Dumping"):
                of = "", 0
            elif (found := RECORD.match(line)) and "endTxnMarker" not in line and "controlType" not in line:
                offset, kind, time, key_bytes, value_bytes, headers, rest = found.groups()
                sizes = int(key_bytes), int(value_bytes)
                told.setdefault(of, []).append((int(offset), int(time), KINDS[kind], *sizes, headers or "", rest))
    return told


def told_by_reader(row: dict[str, Any]) -> Told:
    key, value = row["key"], row["value"]
    sizes = [-1 if data is None else len(data) for data in (key, value)]
    headers = ",".join(header["key"] for header in row["headers"] or ())
    rest = "" if key is None else f" key: {key.decode(errors='replace')}"
    rest += "" if value is None else f" payload: {value.decode(errors='replace')}"
    return row["offset"], row["timestamp"], row["timestampType"], sizes[0], sizes[1], headers, rest


def rows(path: Path | list[Path], topic: str, **options: Any) -> list[dict[str, Any]]:
    table = kafkalite.read(path, topic, include_headers=True, **options).read_all()
    millis = [time // 1000 for time in table["timestamp"].cast("int64").to_pylist()]
    return [{**row, "timestamp": time} for row, time in zip(table.to_pylist(), millis, strict=True)]


@pytest.mark.parametrize(("directory", "dumps"), DUMPS, ids=["3.9.1", "2.7.2", "raised formats"])
def test_each_partition_is_what_kafkas_own_tool_says(directory: Path, dumps: list[Path]) -> None:
    told = told_by_kafka(dumps)
    starts = read_offsets(Files(), str(directory / LOG_STARTS))
    found = [parse_partition_directory(each.name) for each in directory.iterdir() if each.is_dir()]
    partitions = [of for of in found if of is not None and of in told]
    assert len(partitions) >= 4 and sum(map(len, told.values())) > 100
    for topic, partition in partitions:
        start = starts.get((topic, partition), 0)
        expected = [each for each in told[topic, partition] if each[0] >= start]
        seen = [told_by_reader(row) for row in rows(directory, topic, partitions=[partition])]
        if topic.startswith("__"):  # the tool tells them by their fields
            seen, expected = [each[:5] for each in seen], [each[:5] for each in expected]  # type: ignore[misc]
        else:  # in v0 and v1 the tool ends what it says of the checksum with a brace
            expected = [(*each[:6], re.sub(r"^ isValid: true crc: \d+}?", "", each[6])) for each in expected]
        assert seen == expected, f"{topic}-{partition}"


def test_two_directories_of_a_broker_with_zookeeper() -> None:
    contents = json.loads((ZOOKEEPER / "contents.json").read_text())
    paths = [ZOOKEEPER / "one", ZOOKEEPER / "two"]
    for topic, expected in contents.items():
        seen: dict[int, list[Any]] = {partition: [] for partition in range(len(expected))}
        for row in rows(paths, topic):
            texts = [data and data.decode() for data in (row["key"], row["value"])]
            seen[row["partition"]].append([row["offset"], row["timestamp"], *texts])
        assert [seen[partition] for partition in range(len(expected))] == expected, topic
