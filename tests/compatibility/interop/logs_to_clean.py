"""Logs of every shape to clean, for kafkalite and Kafka alike."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.compatibility.interop.kafka_cleaner import KafkaCleaner
from tests.support.cleaner.partition_directory import clean_job, run

NOW_MS = 1_700_000_000_000
RETENTION_MS = 60_000
_SETTINGS = {"segment.bytes": "segment_bytes", "index.interval.bytes": "index_interval_bytes"}


@dataclass(frozen=True)
class Shape:
    """How logs of this kind come about: topic settings, and the generator's words for each of its three turns."""

    name: str
    words: Mapping[str, object] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict)
    turns: tuple[Mapping[str, object], ...] = ({}, {}, {})
    delete_retention_ms: int = RETENTION_MS

    @property
    def topic_config(self) -> dict[str, str]:
        return {"delete.retention.ms": str(self.delete_retention_ms), **self.config}


UPGRADED = ({"magic": 0}, {"magic": 1}, {"magic": 2})
SHAPES = [
    Shape("everything", {"steps": 120}),
    Shape("plain", {"steps": 150, "codec": "none"}),
    *(Shape(codec, {"steps": 100, "codec": codec}) for codec in ("gzip", "snappy", "lz4", "zstd")),
    Shape("large-batches", {"steps": 25, "records": 3000, "keys": 4000}, {"segment.bytes": "200000"}),
    Shape("large-segments", {"steps": 200, "keys": 100}, {"segment.bytes": "40000", "index.interval.bytes": "4096"}),
    Shape("few-keys", {"steps": 150, "keys": 3}),
    Shape("no-retention", {"steps": 120}, delete_retention_ms=0),
    Shape("append-time", {"steps": 120}, {"message.timestamp.type": "LogAppendTime"}),
    Shape("v0", {"steps": 120, "magic": 0}),
    Shape("v1", {"steps": 120, "magic": 1}),
    Shape("v1-append-time", {"steps": 120, "magic": 1}, {"message.timestamp.type": "LogAppendTime"}),
    Shape("upgraded", {"steps": 60}, turns=UPGRADED),
]
FORMATS = {0: "0.9.0", 1: "0.10.0", 2: "3.0"}


@dataclass
class Copy:
    """One of the two directories, and how far it is clean."""

    directory: Path
    clean_end: int = 0

    def write(self, kafka: KafkaCleaner, shape: Shape, seed: int, turn: int, now_ms: int) -> dict[str, Any]:
        words = {**shape.words, **shape.turns[turn]}
        version = FORMATS[int(str(words.get("magic", 2)))]
        config = shape.topic_config | {"message.format.version": version}
        told = kafka.write(self.directory, seed * 10 + turn, now_ms, config, **words)
        for path in self.directory.glob("*.log"):
            # what the disk says of a file's age decides on tombstones of v0 and v1
            modified_ms = NOW_MS - 200_000 + int(path.stem) * 100
            os.utime(path, ns=(modified_ms * 1_000_000 + 600_000,) * 2)
        return told

    def clean_by_kafka(self, kafka: KafkaCleaner, shape: Shape, now_ms: int) -> None:
        self.clean_end = kafka.clean(self.directory, self.clean_end, now_ms, shape.topic_config)["clean_end"]

    def clean_by_us(self, kafka: KafkaCleaner, shape: Shape, now_ms: int) -> None:
        """Kafka opens the directory to say what is to be cleaned, so it must be one that it likes."""
        plan = kafka.plan(self.directory, self.clean_end, now_ms, shape.topic_config)
        if not plan["cleanable"]:
            return
        settings = {_SETTINGS[name]: int(value) for name, value in shape.config.items() if name in _SETTINGS}
        settings = {"segment_bytes": 2048, "index_interval_bytes": 256} | settings
        job = clean_job(self.directory, plan, now_ms, delete_retention_ms=shape.delete_retention_ms, **settings)
        result = run(job)
        assert result.is_complete
        self.clean_end = result.end_offset
